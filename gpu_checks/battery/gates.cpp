// gates: log-gates, decays and level scales at their extremes.
// Law: the value check, row by row, with gates that are steps, alternate, reach from 0 to -1e4 and -infinity, differ
// between heads, and betas at 0 and 1: a weight is exp(G_t - G_s) <= 1 whatever the gates between are.
// Outputs: o and the final states, by bound.
// Must kill: exponent range (family 2), gates of another head (7), sums of gates that lose precision (9).
// Source: KERNEL_BUGS, family 2.
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "reference/cases/random.hpp"

namespace attest {
namespace {

using Gate = double (*)(Random&, Index t, Index head);

struct Pattern {
  const char* words;
  Gate gate;
};

constexpr double infinity = INFINITY;

const Pattern patterns[] = {
    {"g = -3 everywhere", [](Random&, Index, Index) { return -3.0; }},
    {"g = -5, and 0 in head 1", [](Random&, Index, Index head) { return head == 1 ? 0.0 : -5.0; }},
    {"g alternating 0 and -40", [](Random&, Index t, Index) { return t % 2 ? -40.0 : 0.0; }},
    {"one step of -1e4", [](Random&, Index t, Index) { return t == 9 ? -1e4 : -1.0 / 64; }},
    {"resets by -infinity",
     [](Random& r, Index, Index) { return r.one_in(8) ? -infinity : -r.uniform() / 4; }},
    {"g from 0 to -1e4",
     [](Random& r, Index, Index) {
       return r.one_in(3) ? 0.0 : -std::ldexp(r.uniform(), static_cast<int>(r.below(14)));
     }},
    {"g of a large common offset",
     [](Random& r, Index t, Index) { return t == 0 ? -900.0 : -r.uniform() / 8; }},
    {"tiny g", [](Random& r, Index, Index) { return -std::ldexp(r.uniform(), -12); }},
};

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "gates");
  const Declaration& d = context.declaration();
  Case shape;
  shape.tokens = 2 * context.chunk() + 3, shape.key_dim = 6, shape.value_dim = 5, shape.heads = 3,
  shape.recipe = "uniform";
  for (Index round = 0; round < context.many(1, 4); ++round) {
    for (const Pattern& pattern : patterns) {
      if (!d.gates) break;
      shape.seed = random.bits() >> 1;
      findings.input(std::string(pattern.words) + ", " + short_text(fitted(context, shape)));
      Problem problem = drawn(context, shape);
      Tensor& g = problem.fields.at("g");
      for (std::size_t i = 0; i < g.data.size(); ++i)
        g.data[i] =
            pattern.gate(random, static_cast<Index>(i) / shape.heads, static_cast<Index>(i) % shape.heads);
      judge_call(context, round_inputs(context.kernel.contract, problem), false, findings);
    }
    for (const char* gates : {"extreme", "uniform"}) {
      shape.seed = random.bits() >> 1, shape.gates = gates;
      findings.input(short_text(fitted(context, shape)));
      judge_call(context, drawn(context, shape), false, findings);
      if (!d.decay) continue;
      Problem problem = drawn(context, shape);  // per head: none, strong, total
      problem.fields["decay"] = {{3}, {1, 0.25, 0}};
      findings.input("decay 1, 1/4 and 0 by head, " + short_text(fitted(context, shape)));
      judge_call(context, problem, false, findings);
    }
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck gates_check{
    "gates",
    "bound",
    "extreme gates, decays and level scales keep the bound",
    "2 7 9",
    false,
    [](const BatteryContext& context) -> std::string {
      const Declaration& d = context.declaration();
      return d.gates || d.decay || d.beta || d.level_scales ? "" : "the operator has no gates";
    },
    run};

}  // namespace attest
