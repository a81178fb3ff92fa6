// shapes: sizes at which kernels break.
// Law: T = 0, 1, chunk +- 1 and every residue of the chunk, d = 1, odd d, d != dv, d and dv beyond a tile, nine heads; a
// state of no tokens is the initial one; the widths d = dv that kernels have code of their own for, over three chunks and
// once more from a state. Lattice inputs, bitwise, where the operator has them; else by bound.
// Must kill: partial last chunk (family 1), tiles and lanes (7), tiles skipped (11), splits over dv (10).
// Source: KERNEL_BUGS, families 1, 7, 10 and 11.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"

namespace attest {
namespace {

void one(const BatteryContext& context, Case shape, Random& random, Findings& findings) {
  shape = fitted(context, shape);
  shape.seed = random.bits() >> 1;
  findings.input("lattice " + short_text(shape));
  if (!no_lattice(context).empty()) {
    if (*shape.tokens > 0) return judge_call(context, drawn(context, shape), false, findings);
    call(context, drawn(context, shape), findings);
    return;
  }
  const auto problem = draw_lattice(context, shape, random);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  if (const auto outputs = call(context, *problem, findings))
    findings.exact(*problem, *outputs, lattice_outputs(context, *problem));
}

// Exact outputs of all tokens, and from a token on, given the exact state before it.
void one_from_a_state(const BatteryContext& context, Case shape, Index before, Random& random,
                      Findings& findings) {
  shape = fitted(context, shape), shape.seed = random.bits() >> 1;
  findings.input("lattice " + short_text(shape));
  const auto whole = draw_lattice(context, shape, random, LatticeCut{before, false});
  if (!whole) return findings.leave_out("no certified lattice input of this shape");
  Tensors expected = lattice_outputs(context, *whole);
  if (const auto outputs = call(context, *whole, findings)) findings.exact(*whole, *outputs, expected);
  findings.input("from token " + std::to_string(before) + " on, lattice " + short_text(shape));
  const std::vector<Index> consumed(static_cast<std::size_t>(whole->sequences()), before);
  const Problem rest = continued_from(token_range(*whole, before, whole->tokens),
                                      lattice_outputs(context, token_range(*whole, 0, before)),
                                      context.declaration(), consumed);
  expected["o"] = token_range(expected["o"], before, whole->tokens);
  if (const auto outputs = call(context, rest, findings)) findings.exact(rest, *outputs, expected);
}

// Three chunks, or as many tokens as the kernel takes; of a scan, a segment of which costs width^3, few: it carries a
// state from every token to the next.
void square(const BatteryContext& context, Index width, Random& random, Findings& findings) {
  Case shape;
  shape.key_dim = shape.value_dim = width;
  if (const Case fit = fitted(context, shape); fit.key_dim != width || fit.value_dim != width) return;
  const bool few = context.kernel.how.form == Form::scan && width > 64;
  const Index before = 3, tokens = few ? 5 : 2 * context.chunk() + 1;
  shape.heads = width > 64 ? 1 : 2, shape.tokens = context.at_most(before + tokens);
  const bool takes_state = context.has("initial_state") && !context.declaration().moments.empty();
  if (takes_state && no_lattice(context).empty() && *shape.tokens > before)
    one_from_a_state(context, shape, before, random, findings);
  else
    one(context, shape, random, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "shapes");
  const Index c = context.chunk();
  Case shape;
  shape.heads = 2, shape.batch = 2, shape.key_dim = 6, shape.value_dim = 5;
  for (const Index tokens :
       {Index(0), Index(1), Index(2), Index(3), c - 1, c, c + 1, 2 * c - 1, 2 * c, 3 * c + c / 2})
    if (tokens >= 0) shape.tokens = tokens, one(context, shape, random, findings);
  const Index step = context.effort == Effort::full ? 1 : std::max<Index>(1, c / 8);
  for (Index residue = 1; residue < c; residue += step)
    shape.tokens = c + residue, one(context, shape, random, findings);
  std::vector<std::pair<Index, Index>> widths{{1, 1},   {1, 8},   {8, 1},    {3, 3},   {5, 33},  {33, 5},
                                              {17, 65}, {64, 64}, {31, 130}, {128, 6}, {136, 3}, {260, 2}};
  if (context.effort == Effort::full) widths.insert(widths.end(), {{128, 128}, {256, 9}, {72, 72}});
  for (const auto& [key_dim, value_dim] : widths) {
    shape.key_dim = key_dim, shape.value_dim = value_dim, shape.batch = 1;
    shape.tokens = key_dim > 64 ? 9 : 2 * c + 1;  // a token of a delta rule costs d^3 here
    one(context, shape, random, findings);
  }
  for (const Index width : {32, 64, 128, 256}) square(context, width, random, findings);
  // More heads than a kernel may have constants for.
  shape.key_dim = 4, shape.value_dim = 3, shape.tokens = c + 1, shape.heads = 9;
  one(context, shape, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck shapes_check{
    "shapes",    "bitwise", "every length, residue and width gives the operator's value",
    "1 7 10 11", false,     [](const BatteryContext&) { return std::string(); },
    run};

}  // namespace attest
