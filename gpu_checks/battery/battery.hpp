// The battery: checks of a kernel beside one another, each in its own file, each with the law it uses. A kernel is a
// black box (Kernel::run); what a check asks of it follows from the operator's declaration and from the features and
// the contract that the kernel announces. Inputs derive from a seed: the same seed asks the same questions.
//   exact checks use lattice inputs (lattice.hpp), on which every correct kernel of the contract gives the same bits;
//   bounded ones the error model of the contract; structural ones compare a kernel with itself.
// A check that cannot run says why, and one that decided nothing does not pass.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_checks/battery/findings.hpp"
#include "reference/forms/operator.hpp"

namespace attest {

enum class Effort { quick, full };

struct BatteryContext {
  const Kernel& kernel;
  const Operator& op;
  std::uint64_t seed = 0;
  Effort effort = Effort::quick;

  const Declaration& declaration() const { return op.declaration(); }
  bool has(std::string_view feature) const { return has_feature(kernel, feature); }
  // Width of the kernel's chunks, or one that stands in for it where the kernel has none, or where a few of its chunks are
  // more tokens than it takes or than a check can ask for.
  Index chunk() const;
  // So many tokens, or the most that the kernel takes.
  Index at_most(Index tokens) const;
  // quick or full many.
  Index many(Index quick, Index full) const { return effort == Effort::quick ? quick : full; }
};

struct BatteryCheck {
  const char* name;
  const char* rule;      // "bitwise", "bound" or "structural"
  const char* law;       // in one line
  const char* families;  // of mutants that it must kill (gpu_checks/mutants), "3 5"
  bool expensive;        // seconds: a mutant that a cheaper check rejected is not asked again
  std::string (*cannot_run)(const BatteryContext&);
  CheckOutcome (*run)(const BatteryContext&);
};

const std::vector<BatteryCheck>& battery_checks();
bool is_asked_for(const BatteryCheck& check, std::string_view glob);  // empty: all
// BadInput, with the names there are, where no check matches.
void refuse_unknown_check(std::string_view glob);

struct BatteryEntry {
  const BatteryCheck* check;
  CheckOutcome outcome;
  std::int64_t nanoseconds = 0;  // all of it, of which in the kernel and in the oracle:
  std::int64_t kernel_nanoseconds = 0, oracle_nanoseconds = 0;
  unsigned ran_with = 0;  // the kernel, beyond the defaults (coverage.hpp)
};
// All checks whose name matches the glob (empty: all), in their order, `threads` of them at once; `done` is called after
// each, on its thread. BadInput if no check has such a name.
std::vector<BatteryEntry> run_battery(const BatteryContext& context, std::string_view glob = "",
                                      int threads = 1, const std::function<void()>& done = {});
// An entry for every check, of which those that the glob does not match are NOT RUN; an expensive one is left out once another
// has failed.
std::vector<BatteryEntry> run_battery_on_a_mutant(const BatteryContext& context, std::string_view glob = "");
// It could be asked and did not answer: every input was left out.
bool decided_nothing(const BatteryEntry& entry);
Verdict worst_verdict(const std::vector<BatteryEntry>& entries);

}  // namespace attest
