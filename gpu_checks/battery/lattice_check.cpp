// lattice: bit-exact small integers in many shapes.
// Law: where every partial sum is exact (certified, lattice.hpp), a correct kernel of the contract returns the exact
// value, bit for bit, in any order and chunking. Outputs: o and the final states, bitwise.
// Must kill: dropped or transposed cross terms (family 3), levels (5), states (4), addressing (7), rounding of
// intermediates that the contract excludes (9).
// Source: NUMERICS, lattice inputs.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"

namespace attest {
namespace {

void one(const BatteryContext& context, Case shape, Random& random, Findings& findings, bool loud = false) {
  shape = fitted(context, shape);
  shape.seed = random.bits() >> 1;
  findings.input("lattice " + short_text(shape));
  auto problem = draw_lattice(context, shape, random, {}, loud ? 3 : 1 << 20);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  if (loud) problem = made_louder(context, std::move(*problem), random);
  if (const auto outputs = call(context, *problem, findings))
    findings.exact(*problem, *outputs, lattice_outputs(context, *problem));
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "lattice");
  const Index c = context.chunk();
  const Declaration& d = context.declaration();
  for (Index round = 0; round < context.many(2, 12); ++round) {
    Case shape;
    shape.tokens = 3 * c + static_cast<Index>(random.below(static_cast<std::uint64_t>(c)));
    shape.key_dim = 8, shape.value_dim = 6, shape.heads = 4, shape.batch = 2;
    one(context, shape, random, findings);
    one(context, shape, random, findings, true);
    shape.heads_k = 2, shape.heads_q = round % 2 ? 4 : 2, shape.heads_v = 4;  // grouped
    shape.tokens = 2 * c + 1, shape.value_dim = 37, shape.key_dim = 7;
    one(context, shape, random, findings);
    shape.heads_q = 4, shape.heads_k = shape.heads_v = 1, shape.tokens = c;  // multi-query
    one(context, shape, random, findings);
    if (context.has("grouped"))  // a group that is no power of two
      shape.heads = shape.heads_q = 6, shape.heads_k = shape.heads_v = 2,
      one(context, shape, random, findings);
    shape = {};
    // Wide keys across chunks, and more tokens than a tile of any form.
    shape.tokens = 2 * c + 1, shape.value_dim = 5;
    shape.key_dim = d.beta ? 66 : 130;  // a token of a delta rule costs d^3 here
    one(context, shape, random, findings);
    shape.tokens = context.at_most(600), shape.key_dim = 8, shape.heads = 2;
    one(context, shape, random, findings);
    shape = {};
    shape.heads = 2, shape.key_dim = 5, shape.value_dim = 9, shape.tokens = 2 * c + 3,
    shape.options.scale = Rational(round % 2 ? -2 : 2);
    if (d.unit_scale) one(context, shape, random, findings);
    shape.options.scale.reset(), shape.options.ridge = Rational(2);
    if (d.ridge) one(context, shape, random, findings);
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck lattice_check{
    "lattice",   "bitwise", "certified integers give the exact value in any order of evaluation",
    "3 4 5 7 9", false,     no_lattice,
    run};

}  // namespace attest
