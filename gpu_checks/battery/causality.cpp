// causality: the future replaced by other finite values.
// Law: o_t depends on tokens up to t alone, so rows before the change keep their bits. Output: o, bitwise. Gates of the
// chunk of the change stay as they are: a kernel may take its chunk's weights from any gate of it as an anchor, which rounds
// differently. That later gates have no weight is seen by the exact inputs of lattice and paths.
// Must kill: masks that are off by one or missing (families 3, 5), stale tails (1).
// Source: SPEC section 8, *.causal.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/cases/random.hpp"

namespace attest {
namespace {

// The first token from `t` on whose gate no anchor of an earlier row can be.
Index first_free_gate(const Kernel& kernel, Index t, Index tokens) {
  if (kernel.how.form == Form::direct || kernel.contract.gate_scope == GateScope::global) return tokens;
  if (kernel.how.form != Form::chunk) return t;
  return std::min(tokens, (t + kernel.how.chunk - 1) / kernel.how.chunk * kernel.how.chunk);
}

Problem with_other_future(const Kernel& kernel, const Problem& present, const Problem& other, Index t) {
  Problem mixed = present;
  for (auto& [name, tensor] : mixed.fields) {
    if (name == "decay") continue;
    const bool gate = name == "g" || name == "alpha";
    const Index first_changed = gate ? first_free_gate(kernel, t, present.tokens) : t;
    const Tensor& from = other.fields.at(name);
    const Index inner = element_count({tensor.shape.begin() + 2, tensor.shape.end()});
    for (Index b = 0; b < tensor.shape[0]; ++b)
      for (Index i = (b * tensor.shape[1] + first_changed) * inner; i < (b + 1) * tensor.shape[1] * inner;
           ++i)
        tensor.data[static_cast<std::size_t>(i)] = from.data[static_cast<std::size_t>(i)];
  }
  return mixed;
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "causality");
  const Index c = context.chunk();
  for (Index round = 0; round < context.many(1, 4); ++round) {
    Case shape;
    shape.tokens = 2 * c + 5, shape.key_dim = 8, shape.value_dim = 5, shape.heads = 2,
    shape.gates = "uniform";
    shape.seed = random.bits() >> 1;
    const Problem problem = drawn(context, shape);
    shape.seed = random.bits() >> 1, shape.recipe = "growing";
    const Problem other = drawn(context, shape);
    const auto before = call(context, problem, findings);
    if (!before) continue;
    for (const Index t : {Index(1), c - 1, c, c + 1, 2 * c, 2 * c + 4}) {
      if (t < 1) continue;
      findings.input("tokens from " + std::to_string(t) + " on replaced, " +
                     short_text(fitted(context, shape)));
      const Problem changed = with_other_future(context.kernel, problem, other, t);
      if (const auto after = call(context, changed, findings))
        findings.exact(token_range(problem, 0, t), "o", token_range(after->at("o"), 0, t),
                       token_range(before->at("o"), 0, t));
    }
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck causality_check{"causality",
                                   "bitwise",
                                   "rows before a change of the inputs keep their bits",
                                   "1 3 5",
                                   false,
                                   [](const BatteryContext& context) -> std::string {
                                     if (!context.declaration().causal) return "the operator is not causal";
                                     if (!context.has("deterministic"))
                                       return "the kernel is not declared deterministic";
                                     return "";
                                   },
                                   run};

}  // namespace attest
