// Laws of single calls that more than one caller asks about: the battery on inputs of its own, the hunter (fuzz/) on
// those that it has found.
#pragma once
#include "gpu_checks/battery/call.hpp"

namespace attest {

// Every output that depends on a NaN or an infinity among the inputs has to be non-finite; a wider spread is a fault where
// nan_contained is declared.
void judge_containment(const BatteryContext& context, const Problem& problem, Findings& findings);

// call(), and the inputs compared with a copy: a kernel that changes them is at fault.
std::optional<Tensors> watched_call(const BatteryContext& context, Problem& problem, Findings& findings);

}  // namespace attest
