// split: a sequence in two calls with the state handed over.
// Law: the second call, given the first one's final state, continues the sequence. Lattice inputs: o and the final
// states of both calls, bitwise; drawn inputs: the second call against the oracle that starts from the state it was
// given, the first call's state against the oracle (value), by bound. Once more than 256 tokens follow a state.
// Must kill: state hand-off (family 4), partial last chunk (1), idle levels (5).
// Source: SPEC section 1; KERNEL_BUGS, family 4.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"

namespace attest {
namespace {

std::vector<Index> times(Index count, Index value) {
  return std::vector<Index>(static_cast<std::size_t>(count), value);
}

void exactly(const BatteryContext& context, const Problem& whole, Index at, Findings& findings) {
  const Declaration& d = context.declaration();
  const Problem first = token_range(whole, 0, at);
  Tensors states = lattice_outputs(context, first);
  if (context.has("final_state")) {
    const auto outputs = call(context, first, findings);
    if (!outputs) return;
    findings.exact(first, *outputs, states);
    states = *outputs;
  }
  const Problem rest =
      continued_from(token_range(whole, at, whole.tokens), states, d, times(whole.sequences(), at));
  if (const auto outputs = call(context, rest, findings)) {
    Tensors expected = lattice_outputs(context, whole);
    expected["o"] = token_range(expected["o"], at, whole.tokens);
    findings.exact(rest, *outputs, expected);
  }
}

void within_bounds(const BatteryContext& context, const Problem& whole, Index at, Findings& findings) {
  const Problem first = token_range(whole, 0, at);
  Tensors states;
  if (context.has("final_state")) {
    const auto outputs = call(context, first, findings);
    if (!outputs) return;
    judge_outputs(context, first, *outputs, false, findings);
    states = *outputs;
  } else {
    for (const auto& [name, tensor] : truth_of(context.op, first)->result.tensors)
      states[name] = {tensor.shape, tensor.value};
  }
  const Problem rest = round_inputs(context.kernel.contract,
                                    continued_from(token_range(whole, at, whole.tokens), states,
                                                   context.declaration(), times(whole.sequences(), at)));
  judge_call(context, rest, false, findings);
}

// A kernel may have a way of its own for long calls, which has to take the state as well.
void long_after_a_state(const BatteryContext& context, Random& random, Findings& findings) {
  constexpr Index before = 37, after = 263;
  Case shape;
  shape.tokens = context.at_most(before + after), shape.key_dim = 5, shape.value_dim = 3, shape.heads = 2;
  if (!no_lattice(context).empty() || *shape.tokens <= std::max(before, 2 * context.chunk() + 5)) return;
  shape = fitted(context, shape), shape.seed = random.bits() >> 1;
  findings.input("lattice split at " + std::to_string(before) + ", " + short_text(shape));
  if (const auto problem = draw_lattice(context, shape, random, LatticeCut{before}))
    exactly(context, *problem, before, findings);
  else
    findings.leave_out("no certified lattice input of this shape");
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "split");
  const Index c = context.chunk();
  for (Index round = 0; round < context.many(1, 4); ++round) {
    Case shape;
    shape.tokens = 2 * c + 5, shape.key_dim = 7, shape.value_dim = 4, shape.heads = 2, shape.batch = 2;
    shape = fitted(context, shape);
    for (const Index at : {Index(1), c - 1, c, c + 1, 2 * c, 2 * c + 4}) {
      if (at < 1) continue;
      shape.seed = random.bits() >> 1;
      if (no_lattice(context).empty()) {
        // Shared heads and a state together: the state has the heads of the output.
        Case grouped = shape;
        if (at % 2) grouped.heads_k = 1, grouped.heads_q = 1;
        grouped = fitted(context, grouped);
        findings.input("lattice split at " + std::to_string(at) + ", " + short_text(grouped));
        if (const auto problem = draw_lattice(context, grouped, random, LatticeCut{at}))
          exactly(context, *problem, at, findings);
        else
          findings.leave_out("no certified lattice input of this shape");
      }
      // Quickly: before, at and beyond the edges of chunks, where lattice inputs have been split everywhere.
      const bool everywhere = context.effort == Effort::full || !no_lattice(context).empty();
      if (!everywhere && at != c - 1 && at != c && at != 2 * c + 4) continue;
      shape.gates = round % 2 ? "uniform" : "published";
      findings.input("split at " + std::to_string(at) + ", " + short_text(shape));
      within_bounds(context, drawn(context, shape), at, findings);
    }
  }
  long_after_a_state(context, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck split_check{"split",
                               "bitwise",
                               "two calls with the state handed over continue one another",
                               "1 4 5",
                               false,
                               [](const BatteryContext& context) -> std::string {
                                 if (context.declaration().moments.empty())
                                   return "the operator has no state";
                                 if (!context.has("initial_state"))
                                   return "the kernel takes no initial state";
                                 return "";
                               },
                               run};

}  // namespace attest
