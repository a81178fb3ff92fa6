// width: indices beyond 16 bits.
// Law: lattice inputs of more than 65,536 tokens, and of more than 65,536 heads and batch entries (a grid dimension of a
// GPU ends at 65,535). Outputs: o and the final states, bitwise.
// What it leaves out: more than 2^31 elements, which need 16 GiB on the host.
// Must kill: index width (family 8).
// Source: KERNEL_BUGS, family 8.
#include "gpu_checks/battery/width.hpp"

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

struct Wide {
  Case shape;  // as it is drawn
  Repeated repeated;
  Case whole;
  Index at;  // of the tokens from here on, given the exact state before them
};

std::vector<Wide> wide_shapes(const BatteryContext& context) {
  Case shape;
  shape.key_dim = 2, shape.value_dim = 1, shape.tokens = 65536 + 2 * context.chunk() + 1;
  shape = fitted(context, shape);
  Case few = shape, many = shape;
  many.tokens = 2, many.heads = 257, many.batch = 256;
  few.tokens = 2, few.heads = 17, few.batch = 13;
  return {{shape, {}, shape, 65537}, {few, {cycle(256, 13), cycle(257, 17)}, many, 1}};
}

bool is_continued(const BatteryContext& context) {
  return context.has("initial_state") && !context.declaration().moments.empty();
}

// As it is drawn; none, as the findings then say, where there is none.
std::optional<Problem> draw_wide(const BatteryContext& context, const Wide& wide, Random& random,
                                 Findings& findings) {
  findings.input("lattice " + short_text(wide.whole));
  // Before anything is drawn and certified, which takes long at these sizes.
  if (const std::string why = outside_limits(context.kernel.limits, wide.shape); !why.empty())
    return findings.refuse(why), std::nullopt;
  if (is_square(context.kernel.how) && *wide.shape.tokens > longest_square)
    return findings.leave_out("so many tokens are not asked of a form that grows with their square"),
           std::nullopt;
  auto problem = draw_lattice(
      context, wide.shape, random,
      is_continued(context) ? std::optional(LatticeCut{wide.at, false}) : std::nullopt, most_active);
  if (!problem) findings.leave_out("no certified lattice input of this shape");
  return problem;
}

// The whole, and where the kernel takes a state the tokens from `at` on, given the exact state before them.
void one(const BatteryContext& context, const Wide& wide, Random& random, Findings& findings) {
  const auto problem = draw_wide(context, wide, random, findings);
  if (!problem) return;
  Tensors expected = lattice_outputs(context, *problem);
  const auto compare = [&](const Problem& asked) {
    const Problem whole = wide.repeated(asked);
    if (const auto outputs = call(context, whole, findings))
      findings.exact(whole, *outputs, wide.repeated(expected));
  };
  compare(*problem);
  if (!is_continued(context)) return;
  findings.input("from token " + std::to_string(wide.at) + " on, lattice " + short_text(wide.whole));
  const std::vector<Index> consumed(static_cast<std::size_t>(problem->sequences()), wide.at);
  expected["o"] = token_range(expected["o"], wide.at, problem->tokens);
  compare(continued_from(token_range(*problem, wide.at, problem->tokens),
                         lattice_outputs(context, token_range(*problem, 0, wide.at)), context.declaration(),
                         consumed));
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "width");
  for (const Wide& wide : wide_shapes(context)) one(context, wide, random, findings);
  return findings.outcome();
}

}  // namespace

std::vector<WideInput> wide_inputs(const BatteryContext& context) {
  Findings ignored(context.kernel);
  Random random(context.seed, "width");
  std::vector<WideInput> inputs;
  for (const Wide& wide : wide_shapes(context))
    if (const auto problem = draw_wide(context, wide, random, ignored))
      inputs.push_back({wide.whole, wide.repeated(*problem),
                        is_continued(context) ? std::optional(wide.at) : std::nullopt});
  return inputs;
}

const BatteryCheck width_check{
    "width", "bitwise", "more than 65,536 tokens, heads and batch entries", "8", true, no_lattice, run};

}  // namespace attest
