// repetition: sequences of calls A, B, A, A', and inputs looked at again afterwards.
// Law: a call depends on its inputs alone: A again gives the same bits (where the kernel is declared deterministic;
// lattice inputs otherwise), the same buffers with new data give the new answer, inputs are not written to. A call that
// asks for o without the final states is as right as one that asks for them.
// Must kill: stale and cached results (families 11, 13), races (10).
// Source: KERNEL_BUGS, families 10, 11 and 13.
#include <cstring>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/laws.hpp"
#include "reference/cases/random.hpp"

namespace attest {
namespace {

bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.data.size() != tensor.data.size()) return false;
    if (!tensor.data.empty() &&
        std::memcmp(tensor.data.data(), other->second.data.data(), tensor.data.size() * sizeof(double)) != 0)
      return false;
  }
  return true;
}

}  // namespace

std::optional<Tensors> watched_call(const BatteryContext& context, Problem& problem, Findings& findings) {
  const Tensors before = problem.fields;
  auto outputs = call(context, problem, findings);
  if (!same_bits(before, problem.fields)) findings.fault("the kernel changed its inputs");
  return outputs;
}

namespace {

void rerun(const BatteryContext& context, Case shape, Random& random, Findings& findings) {
  shape.seed = random.bits() >> 1;
  Problem a = drawn(context, shape);
  Case longer = shape;
  longer.tokens = *shape.tokens + 7, longer.seed = random.bits() >> 1;
  Problem b = drawn(context, longer);
  findings.input("calls A, B (longer), A, " + short_text(fitted(context, shape)));
  const auto first = watched_call(context, a, findings);
  if (!first) return;
  watched_call(context, b, findings);
  for (int again = 0; again < 3; ++again)
    if (const auto second = watched_call(context, a, findings)) findings.exact(a, *second, *first);
}

// The same Problem object, so the same addresses, with new data and then new options.
void new_data(const BatteryContext& context, Case shape, Random& random, Findings& findings) {
  shape.seed = random.bits() >> 1, shape.recipe = "uniform";
  findings.input("the same buffers with new data, " + short_text(fitted(context, shape)));
  Problem problem = drawn(context, shape);
  watched_call(context, problem, findings);
  shape.seed = random.bits() >> 1;
  const Problem fresh = drawn(context, shape);
  for (auto& [name, tensor] : problem.fields)
    std::copy(fresh.fields.at(name).data.begin(), fresh.fields.at(name).data.end(), tensor.data.begin());
  judge_call(context, problem, false, findings);
  if (!context.declaration().decay) return;
  findings.input("the same buffers with another decay, " + short_text(fitted(context, shape)));
  problem.fields.erase("decay");
  problem.options.decay = Rational(1) / 2;
  judge_call(context, problem, false, findings);
}

void without_states(const BatteryContext& context, Case shape, Random& random, Findings& findings) {
  shape.seed = random.bits() >> 1;
  findings.input("o without the final states, " + short_text(fitted(context, shape)));
  Problem problem = drawn(context, shape);
  problem.wants_states = false;
  judge_call(context, problem, false, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "repetition");
  Case shape;
  shape.tokens = 2 * context.chunk() + 3, shape.key_dim = 6, shape.value_dim = 9, shape.heads = 2;
  for (Index round = 0; round < context.many(1, 5); ++round) {
    if (context.has("deterministic")) rerun(context, shape, random, findings);
    new_data(context, shape, random, findings);
    if (context.has("final_state") && !context.declaration().moments.empty())
      without_states(context, shape, random, findings);
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck repetition_check{
    "repetition", "bitwise", "a call depends on its inputs alone and leaves them alone",
    "10 11 13",   false,     [](const BatteryContext&) { return std::string(); },
    run};

}  // namespace attest
