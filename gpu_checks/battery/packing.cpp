// packing: several sequences in one call with cu_seqlens.
// Law: packed sequences, of length 0 and 1 and across chunk edges, give what separate calls give, and their states are
// their own. Lattice inputs: exact, bitwise, with and without initial states. Drawn inputs: bitwise against separate
// calls where the kernel declares batch_invariant, else within the sum of both bounds. The same shape is asked twice, one
// call after the other, with other boundaries.
// Must kill: packed sequences (family 6), stale tails (1), states of another sequence (4).
// Source: KERNEL_BUGS, family 6.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"

namespace attest {
namespace {

using Lengths = std::vector<Index>;

std::string words(const Lengths& lengths) {
  std::string text = "packed lengths";
  for (const Index n : lengths) text += ' ' + std::to_string(n);
  return text;
}

Case shape_of(const BatteryContext& context, Index tokens, std::uint64_t seed) {
  Case shape;
  shape.tokens = tokens, shape.key_dim = 6, shape.value_dim = 5, shape.heads = 2, shape.seed = seed;
  return fitted(context, shape);
}

// Every sequence after `before` tokens of its own, whose state it is given.
std::optional<Problem> lattice_sequences(const BatteryContext& context, const Lengths& lengths,
                                         Random& random, bool stateful) {
  std::vector<Problem> sequences;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const Index before =
        stateful ? 1 + static_cast<Index>(random.below(static_cast<std::uint64_t>(context.chunk()) + 2)) : 0;
    const Case shape = shape_of(context, before + lengths[s], random.bits() >> 1);
    const auto whole =
        draw_lattice(context, shape, random, before ? std::optional(LatticeCut{before}) : std::nullopt);
    if (!whole) return std::nullopt;
    const Problem rest = token_range(*whole, before, whole->tokens);
    sequences.push_back(before == 0
                            ? rest
                            : continued_from(rest, lattice_outputs(context, token_range(*whole, 0, before)),
                                             context.declaration(), {before}));
  }
  return packed(sequences, context.declaration());
}

void exactly(const BatteryContext& context, const Lengths& lengths, bool stateful, Random& random,
             Findings& findings) {
  findings.input("lattice, " + words(lengths) + (stateful ? ", each with an initial state" : ""));
  const auto problem = lattice_sequences(context, lengths, random, stateful);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  if (const auto outputs = call(context, *problem, findings))
    findings.exact(*problem, *outputs, lattice_outputs(context, *problem));
}

void against_separate_calls(const BatteryContext& context, const Lengths& lengths, Random& random,
                            Findings& findings) {
  findings.input(words(lengths) + " against separate calls");
  std::vector<Problem> sequences;
  Tensor expected;
  for (const Index n : lengths) {
    Case shape = shape_of(context, n, random.bits() >> 1);
    shape.gates = "uniform";
    if (context.declaration().decay) shape.options.decay = Rational(7) / 8;
    sequences.push_back(drawn(context, shape));
    const auto alone = call(context, sequences.back(), findings);
    if (!alone) return;
    const Tensor& o = alone->at("o");
    if (expected.shape.empty())
      expected = o;
    else
      expected.shape[1] += o.shape[1],
          expected.data.insert(expected.data.end(), o.data.begin(), o.data.end());
  }
  const Problem problem = packed(sequences, context.declaration());
  const auto together = call(context, problem, findings);
  if (!together) return;
  if (context.has("batch_invariant") && context.has("deterministic"))
    findings.exact(problem, "o", together->at("o"), expected);
  else
    judge_pair(context, problem, together->at("o"), expected, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "packing");
  const Index c = context.chunk();
  const bool exact = no_lattice(context).empty();
  for (Index round = 0; round < context.many(1, 5); ++round)
    for (const Lengths& lengths :
         {Lengths{1, c, 0, c + 3, 2 * c - 1}, Lengths{c / 2 + 1, c / 2 + 2, 1, c + 1}, Lengths{0, 3, 0},
          Lengths{2 * c + 1}, Lengths{c, c, c}, Lengths{3, 1, 0, 2, c, 1, 5, 4, 0, 2, 7}}) {
      if (exact) exactly(context, lengths, false, random, findings);
      if (exact && context.has("initial_state")) exactly(context, lengths, true, random, findings);
      against_separate_calls(context, lengths, random, findings);
    }
  for (const Lengths& lengths : {Lengths{c, 3, c + 2, 1}, Lengths{3, 1, c, c + 2}})
    if (exact)
      exactly(context, lengths, false, random, findings);
    else
      against_separate_calls(context, lengths, random, findings);
  Lengths more_than_a_warp;
  for (Index s = 0; s < 40; ++s) more_than_a_warp.push_back(1 + s % 3);
  if (exact) exactly(context, more_than_a_warp, false, random, findings);
  if (exact && context.has("initial_state")) exactly(context, more_than_a_warp, true, random, findings);
  if (!exact) against_separate_calls(context, more_than_a_warp, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck packing_check{"packing",
                                 "bitwise",
                                 "packed sequences give what separate calls give",
                                 "1 4 6",
                                 false,
                                 [](const BatteryContext& context) -> std::string {
                                   return context.has("varlen") ? "" : "the kernel takes no packed sequences";
                                 },
                                 run};

}  // namespace attest
