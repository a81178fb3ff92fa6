// What a pass does not say: the optional fields and options that a kernel was never run with in the whole battery,
// because it refused them or did not announce them.
#pragma once
#include "gpu_checks/battery/battery.hpp"

namespace attest {

// A bit for each of gates, linear gates, decay, ridge, scale, normalisation and initial state that the problem has beyond
// its default.
unsigned beyond_defaults(const Problem& problem);

// "decay other than 1 (the kernel takes no decay), an initial state": what the operator has and no check's kernel was run
// with. Empty where nothing is missing, and of a part of the battery.
std::string never_run_with(const BatteryContext& context, const std::vector<BatteryEntry>& entries);
// Without a decay other than 1 the operator is another one: nothing of what defines it was asked.
bool lacks_what_defines_it(const BatteryContext& context, const std::vector<BatteryEntry>& entries);

}  // namespace attest
