// What a reader wants to know first, in four answers: is it right, how good, where is it wrong, how is that repeated.
#pragma once

#include <string>
#include <vector>

#include "reports/summary.hpp"

namespace attest {

std::string first_screen(const Records& records, const std::vector<KernelSummary>& kernels);

// Records of the battery: its checks draw their own inputs, and what is counted is kernels, not inputs.
bool of_the_battery(const CaseRecord& record);

}  // namespace attest
