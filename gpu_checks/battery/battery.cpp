#include "gpu_checks/battery/battery.hpp"

#include <fnmatch.h>

#include <chrono>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "reference/forms/certify.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

const std::vector<BatteryCheck>& battery_checks() {
  static const std::vector<BatteryCheck> list = {
      shapes_check,  lattice_check,   gradient_check,    paths_check,        split_check,
      packing_check, causality_check, permutation_check, repetition_check,   containment_check,
      powers_check,  gates_check,     value_check,       combinations_check, width_check};
  return list;
}

void refuse_unknown_check(std::string_view glob) {
  for (const BatteryCheck& check : battery_checks())
    if (glob.empty() || fnmatch(std::string(glob).c_str(), check.name, 0) == 0) return;
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
  const std::string why = entry.check->cannot_run(context);
  if (!why.empty())
    entry.outcome.reason = why;
  else if (spared)
    entry.outcome.reason = "not asked: another check has failed";
  else
    entry.outcome = entry.check->run(context);
  entry.nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  entry.kernel_nanoseconds = spent_on_this_thread().kernel_ns - before.kernel_ns;
  entry.oracle_nanoseconds = spent_on_this_thread().oracle_ns - before.oracle_ns;
}

}  // namespace

std::vector<BatteryEntry> run_battery(const BatteryContext& context, std::string_view glob, int threads) {
  refuse_unknown_check(glob);
  std::vector<BatteryEntry> entries;
  for (const BatteryCheck& check : battery_checks())
    if (glob.empty() || fnmatch(std::string(glob).c_str(), check.name, 0) == 0)
      entries.push_back({&check, {}, 0});
  std::vector<BatteryEntry*> order;  // the longest first
  for (const bool expensive : {true, false})
    for (BatteryEntry& entry : entries)
      if (entry.check->expensive == expensive) order.push_back(&entry);
  for_each_parallel(static_cast<Index>(order.size()), threads,
                    [&](Index i) { run_one(context, false, *order[static_cast<std::size_t>(i)]); });
  return entries;
}

std::vector<BatteryEntry> run_battery_on_a_mutant(const BatteryContext& context) {
  std::vector<BatteryEntry> entries;
  for (const BatteryCheck& check : battery_checks()) {
    const bool spared = check.expensive && worst_verdict(entries) == Verdict::fail;
    run_one(context, spared, entries.emplace_back(BatteryEntry{&check, {}, 0}));
  }
  return entries;
}

Verdict worst_verdict(const std::vector<BatteryEntry>& entries) {
  // A check that could decide nothing does not lower what the others decided, but it is no pass by itself.
  Verdict verdict = Verdict::not_run;
  bool passed = false;
  for (const BatteryEntry& entry : entries) {
    if (entry.outcome.verdict == Verdict::undecided) {
      if (verdict == Verdict::not_run) verdict = Verdict::undecided;
      continue;
    }
    passed = passed || entry.outcome.verdict == Verdict::pass;
    if (entry.outcome.verdict == Verdict::fail || entry.outcome.verdict == Verdict::suspect)
      verdict = verdict == Verdict::undecided ? entry.outcome.verdict : worse(verdict, entry.outcome.verdict);
  }
  if (passed && (verdict == Verdict::not_run || verdict == Verdict::undecided)) verdict = Verdict::pass;
  return verdict;
}

}  // namespace attest
