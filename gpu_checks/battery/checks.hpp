// The checks of the battery, one file each.
#pragma once
#include "gpu_checks/battery/battery.hpp"

namespace attest {

extern const BatteryCheck value_check, lattice_check, paths_check, causality_check, split_check,
    packing_check, permutation_check, repetition_check, containment_check, powers_check, gates_check,
    shapes_check, combinations_check, width_check, gradient_check;

}  // namespace attest
