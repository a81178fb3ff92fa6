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

// The whole, and where the kernel takes a state the tokens from `at` on, given the exact state before them.
void one(const BatteryContext& context, Case shape, Index at, Random& random, Findings& findings) {
  shape = fitted(context, shape);
  findings.input(short_text(shape));
  const bool continued = context.has("initial_state") && !context.declaration().moments.empty();
  const auto problem =
      draw_lattice(context, shape, random, continued ? std::optional(LatticeCut{at, false}) : std::nullopt);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  Tensors expected = lattice_outputs(context, *problem);
  if (const auto outputs = call(context, *problem, findings)) findings.exact(*problem, *outputs, expected);
  if (!continued) return;
  findings.input("from token " + std::to_string(at) + " on, " + short_text(shape));
  const std::vector<Index> consumed(static_cast<std::size_t>(problem->sequences()), at);
  const Problem rest =
      continued_from(token_range(*problem, at, problem->tokens),
                     lattice_outputs(context, token_range(*problem, 0, at)), context.declaration(), consumed);
  expected["o"] = token_range(expected["o"], at, problem->tokens);
  if (const auto outputs = call(context, rest, findings)) findings.exact(rest, *outputs, expected);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "width");
  Case shape;
  shape.key_dim = 2, shape.value_dim = 1, shape.tokens = 65536 + 2 * context.chunk() + 1;
  one(context, shape, 65537, random, findings);
  shape.tokens = 2, shape.heads = 257, shape.batch = 256;
  one(context, shape, 1, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck width_check{
    "width", "bitwise", "more than 65,536 tokens, heads and batch entries", "8", true, no_lattice, run};

}  // namespace attest
