// A case in at most ten lines, for the failure message of a test: the verdict and the kernel, what failed and why, the
// worst element, where, what was not covered, and the line that repeats it.
#pragma once
#include <string>

#include "reports/record.hpp"

namespace attest {

// `replay` is what its author calls from: "attest::check(kernel, {.seed = 7})", "build/attest check ...".
std::string in_ten_lines(const CaseRecord& record, const std::string& replay);

}  // namespace attest
