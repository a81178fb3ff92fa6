// The inputs of the check width by themselves, for what makes a failure of it small.
#pragma once
#include <optional>
#include <vector>

#include "gpu_checks/battery/battery.hpp"

namespace attest {

struct WideInput {
  Case shape;
  Problem problem;
  std::optional<Index> cut;  // also asked from this token on, given the exact state before it
};
// Those that there are for the context's kernel and seed.
std::vector<WideInput> wide_inputs(const BatteryContext& context);

}  // namespace attest
