#include "gpu_checks/judging/judge_kernel.hpp"

#include <chrono>
#include <cmath>

#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/judged_rows.hpp"
#include "gpu_checks/judging/bound.hpp"
#include "gpu_checks/judging/compared.hpp"
#include "reference/cases/random.hpp"
#include "reference/cases/recipe.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double largest_radius_over_bound = power_of_two(-10);  // as judge() asks

std::int64_t since(Clock::time_point start) { return std::chrono::nanoseconds(Clock::now() - start).count(); }

bool independent(const Case& input, const Contract& contract) {
  return input.drawn() && find_recipe(input.recipe)->independent &&
         find_gate_recipe(input.gates)->independent && !contract.truncates;
}

constexpr const char* raw_keys =
    "; the keys are no unit vectors, so that the state may grow with every token: --unit-keys divides q and "
    "k by their "
    "l2 norm";

// Whether a delta rule reads a key that is clearly longer than a unit vector, beyond what rounding one can make of it.
bool long_keys(const Problem& problem, const Declaration& declaration) {
  const Tensor* keys = problem.field("k");
  if (!needs_unit_keys(declaration) || !keys) return false;
  const auto width = static_cast<std::size_t>(problem.key_dim);
  for (std::size_t row = 0; width > 0 && row + width <= keys->data.size(); row += width) {
    double squares = 0;
    for (std::size_t c = row; c < row + width; ++c) squares += keys->data[c] * keys->data[c];
    if (squares > 1.25) return true;
  }
  return false;
}

Checked judge_once(const Kernel& kernel, const Operator& op, const Case& input, SharedOracle& oracle,
                   Index tokens, PlainCache& plain) {
  auto start = Clock::now();
  Checked result;
  result.kernel = &kernel, result.input = input, result.tokens = tokens;
  if (result.input.tokens || tokens != oracle.problem.tokens) result.input.tokens = tokens;
  const Problem problem =
      tokens == oracle.problem.tokens ? oracle.problem : first_tokens(oracle.problem, tokens);
  const auto finish = [&](Verdict verdict, std::string reason) {
    result.verdict = verdict, result.reason = std::move(reason);
    result.total_ns += since(start);
    return result;
  };
  KernelResult run = kernel.run(problem);
  result.kernel_ns = run.nanoseconds;
  if (run.status == KernelStatus::unsupported) return finish(Verdict::not_run, run.message);
  if (run.status == KernelStatus::failed) return finish(Verdict::fail, run.message);
  const Tensor& o = run.outputs["o"];
  const std::vector<Index> shape{problem.batch, tokens, problem.heads, problem.value_dim};
  if (o.shape != shape || element_count(shape) != static_cast<Index>(o.data.size()))
    return finish(Verdict::fail, "the output o has another shape than [B, T, H, dv] of the inputs");

  const Rows rows(problem, [&](std::size_t slot, Index length) {
    return judged_rows(op.declaration(), {length, problem.key_dim, problem.value_dim}, kernel.how, input.seed,
                       slot);
  });
  result.judged = rows.all() ? std::nullopt : std::optional(rows.total());
  const Matrix<double> got = rows.gather(o.data, tokens);
  const ErrorModel model = model_of(op, kernel.how, kernel.contract, problem, rows, oracle.threads());
  if (got.size() == 0) return finish(Verdict::not_run, "no tokens, nothing to compare");
  const Judging how{independent(input, kernel.contract), got.size()};
  Truth truth;
  const std::vector<double>* judged_by = nullptr;
  Index judged_tokens = tokens;
  const auto judge_by = [&](const KeptOracle& (SharedOracle::*which)()) {
    result.total_ns += since(start);  // the oracle's time is counted apart
    const KeptOracle& kept = (oracle.*which)();
    start = Clock::now();
    result.oracle_method = kept.result.method, result.oracle_bits = kept.result.bits;
    result.oracle_ns += kept.nanoseconds;
    judged_by = &kept.result.tensors.at("o").value, judged_tokens = oracle.problem.tokens;
    truth = truth_of(kept, rows, oracle.problem.tokens);
    result.judgement = judge(got, truth.expected, model, kernel.contract, how);
  };
  const auto unresolved = [&] { return !(result.judgement.radius_over_bound <= largest_radius_over_bound); };
  const bool sums_in_double = kernel.contract.accumulate == fp64;
  if (oracle.has_rough() && !sums_in_double) judge_by(&SharedOracle::rough);
  if (!judged_by || unresolved()) judge_by(&SharedOracle::quick);
  if (unresolved() && &oracle.sharp() != &oracle.quick()) judge_by(&SharedOracle::sharp);
  result.bounded = !model.undecided;
  result.norm = relative_norm(got, truth.expected, rows);
  if (result.bounded)
    describe({got, truth.expected.high, truth.expected.low, model}, rows, problem, kernel.how, result),
        result.stages = mean_shares(model);
  else
    result.judgement.grade.ulp = ulps_of(got, truth.expected, kernel.contract.output);
  result.magnitude = cancellation_of(truth.magnitude, truth.expected.high);

  if (const Matrix<double>& plainly = plain_output(kernel, op, problem, rows, plain); plainly.size() > 0) {
    result.plain = judge(plainly, truth.expected, model, kernel.contract, how).grade;
    if (!result.bounded) result.plain->ulp = ulps_of(plainly, truth.expected, kernel.contract.output);
  }
  if (!rows.all()) {
    const Index rest = not_finite_among_all(o.data, *judged_by, problem, judged_tokens);
    if (rest > 0 && result.judgement.verdict != Verdict::fail) {
      result.judgement.verdict = Verdict::fail;
      result.judgement.reason = std::to_string(rest) + " values are not finite where the exact ones are";
    }
    if (!result.judgement.reason.empty()) result.judgement.reason += "; ";
    result.judgement.reason += judged_in_words(rows);
  }
  const bool raw = result.judgement.verdict == Verdict::undecided && long_keys(problem, op.declaration());
  std::string reason = result.judgement.reason;
  const std::string no_number = not_finite(got, truth.expected, rows), times = ", the worst inf times";
  if (const auto at = reason.find(times); at != reason.npos && !no_number.empty())
    reason.erase(at, times.size());
  return finish(result.judgement.verdict, reason + no_number + (raw ? raw_keys : ""));
}

// SUSPECT once more with fresh seeds.
void ask_again(const Kernel& kernel, const Operator& op, Checked& result) {
  if (result.verdict != Verdict::suspect || !result.input.drawn()) return;
  std::string seeds;
  for (const char* attempt : {"again/1", "again/2"}) {
    Case fresh = result.input;
    fresh.seed = Random(result.input.seed, attempt).bits();
    SharedOracle oracle(op, round_inputs(kernel.contract, draw_problem(fresh, op.declaration())), 1);
    PlainCache plain;
    const Checked second = judge_once(kernel, op, fresh, oracle, *fresh.tokens, plain);
    seeds += (seeds.empty() ? "" : " and ") + std::to_string(fresh.seed);
    if (second.verdict != Verdict::suspect && second.verdict != Verdict::fail) continue;
    result.verdict = Verdict::fail;
    result.reason += second.verdict == Verdict::fail ? "; FAIL" : "; SUSPECT again";
    result.reason += " with seed " + std::to_string(fresh.seed);
    return;
  }
  result.reason += "; not again with seeds " + seeds;
}

}  // namespace

Checked judge_kernel(const Kernel& kernel, const Operator& op, const Case& input, SharedOracle& oracle,
                     Index tokens, PlainCache& plain) {
  Checked result = judge_once(kernel, op, input, oracle, tokens, plain);
  ask_again(kernel, op, result);
  return result;
}

}  // namespace attest
