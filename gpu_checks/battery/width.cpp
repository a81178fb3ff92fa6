// width: indices beyond 16 bits.
// Law: lattice inputs of more than 65,536 tokens, and of more than 65,536 heads and batch entries (a grid dimension of a
// GPU ends at 65,535). Outputs: o and the final states, bitwise.
// What it leaves out: more than 2^31 elements, which need 16 GiB on the host.
// Must kill: index width (family 8).
// Source: KERNEL_BUGS, family 8.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"

namespace attest {
namespace {

void one(const BatteryContext& context, Case shape, Random& random, Findings& findings) {
  shape = fitted(context, shape);
  findings.input(short_text(shape));
  const auto problem = draw_lattice(context, shape, random);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  if (const auto outputs = call(context, *problem, findings))
    findings.exact(*problem, *outputs, lattice_outputs(context, *problem));
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "width");
  Case shape;
  shape.key_dim = 2, shape.value_dim = 1, shape.tokens = 65536 + 2 * context.chunk() + 1;
  one(context, shape, random, findings);
  shape.tokens = 2, shape.heads = 257, shape.batch = 256;
  one(context, shape, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck width_check{"width", "bitwise", "more than 65,536 tokens, heads and batch entries", no_lattice, run};

}  // namespace attest
