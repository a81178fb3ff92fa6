// Inputs within the limits that a kernel announces (gpu_checks/kernel.hpp), where those admit something small enough.
#pragma once
#include "fuzz/input.hpp"

namespace attest {

// A size that the limit of that name admits near to `wanted`; that itself where none is small enough to be asked about, for
// the kernel to refuse with the name of the limit.
Index size_within(const Kernel& kernel, std::string_view name, Index wanted);

// Every size of the case so, and what goes with it: shared heads, packed sequences.
void keep_within_limits(const Kernel& kernel, Case& shape);

}  // namespace attest
