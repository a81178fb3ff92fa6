// width: indices beyond 16 bits.
// Law: lattice inputs of more than 65,536 tokens, and of more than 65,536 heads and batch entries (a grid dimension of a
// GPU ends at 65,535). Outputs: o and the final states, bitwise.
// What it leaves out: more than 2^31 elements, which need 16 GiB on the host.
// Must kill: index width (family 8).
// Source: KERNEL_BUGS, family 8.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"

namespace attest {
namespace {

// The problem is drawn, certified and solved with few batch entries and heads, which are then repeated: (b, h) is a copy
// of (b mod 13, h mod 17), so that what 16-bit arithmetic confuses differs.
struct Repeated {
  std::vector<Index> batch, heads;  // empty: as drawn
  Problem operator()(const Problem& problem) const {
    return batch.empty() ? problem : rearranged(problem, batch, heads);
  }
  Tensors operator()(Tensors outputs) const {
    for (auto& [name, tensor] : outputs)
      if (!batch.empty()) tensor = rearranged(tensor, name == "o", batch, heads);
    return outputs;
  }
};

std::vector<Index> cycle(Index count, Index period) {
  std::vector<Index> list;
  for (Index i = 0; i < count; ++i) list.push_back(i % period);
  return list;
}

constexpr Index longest_square = 8192;
bool is_square(const Evaluation& how) {
  return how.form == Form::direct || (how.form == Form::chunk && how.chunk > longest_square);
}

constexpr Index most_active = 256;  // more than that many terms are no integers of bf16

// The whole, and where the kernel takes a state the tokens from `at` on, given the exact state before them.
void one(const BatteryContext& context, const Case& drawn, const Repeated& repeated, const std::string& words,
         Index at, Random& random, Findings& findings) {
  findings.input(words);
  // Before anything is drawn and certified, which takes long at these sizes.
  if (const std::string why = outside_limits(context.kernel.limits, drawn); !why.empty())
    return findings.refuse(why);
  if (is_square(context.kernel.how) && *drawn.tokens > longest_square)
    return findings.leave_out("so many tokens are not asked of a form that grows with their square");
  const bool continued = context.has("initial_state") && !context.declaration().moments.empty();
  const auto problem = draw_lattice(
      context, drawn, random, continued ? std::optional(LatticeCut{at, false}) : std::nullopt, most_active);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  Tensors expected = lattice_outputs(context, *problem);
  const auto compare = [&](const Problem& asked) {
    const Problem whole = repeated(asked);
    if (const auto outputs = call(context, whole, findings))
      findings.exact(whole, *outputs, repeated(expected));
  };
  compare(*problem);
  if (!continued) return;
  findings.input("from token " + std::to_string(at) + " on, " + words);
  const std::vector<Index> consumed(static_cast<std::size_t>(problem->sequences()), at);
  expected["o"] = token_range(expected["o"], at, problem->tokens);
  compare(continued_from(token_range(*problem, at, problem->tokens),
                         lattice_outputs(context, token_range(*problem, 0, at)), context.declaration(),
                         consumed));
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "width");
  Case shape;
  shape.key_dim = 2, shape.value_dim = 1, shape.tokens = 65536 + 2 * context.chunk() + 1;
  shape = fitted(context, shape);
  one(context, shape, {}, short_text(shape), 65537, random, findings);
  shape.tokens = 2, shape.heads = 257, shape.batch = 256;
  const std::string words = short_text(shape);
  shape.heads = 17, shape.batch = 13;
  one(context, shape, {cycle(256, 13), cycle(257, 17)}, words, 1, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck width_check{
    "width", "bitwise", "more than 65,536 tokens, heads and batch entries", "8", true, no_lattice, run};

}  // namespace attest
