// The line of a shell that asks a kernel about a case again.
#pragma once
#include <string>

#include "gpu_checks/kernel.hpp"
#include "reference/cases/case.hpp"

namespace attest {

// `program` as a word of a shell. "PROGRAM check [what opens the kernel's door] --kernel NAME", and with the case.
std::string replay_start(const Kernel& kernel, const std::string& program);
std::string replay_line(const Kernel& kernel, const Case& input, const std::string& program = "attest");

}  // namespace attest
