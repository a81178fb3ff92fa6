// A delta rule on the current GPU. False when it cannot: no memory, wider than 256, an initial state with levels, keys with zeros
// (certified_delta_layers.hpp).
#pragma once
#include "reference/forms/certified_delta.hpp"

namespace attest::gpu_oracle {

bool delta_rule(const CertifiedDelta& input, CertifiedRows& rows);

}  // namespace attest::gpu_oracle
