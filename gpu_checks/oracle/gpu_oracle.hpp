// The certified oracle on a GPU: an engine for reference/forms/certified.hpp. Its sums are checked against an independent
// evaluation on rows drawn from the same problem by whoever uses it (gpu_checks/check.cpp).
#pragma once
#include <string>

#include "reference/forms/certified.hpp"

namespace attest {

// The engine of the current device; null, and why, where there is none: no CUDA in this build, no device, no doubles.
const CertifiedEngine* gpu_engine(std::string& why);

// Below so many tokens the processor is faster than the way to the device and back.
inline constexpr Index gpu_oracle_tokens = 1024;

}  // namespace attest
