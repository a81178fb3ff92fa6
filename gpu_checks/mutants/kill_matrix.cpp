#include "gpu_checks/mutants/kill_matrix.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/mutants/production.hpp"
#include "reference/cases/random.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// The call a user would make to try a kernel.
void ordinary_call(const BatteryContext& context) {
  Case shape;
  shape.tokens = 4 * context.chunk(), shape.key_dim = shape.value_dim = 16, shape.heads = 2, shape.batch = 1;
  shape.seed = context.seed;
  Findings findings(context.kernel);
  findings.input("ordinary");
  Problem problem = drawn(context, shape);
  judge_call(context, problem, false, findings);
  if (!context.has("backward")) return;
  Random random(context.seed, "cotangent");
  Tensor& cotangent = problem.fields["do"];
  cotangent.shape = {problem.batch, problem.tokens, problem.heads, problem.value_dim};
  for (Index i = element_count(cotangent.shape); i > 0; --i) cotangent.data.push_back(random.gaussian());
  problem = round_inputs(context.kernel.contract, problem);
  Memory memory;
  const Tensors right = production_gradients({&context.op}, problem, memory);
  if (const auto outputs = call(context, problem, findings)) findings.exact(problem, *outputs, right);
}

// What the usual rules are asked about: the output, and the gradients of a kernel that has them.
bool ruled(const std::string& tensor) { return !tensor.starts_with("final_state."); }

// The name as the matrix prints it: without "mutant.".
std::string short_name(const std::string& name) { return name.substr(name.find('.') + 1); }
std::string name_of(const MatrixRow& row) { return short_name(row.mutant->kernel.name); }

// Either name.
bool matches(std::string_view glob, const std::string& name) {
  const auto fits = [&](const std::string& text) {
    return fnmatch(std::string(glob).c_str(), text.c_str(), 0) == 0;
  };
  return glob.empty() || fits(name) || fits(short_name(name));
}

char mark(const BatteryEntry& entry) {
  switch (entry.outcome.verdict) {
    case Verdict::fail:
      return 'X';
    case Verdict::suspect:
      return '?';
    case Verdict::undecided:
      return 'u';
    case Verdict::not_run:
      return ' ';
    default:
      return '.';
  }
}

// By key, how many of how many are killed.
struct Tally {
  Index killed = 0, all = 0;
  void count(bool kill) { killed += kill, ++all; }
};

struct Totals {
  Tally all;  // equivalent mutants are not in any tally
  Index equivalent = 0;
  std::map<int, Tally> families;
  std::map<std::string, Tally> operators;
  std::map<std::string, Index> checks, alone;  // mutants that a check kills; that no other check kills
  std::array<Index, usual_rules.size()> accepted_everywhere{}, accepted_ordinary{};
  std::set<std::string> edits;
};

Totals totals_of(const KillMatrix& matrix) {
  Totals totals;
  for (const MatrixRow& row : matrix.rows) {
    if (!row.killed() && !equivalent_because(*row.mutant).empty()) {
      ++totals.equivalent;
      continue;
    }
    totals.all.count(row.killed());
    totals.families[row.mutant->info->family].count(row.killed());
    totals.operators[row.mutant->kernel.op].count(row.killed());
    totals.edits.insert(row.mutant->info->name);
    std::vector<std::string> killers;
    for (const BatteryEntry& entry : row.entries)
      if (entry.outcome.verdict == Verdict::fail) killers.push_back(entry.check->name);
    for (const std::string& name : killers) ++totals.checks[name];
    if (killers.size() == 1) ++totals.alone[killers[0]];
    for (std::size_t r = 0; r < usual_rules.size(); ++r) {
      totals.accepted_everywhere[r] += row.rules.everywhere[r];
      totals.accepted_ordinary[r] += row.rules.ordinary[r];
    }
  }
  return totals;
}

std::string percent(Index part, Index whole) {
  return whole == 0 ? "-"
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

RuleVerdicts usual_verdicts(const BatteryContext& context) {
  RuleVerdicts verdicts;
  const ObserveComparisons observe([&](const std::string& input, const std::string& tensor,
                                       const std::vector<double>& got, const std::vector<double>& expected) {
    if (!ruled(tensor)) return;
    auto& target = input == "ordinary" ? verdicts.ordinary : verdicts.everywhere;
    const auto accepted = accepted_by(got, expected, context.kernel.contract.output);
    for (std::size_t r = 0; r < accepted.size(); ++r) target[r] = target[r] && accepted[r];
  });
  ordinary_call(context);
  return verdicts;
}

std::vector<const Mutant*> find_mutants(std::string_view glob) {
  std::vector<const Mutant*> found;
  for (const Mutant& mutant : mutants())
    if (matches(glob, mutant.kernel.name)) found.push_back(&mutant);
  return found;
}

KillMatrix kill_matrix(std::string_view glob, Effort effort, std::uint64_t seed, int threads,
                       const std::function<void(Index, Index)>& progress) {
  return kill_matrix(find_mutants(glob), effort, seed, threads, progress);
}

KillMatrix kill_matrix(const std::vector<const Mutant*>& chosen, Effort effort, std::uint64_t seed,
                       int threads, const std::function<void(Index, Index)>& progress,
                       std::string_view check) {
  KillMatrix matrix{std::vector<MatrixRow>(chosen.size()), effort, seed};
  std::mutex guard;
  Index done = 0;
  for_each_parallel(static_cast<Index>(chosen.size()), threads, [&](Index i) {
    const Kernel& kernel = chosen[static_cast<std::size_t>(i)]->kernel;
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), seed, effort};
    MatrixRow row{chosen[static_cast<std::size_t>(i)], {}, usual_verdicts(context)};
    {
      const ObserveComparisons observe([&](const std::string&, const std::string& tensor,
                                           const std::vector<double>& got,
                                           const std::vector<double>& expected) {
        if (!ruled(tensor)) return;
        const auto accepted = accepted_by(got, expected, kernel.contract.output);
        for (std::size_t r = 0; r < accepted.size(); ++r)
          row.rules.everywhere[r] = row.rules.everywhere[r] && accepted[r];
      });
      row.entries = run_battery_on_a_mutant(context, check);
    }
    const std::lock_guard lock(guard);
    matrix.rows[static_cast<std::size_t>(i)] = std::move(row);
    if (progress) progress(++done, static_cast<Index>(chosen.size()));
  });
  return matrix;
}

std::string matrix_text(const KillMatrix& matrix) {
  const Totals totals = totals_of(matrix);
  std::string text;
  text += fmt::format("{:<48} {}\n", "mutant (X: killed by)", "checks");
  for (const MatrixRow& row : matrix.rows) {
    std::string marks;
    for (const BatteryEntry& entry : row.entries) marks += mark(entry);
    const std::string equivalent = equivalent_because(*row.mutant);
    const std::string note = row.killed()         ? ""
                             : equivalent.empty() ? "SURVIVES: " + std::string(row.mutant->info->wrong)
                                                  : "equivalent: " + equivalent;
    text += fmt::format("{:<48} {}  {}\n", name_of(row), marks, note);
  }
  text += "\nchecks from left to right, mutants killed, killed by it alone\n";
  for (const BatteryCheck& check : battery_checks()) {
    const auto at = [&](const std::map<std::string, Index>& map) {
      return map.contains(check.name) ? map.at(check.name) : 0;
    };
    text += fmt::format("  {:<14}{:>6}{:>6}\n", check.name, at(totals.checks), at(totals.alone));
  }
  text += "\nfamily, killed, of\n";
  for (const auto& [family, tally] : totals.families)
    text += fmt::format("  {:<14}{:>6}{:>6}\n", family, tally.killed, tally.all);
  text += "\noperator, killed, of\n";
  for (const auto& [op, tally] : totals.operators)
    text += fmt::format("  {:<24}{:>6}{:>6}\n", op, tally.killed, tally.all);
  text += "\nrule, mutants accepted: on an ordinary input, on every input of the battery\n";
  for (std::size_t r = 0; r < usual_rules.size(); ++r)
    text += fmt::format("  {:<22}{:>6}{:>6}\n", usual_rules[r], totals.accepted_ordinary[r],
                        totals.accepted_everywhere[r]);
  text += fmt::format("\nkilled {} of {} ({}), {} equivalent, {} distinct edits, {} effort, seed {}\n",
                      totals.all.killed, totals.all.all, percent(totals.all.killed, totals.all.all),
                      totals.equivalent, totals.edits.size(),
                      matrix.effort == Effort::quick ? "quick" : "full", matrix.seed);
  return text;
}

std::string matrix_markdown(const KillMatrix& matrix) {
  const Totals totals = totals_of(matrix);
  std::string text = fmt::format(
      "# Kill matrix\n\n{} mutants of {} operators, {} distinct edits; {} killed ({}) by the {} battery, "
      "seed {}.\n",
      totals.all.all, totals.operators.size(), totals.edits.size(), totals.all.killed,
      percent(totals.all.killed, totals.all.all), matrix.effort == Effort::quick ? "quick" : "full",
      matrix.seed);
  text +=
      "X: the check fails the mutant. ?: suspect. u: undecided. Blank: not run or not asked. Rules: A where "
      "a rule accepts the "
      "mutant on all of these inputs, a where it accepts it on an ordinary input alone (gaussian, published "
      "gates).\n";
  for (const MatrixRow& row : matrix.rows)
    if (!row.killed() && !equivalent_because(*row.mutant).empty())
      text += fmt::format("\n{} is equivalent to the right kernel: {}.\n", name_of(row),
                          equivalent_because(*row.mutant));
  for (const MissingFamily& missing : missing_families())
    text += fmt::format("\nFamily {}: {}.\n", missing.family, missing.why);
  text +=
      "\n| rule | accepts on an ordinary input | accepts on every input of the battery |\n| --- | ---: | "
      "---: |\n";
  for (std::size_t r = 0; r < usual_rules.size(); ++r)
    text += fmt::format("| {} | {} of {} | {} of {} |\n", usual_rules[r], totals.accepted_ordinary[r],
                        totals.all.all, totals.accepted_everywhere[r], totals.all.all);
  text += "\n| check | kills | alone |\n| --- | ---: | ---: |\n";
  for (const BatteryCheck& check : battery_checks()) {
    const auto at = [&](const std::map<std::string, Index>& map) {
      return map.contains(check.name) ? map.at(check.name) : 0;
    };
    text += fmt::format("| {} | {} | {} |\n", check.name, at(totals.checks), at(totals.alone));
  }
  text += "\n| family | killed | of |\n| --- | ---: | ---: |\n";
  for (const auto& [family, tally] : totals.families)
    text += fmt::format("| {} | {} | {} |\n", family, tally.killed, tally.all);
  text += "\n| operator | killed | of |\n| --- | ---: | ---: |\n";
  for (const auto& [op, tally] : totals.operators)
    text += fmt::format("| {} | {} | {} |\n", op, tally.killed, tally.all);
  text += "\n| mutant | family | what is wrong |";
  for (const BatteryCheck& check : battery_checks()) text += fmt::format(" {} |", check.name);
  for (const char* rule : usual_rules) text += fmt::format(" {} |", rule);
  text += "\n| --- | ---: | --- |";
  for (std::size_t i = 0; i < battery_checks().size() + usual_rules.size(); ++i) text += " :-: |";
  text += '\n';
  for (const MatrixRow& row : matrix.rows) {
    text += fmt::format("| {} | {} | {} |", name_of(row), row.mutant->info->family, row.mutant->info->wrong);
    for (const BatteryEntry& entry : row.entries) text += fmt::format(" {} |", mark(entry));
    for (std::size_t r = 0; r < usual_rules.size(); ++r)
      text += fmt::format(" {} |", row.rules.everywhere[r] ? "A" : row.rules.ordinary[r] ? "a" : " ");
    text += '\n';
  }
  return text;
}

}  // namespace attest
