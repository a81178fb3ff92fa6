#include "gpu_checks/battery/battery.hpp"

#include <fnmatch.h>

#include <chrono>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "reference/forms/certify.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

Index BatteryContext::at_most(Index tokens) const {
  return std::min(tokens, nearest_within(kernel.limits, "t", tokens));
}

Index BatteryContext::chunk() const {
  constexpr Index widest = 512, stand_ins[] = {16, 4, 1};
  const auto fits = [&](Index c) { return c <= widest && at_most(4 * c) == 4 * c; };
  if (kernel.how.form == Form::chunk && fits(kernel.how.chunk)) return kernel.how.chunk;
  return *std::find_if(std::begin(stand_ins), std::end(stand_ins) - 1, fits);
}

const std::vector<BatteryCheck>& battery_checks() {
  static const std::vector<BatteryCheck> list = {
      shapes_check,  lattice_check,   gradient_check,    paths_check,        split_check,
      packing_check, causality_check, permutation_check, repetition_check,   containment_check,
      powers_check,  gates_check,     value_check,       combinations_check, width_check};
  return list;
}

bool is_asked_for(const BatteryCheck& check, std::string_view glob) {
  return glob.empty() || fnmatch(std::string(glob).c_str(), check.name, 0) == 0;
}

void refuse_unknown_check(std::string_view glob) {
  for (const BatteryCheck& check : battery_checks())
    if (is_asked_for(check, glob)) return;
  std::string names;
  for (const BatteryCheck& check : battery_checks())
    names += (names.empty() ? "" : " ") + std::string(check.name);
  throw BadInput("--check " + in_quotes(glob) + ": no such check, expected a glob of: " + names +
                 " (attest list --checks says what they do)");
}

namespace {

void run_one(const BatteryContext& context, bool spared, BatteryEntry& entry) {
  const auto start = std::chrono::steady_clock::now();
  const Spent before = spent_on_this_thread();
  spent_on_this_thread().ran_with = 0;
  std::string why = no_small_case(context.kernel.limits);
  if (why.empty()) why = entry.check->cannot_run(context);
  if (!why.empty())
    entry.outcome.reason = why;
  else if (spared)
    entry.outcome.reason = "not asked: another check has failed";
  else
    entry.outcome = entry.check->run(context);
  entry.nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  entry.kernel_nanoseconds = spent_on_this_thread().kernel_ns - before.kernel_ns;
  entry.oracle_nanoseconds = spent_on_this_thread().oracle_ns - before.oracle_ns;
  entry.ran_with = spent_on_this_thread().ran_with;
}

}  // namespace

std::vector<BatteryEntry> run_battery(const BatteryContext& context, std::string_view glob, int threads,
                                      const std::function<void()>& done) {
  refuse_unknown_check(glob);
  std::vector<BatteryEntry> entries;
  for (const BatteryCheck& check : battery_checks())
    if (is_asked_for(check, glob)) entries.push_back({&check, {}, 0});
  std::vector<BatteryEntry*> order;  // the longest first
  for (const bool expensive : {true, false})
    for (BatteryEntry& entry : entries)
      if (entry.check->expensive == expensive) order.push_back(&entry);
  for_each_parallel(static_cast<Index>(order.size()), threads, [&](Index i) {
    run_one(context, false, *order[static_cast<std::size_t>(i)]);
    if (done) done();
  });
  return entries;
}

std::vector<BatteryEntry> run_battery_on_a_mutant(const BatteryContext& context, std::string_view glob) {
  refuse_unknown_check(glob);
  std::vector<BatteryEntry> entries;
  for (const BatteryCheck& check : battery_checks()) {
    const bool spared = check.expensive && worst_verdict(entries) == Verdict::fail;
    BatteryEntry& entry = entries.emplace_back(BatteryEntry{&check, {}, 0});
    if (is_asked_for(check, glob))
      run_one(context, spared, entry);
    else
      entry.outcome.reason = "not asked for";
  }
  return entries;
}

bool decided_nothing(const BatteryEntry& entry) {
  const CheckOutcome& outcome = entry.outcome;
  return outcome.inputs == 0 && outcome.undecided > 0 && outcome.verdict != Verdict::fail;
}

Verdict worst_verdict(const std::vector<BatteryEntry>& entries) {
  // A bound without power does not lower what exact inputs decided. An exact check that could be asked and decided nothing
  // does: what the kernel announces was not looked at.
  bool passed = false, undecided = false, lacking = false;
  Verdict worst = Verdict::not_run;
  for (const BatteryEntry& entry : entries) {
    const Verdict verdict = entry.outcome.verdict;
    if (verdict == Verdict::fail || verdict == Verdict::suspect) worst = worse(worst, verdict);
    passed = passed || verdict == Verdict::pass;
    undecided = undecided || verdict == Verdict::undecided;
    lacking = lacking || (decided_nothing(entry) && std::string_view(entry.check->rule) != "bound");
  }
  if (worst != Verdict::not_run) return worst;
  if (passed) return lacking ? Verdict::undecided : Verdict::pass;
  return undecided ? Verdict::undecided : Verdict::not_run;
}

}  // namespace attest
