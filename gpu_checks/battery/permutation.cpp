// permutation: batch entries and heads in another order, and shared heads against repeated ones.
// Law: batch entries and heads do not see one another; head h reads head h / (H / given) of a shared field. Heads
// differ widely (gates, decays, sizes). Output: all, bitwise where the kernel declares batch_invariant, else by the
// sum of both bounds.
// Must kill: addressing (family 7), slots shared between blocks (10), states of another entry (4).
// Source: KERNEL_BUGS, family 7; SPEC section 1 for grouped heads.
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/cases/random.hpp"

namespace attest {
namespace {

void compare(const BatteryContext& context, const Problem& problem, const Tensors& got,
             const Tensors& expected, Findings& findings) {
  if (context.has("batch_invariant") && context.has("deterministic"))
    findings.exact(problem, got, expected);
  else
    judge_pair(context, problem, got.at("o"), expected.at("o"), findings);
}

// Head h of v divided by 4 to the number of heads after it: a strong head among weak ones, of which no format overflows that
// holds the strong one.
void make_heads_unequal(Problem& problem) {
  Tensor& v = problem.fields.at("v");
  const Index given = v.shape[2], width = v.shape[3];
  for (std::size_t i = 0; i < v.data.size(); ++i)
    v.data[i] *= std::ldexp(1.0, static_cast<int>(2 * ((static_cast<Index>(i) / width) % given - given + 1)));
}

void reorder(const BatteryContext& context, Case shape, Findings& findings) {
  findings.input("batch entries and heads reordered, " + short_text(fitted(context, shape)));
  Problem problem = drawn(context, shape);
  make_heads_unequal(problem);
  const auto before = call(context, problem, findings);
  if (!before) return;
  const std::vector<Index> batch{2, 0, 1}, heads{1, 3, 0, 2};
  const Problem other = rearranged(problem, batch, heads);
  const auto after = call(context, other, findings);
  if (!after) return;
  Tensors expected;
  for (const auto& [name, tensor] : *before) expected[name] = rearranged(tensor, name == "o", batch, heads);
  compare(context, other, *after, expected, findings);
}

void one_entry(const BatteryContext& context, Case shape, Findings& findings) {
  findings.input("one batch entry alone, " + short_text(fitted(context, shape)));
  const Problem problem = drawn(context, shape);
  const auto all = call(context, problem, findings);
  const Problem alone = batch_entry(problem, 1);
  const auto one = call(context, alone, findings);
  if (!all || !one) return;
  Tensors expected;
  for (const auto& [name, tensor] : *all) {
    Tensor entry{tensor.shape, {}};
    entry.shape[0] = 1;
    const auto size = static_cast<std::ptrdiff_t>(element_count(entry.shape));
    entry.data.assign(tensor.data.begin() + size, tensor.data.begin() + 2 * size);
    expected[name] = entry;
  }
  compare(context, alone, *one, expected, findings);
}

void share(const BatteryContext& context, Case shape, Findings& findings) {
  findings.input("shared heads against repeated ones, " + short_text(shape));
  const Problem problem = drawn(context, shape), repeated = ungrouped(problem);
  const auto shared = call(context, problem, findings), own = call(context, repeated, findings);
  if (shared && own) compare(context, problem, *shared, *own, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "permutation");
  for (Index round = 0; round < context.many(1, 4); ++round) {
    Case shape;
    shape.tokens = context.chunk() + 4, shape.key_dim = 6, shape.value_dim = 9, shape.heads = 4,
    shape.batch = 3;
    shape.gates = "uniform", shape.seed = random.bits() >> 1;
    reorder(context, shape, findings);
    one_entry(context, shape, findings);
    if (!context.has("grouped")) continue;
    shape.heads_k = 2, shape.heads_q = 2, shape.heads_v = 4;
    share(context, shape, findings);
    shape.heads_k = 1, shape.heads_q = 4, shape.heads_v = 1;
    share(context, shape, findings);
    shape.heads_k = 2, shape.heads_q = 4, shape.heads_v = 2;
    share(context, shape, findings);
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck permutation_check{"permutation",
                                     "bitwise",
                                     "batch entries and heads do not see one another",
                                     "4 7 10",
                                     false,
                                     [](const BatteryContext&) { return std::string(); },
                                     run};

}  // namespace attest
