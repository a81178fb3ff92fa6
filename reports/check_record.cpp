#include "reports/check_record.hpp"

#include <cmath>

#include "gpu_checks/battery/coverage.hpp"
#include "gpu_checks/replay.hpp"

namespace attest {

namespace {

WorstElement to_record(const CheckedElement& element, const std::string& replay) {
  return {"o",
          {element.batch, element.token, element.head, element.column},
          element.expected,
          element.got,
          element.bound,
          element.ratio,
          replay};
}

Check value_check(const Checked& checked, const std::string& replay) {
  Check check;
  check.name = "value", check.verdict = checked.verdict, check.rule = Rule::bound,
  check.reason = checked.reason;
  check.compared = checked.judgement.compared, check.violations = checked.judgement.violations;
  if (!checked.worst.empty()) check.worst = to_record(checked.worst.front(), replay);
  check.replay = replay;
  return check;
}

}  // namespace

CaseRecord to_record(const Checked& checked, const std::string& program) {
  const Kernel& kernel = *checked.kernel;
  const std::string replay = replay_line(kernel, checked.input, program);
  CaseRecord record;
  record.case_line = to_text(checked.input);
  record.kernel = {kernel.name,    kernel.door, kernel.op,
                   kernel.variant, kernel.form, to_text(kernel.contract),
                   kernel.sha256};
  record.verdict = checked.verdict, record.reason = checked.reason;
  record.tokens = checked.tokens;
  if (!checked.oracle_method.empty())
    record.oracle =
        Oracle{checked.oracle_method, checked.oracle_bits,
               checked.bounded ? std::optional(checked.judgement.radius_over_bound) : std::nullopt};
  record.time = Times{checked.kernel_ns, checked.oracle_ns, checked.total_ns};
  if (checked.verdict == Verdict::not_run) return record;
  record.checks = {value_check(checked, replay)};
  if (!checked.norm) return record;  // no finite value to compare with
  const Grade& grade = checked.judgement.grade;
  TensorError& error = record.error["o"];
  error.ratio = grade.ratio, error.ulp = grade.ulp, error.power = grade.power;
  error.norm = checked.norm, error.bounded = checked.bounded;
  for (const PositionError& p : checked.positions)
    record.curve.push_back({"o", p.position, p.ratio, p.error, p.bound});
  record.magnitude = checked.magnitude;
  for (const CheckedElement& element : checked.worst) record.worst.push_back(to_record(element, replay));
  if (checked.plain) record.plain["o"] = {checked.plain->ratio, checked.plain->ulp, checked.bounded};
  record.stages = checked.stages;
  if (checked.whereabouts)
    record.locate = Locate{checked.whereabouts->tokens, checked.whereabouts->chunk_position,
                           checked.whereabouts->heads, "", checked.whereabouts->columns};
  return record;
}

std::string in_words(const Locate& where) {
  std::string text;
  const auto add = [&](const char* name, const std::string& what) {
    if (!what.empty()) text += (text.empty() ? "" : ", ") + std::string(name) + ' ' + what;
  };
  add("tokens", where.tokens), add("position in the chunk", where.chunk_position);
  add("head", where.heads), add("level", where.levels), add("column", where.columns);
  return text;
}

CaseRecord to_record(const BatteryContext& context, const std::vector<BatteryEntry>& entries,
                     const std::string& program) {
  const Kernel& kernel = context.kernel;
  const std::string effort = context.effort == Effort::quick ? "quick" : "full",
                    seed = std::to_string(context.seed);
  CaseRecord record;
  record.case_line = kernel.op + " variant=" + kernel.variant + " battery=" + effort + " seed=" + seed;
  record.kernel = {kernel.name,    kernel.door, kernel.op,
                   kernel.variant, kernel.form, to_text(kernel.contract),
                   kernel.sha256};
  record.verdict = worst_verdict(entries);
  Times time;
  for (const BatteryEntry& entry : entries) {
    const CheckOutcome& outcome = entry.outcome;
    time.total_ns += entry.nanoseconds - entry.oracle_nanoseconds;
    time.kernel_ns += entry.kernel_nanoseconds, time.oracle_ns += entry.oracle_nanoseconds;
    Check check;
    check.name = entry.check->name, check.verdict = outcome.verdict, check.reason = outcome.reason;
    const std::string_view rule = entry.check->rule;
    check.rule = rule == "bound" ? Rule::bound : rule == "bitwise" ? Rule::bitwise : Rule::structural;
    check.compared = outcome.compared, check.violations = outcome.violations;
    check.inputs = outcome.inputs, check.time_ns = entry.nanoseconds;
    if (outcome.undecided > 0) check.undecided = outcome.undecided;
    check.replay =
        replay_start(kernel, program) + " --" + effort + " --check " + check.name + " --seed " + seed;
    if (outcome.worst) {
      const Difference& worst = *outcome.worst;
      const double error = std::abs(worst.got - worst.expected);
      check.worst = WorstElement{
          worst.tensor, {worst.index.begin(), worst.index.end()},         worst.expected, worst.got,
          worst.bound,  worst.bound > 0 ? error / worst.bound : INFINITY, check.replay};
    }
    const bool lowers =
        record.verdict == Verdict::undecided && check.rule != Rule::bound && decided_nothing(entry);
    if ((outcome.verdict == record.verdict || lowers) && record.reason.empty() &&
        record.verdict != Verdict::pass)
      record.reason = check.name + ": " + outcome.reason;
    if (outcome.verdict == Verdict::fail && !record.locate)
      record.locate = Locate{outcome.places.tokens, outcome.places.chunk_position, outcome.places.heads,
                             outcome.places.levels, outcome.places.columns};
    record.checks.push_back(std::move(check));
  }
  record.time = time;
  if (record.verdict != Verdict::pass) return record;
  if (lacks_what_defines_it(context, entries)) record.verdict = Verdict::undecided;
  if (const std::string rest = never_run_with(context, entries); !rest.empty())
    record.reason = "never run with " + rest;
  return record;
}

}  // namespace attest
