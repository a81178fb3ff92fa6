#include "fuzz/subject.hpp"

#include <fnmatch.h>

#include "gpu_checks/adapters/devices.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "gpu_checks/mutants/production.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

bool matches(std::string_view glob, const std::string& text) {
  return glob.empty() || fnmatch(std::string(glob).c_str(), text.c_str(), 0) == 0;
}

Subject of_door(const Kernel& kernel, const DoorOptions& doors) {
  const auto reopen = [doors, name = kernel.name]() -> Kernel {
    DoorOptions one = doors;  // the worker alone that this thread has
    one.workers = 1;
    if (!doors.devices.empty()) one.devices = {doors.devices[number_of_thread() % doors.devices.size()]};
    for (Kernel& again : open_doors(one))
      if (again.name == name) return std::move(again);
    throw BadInput("kernel " + in_quotes(name) + ": its door does not announce it again");
  };
  return {kernel, reopen, false, true};
}

Subject of_mutant(const Mutant& mutant) {
  const auto make = [op = &operator_named(mutant.kernel.op, mutant.kernel.variant), edit = mutant.info->edit,
                     bf16 = mutant.kernel.name.ends_with(".bf16")] {
    return production_kernel(*op, edit, bf16);
  };
  return {make(), make, false, false};
}

}  // namespace

std::vector<Subject> find_subjects(std::string_view name_glob, std::string_view operator_glob,
                                   const DoorOptions& doors) {
  std::vector<Subject> list;
  for (const Kernel* kernel : find_kernels(name_glob, operator_glob))
    if (kernel->source.empty())
      list.push_back({*kernel, [kernel] { return *kernel; }, true, false});
    else
      list.push_back(of_door(*kernel, doors));
  if (!name_glob.starts_with("mutant.")) return list;
  for (const Mutant& mutant : mutants())
    if (matches(name_glob, mutant.kernel.name) && matches(operator_glob, mutant.kernel.op))
      list.push_back(of_mutant(mutant));
  return list;
}

}  // namespace attest
