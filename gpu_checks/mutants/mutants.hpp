// The zoo: kernels that are wrong in one place each, and what is wrong. The battery must fail every one of them and
// pass the kernels that they are made from (Edit::none).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "gpu_checks/kernel.hpp"
#include "gpu_checks/mutants/edit.hpp"

namespace attest {

struct EditInfo {
  Edit edit;
  const char* name;
  int family;             // 1..13 of the list of real faults
  const char* operators;  // globs separated by spaces; "*": all six
  const char* wrong;      // in a few words
};

struct Mutant {
  Kernel kernel;
  const EditInfo* info;
};

const std::vector<EditInfo>& edits();
std::string_view edit_name(Edit edit);
// Names of the operators that have a production kernel.
const std::vector<std::string>& production_operators();
// All mutants; the unedited kernels, fp32 and bf16.
const std::vector<Mutant>& mutants();
std::vector<Kernel> unedited_kernels();

// Why the mutant computes what the unedited kernel does; empty: it does not. Equivalent mutants are run like the others
// and counted apart.
std::string equivalent_because(const Mutant& mutant);

// Families without members here, and why.
struct MissingFamily {
  int family;
  const char* why;
};
const std::vector<MissingFamily>& missing_families();

}  // namespace attest
