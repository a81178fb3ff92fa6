// containment: one NaN or infinity among the inputs.
// Law: every output that depends on it is not finite; a wider spread is a fault only where nan_contained is declared.
// What depends is what the recurrence reaches (dense inputs, so that no weight is 0).
// Outputs: o and the final states. Structural.
// Must kill: clamps and NaNs swallowed by a comparison or max (families 2, 13).
// Source: DESIGN, the battery.
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/laws.hpp"
#include "reference/cases/random.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/certify.hpp"

namespace attest {
namespace {

// Something is no number that the NaN does not reach, and that has a value: 0/0 and what overflows have none.
bool spreads(const Operator& op, const Problem& problem, const std::string& name, const Tensor& got,
             const std::vector<bool>& must) {
  std::shared_ptr<const KeptOracle> truth;
  for (std::size_t i = 0; i < must.size(); ++i) {
    if (must[i] || std::isfinite(got.data[i])) continue;
    if (!truth) truth = truth_of(op, problem);
    if (std::isfinite(truth->result.tensors.at(name).value[i])) return true;
  }
  return false;
}

}  // namespace

void judge_containment(const BatteryContext& context, const Problem& problem, Findings& findings) {
  const auto outputs = call(context, problem, findings);
  if (!outputs) return;
  Arithmetic<double> plain;
  const Tensors reached = run<double>(context.op, reach_of_non_finite(problem), {Form::stream, 0, 0}, plain);
  for (const auto& [name, got] : *outputs) {
    const auto found = reached.find(name);
    if (found == reached.end()) continue;
    std::vector<bool> must(got.data.size());
    for (std::size_t i = 0; i < must.size(); ++i) must[i] = !std::isfinite(found->second.data[i]);
    findings.not_finite(problem, name, got, must);
    if (context.has("nan_contained") && spreads(context.op, problem, name, got, must))
      return findings.fault("a NaN spread to " + name + " that does not depend on it");
  }
}

namespace {

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "containment");
  const Index c = context.chunk();
  Case shape;
  shape.tokens = 2 * c + 3, shape.key_dim = 6, shape.value_dim = 5, shape.heads = 2, shape.recipe = "uniform";
  for (Index round = 0; round < context.many(1, 4); ++round)
    for (const char* name : {"q", "k", "v"})
      for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
        // A score of minus infinity is a legal way to say weight 0.
        if (!context.declaration().exact && std::isinf(bad) && name[0] != 'v') continue;
        shape.seed = random.bits() >> 1;
        Problem problem = drawn(context, shape);
        Tensor& tensor = problem.fields.at(name);
        constexpr int places = 4;
        const Index at[places] = {c - 1, c, 0, 2 * c + 2};
        const Index t = at[random.below(places)],
                    row = t * tensor.shape[2] + static_cast<Index>(random.below(2));
        tensor.data[static_cast<std::size_t>(row * tensor.shape[3] + 1)] = bad;
        findings.input(std::string(std::isnan(bad) ? "NaN" : "infinity") + " in " + name + " at token " +
                       std::to_string(t) + ", " + short_text(fitted(context, shape)));
        judge_containment(context, problem, findings);
      }
  return findings.outcome();
}

}  // namespace

const BatteryCheck containment_check{"containment",
                                     "structural",
                                     "what depends on a NaN or an infinity is not finite",
                                     "2 13",
                                     false,
                                     [](const BatteryContext&) { return std::string(); },
                                     run};

}  // namespace attest
