// Where in an operator's outputs the worst elements lie: heads by stretches of tokens, drawn without a program.
#pragma once

#include <span>
#include <string>

#include "reports/summary.hpp"

namespace attest {

// A <figure>, or "" when no measured case of these kernels lists an element of an output [b,t,h,c].
std::string heat_map(std::span<const KernelSummary> kernels);

}  // namespace attest
