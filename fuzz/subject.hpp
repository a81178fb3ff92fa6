// Kernels to hunt with: registered, behind a door, or mutants ("mutant.hla2.*"), and how to get each of them as it was
// before its first call: what it keeps between calls is part of the failures that it may have.
#pragma once
#include <functional>

#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/kernel.hpp"

namespace attest {

struct Subject {
  Kernel kernel;
  std::function<Kernel()> fresh;
  bool pure = false;         // registered: nothing is kept between calls, and calls at once are allowed
  bool fresh_costs = false;  // a process has to be started
};

// Those whose name and operator match; the kernels of the doors must have been adopted (kernel.hpp).
std::vector<Subject> find_subjects(std::string_view name_glob, std::string_view operator_glob,
                                   const DoorOptions& doors);

}  // namespace attest
