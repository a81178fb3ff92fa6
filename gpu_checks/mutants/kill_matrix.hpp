// The kill matrix: mutants by checks, and what the usual rules say of the same outputs. A rule is asked about o of every
// call that the battery compares with the oracle or with an exact value, and, apart, about the one ordinary input that a
// user would draw (gaussian, published gates).
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "gpu_checks/mutants/usual_rules.hpp"

namespace attest {

struct RuleVerdicts {
  std::array<bool, usual_rules.size()> everywhere{true, true, true, true, true};  // accepted on all inputs
  std::array<bool, usual_rules.size()> ordinary{true, true, true, true,
                                                true};  // accepted on the ordinary one
};

struct MatrixRow {
  const Mutant* mutant;
  std::vector<BatteryEntry> entries;
  RuleVerdicts rules;
  bool killed() const { return worst_verdict(entries) == Verdict::fail; }
};

struct KillMatrix {
  std::vector<MatrixRow> rows;
  Effort effort = Effort::quick;
  std::uint64_t seed = 0;
};

// Those whose name, with "mutant." before it or without, matches the glob (empty: all).
std::vector<const Mutant*> find_mutants(std::string_view glob);

// Of these mutants, or those that the glob finds, `threads` at a time; progress(done, total) after each. By the checks that
// match the glob (empty: all).
KillMatrix kill_matrix(const std::vector<const Mutant*>& chosen, Effort effort, std::uint64_t seed,
                       int threads, const std::function<void(Index, Index)>& progress = {},
                       std::string_view check = "");
KillMatrix kill_matrix(std::string_view glob, Effort effort, std::uint64_t seed, int threads,
                       const std::function<void(Index, Index)>& progress = {});

// What the usual rules say of one kernel on the battery's inputs.
RuleVerdicts usual_verdicts(const BatteryContext& context);

std::string matrix_text(const KillMatrix& matrix);      // a table for a terminal, with totals and survivors
std::string matrix_markdown(const KillMatrix& matrix);  // the same as a page

}  // namespace attest
