// combinations: what kernels handle apart, together.
// Law: the value check (o and the final states, by bound) where options, an initial state, packed sequences, shared
// heads, many heads, wide keys and linear gates meet: normalisation with a scale, a decay for each of nine heads, the
// state of a normaliser between packed sequences, alpha in the place of g.
// Must kill: states and normalisers left out where another feature is on (families 4, 6 and 9), heads (7), gates (2).
// Source: KERNEL_BUGS, families 2, 4, 6, 7 and 9.
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/cases/random.hpp"

namespace attest {
namespace {

struct Combination {
  const char* words;
  bool options, state, packed, linear_gates;
  Index key_dim, value_dim, heads, heads_k;
};

constexpr Combination combinations[] = {
    {"nine heads", false, false, false, false, 5, 4, 9, 0},
    {"all options", true, false, false, false, 8, 6, 2, 0},
    {"all options and a state", true, true, false, false, 7, 5, 2, 0},
    {"all options, packed", true, false, true, false, 6, 5, 2, 0},
    {"all options and states, packed", true, true, true, false, 6, 5, 3, 0},
    {"all options and a state, shared heads", true, true, false, false, 5, 4, 4, 2},
    {"linear gates", false, false, false, true, 8, 6, 2, 0},
    {"linear gates and all options, packed, with states", true, true, true, true, 6, 5, 2, 1},
    {"wide keys", false, false, false, false, 130, 5, 1, 0},
    {"wide keys, all options and a state", true, true, false, false, 136, 3, 1, 0},
};

void set_all(Options& options, const Declaration& d, bool decay_of_all) {
  if (d.decay && decay_of_all) options.decay = Rational(7) / 8;
  if (d.ridge) options.ridge = Rational(1) / 2;
  if (d.unit_scale) options.scale = Rational(5) / 16;
  if (d.normalize) options.normalize = true, options.epsilon = Rational(1) / 4;
}

// Tokens `before` .. of a sequence, with the state that those before them leave.
Problem continued(const BatteryContext& context, const Problem& whole, Index before) {
  Tensors states;
  for (const auto& [name, tensor] : truth_of(context.op, token_range(whole, 0, before))->result.tensors)
    states[name] = {tensor.shape, tensor.value};
  const std::vector<Index> consumed(static_cast<std::size_t>(whole.sequences()), before);
  return round_inputs(context.kernel.contract, continued_from(token_range(whole, before, whole.tokens),
                                                              states, context.declaration(), consumed));
}

Problem sequence(const BatteryContext& context, const Combination& how, Index tokens, std::uint64_t seed) {
  const Index before = how.state ? 3 + static_cast<Index>(seed % 4) : 0;
  Case shape;
  shape.tokens = before + tokens, shape.key_dim = how.key_dim, shape.value_dim = how.value_dim;
  shape.heads = how.heads, shape.heads_k = how.heads_k, shape.heads_q = how.heads_k;
  shape.recipe = "uniform", shape.gates = "uniform", shape.seed = seed;
  if (how.options) set_all(shape.options, context.declaration(), seed % 2 == 0);
  Problem whole = drawn(context, shape);
  if (how.linear_gates) whole = round_inputs(context.kernel.contract, with_linear_gates(std::move(whole)));
  return before > 0 ? continued(context, whole, before) : whole;
}

bool applies(const BatteryContext& context, const Combination& how) {
  const Declaration& d = context.declaration();
  const bool has_options = d.ridge || d.unit_scale || d.normalize;
  return (!how.options || has_options) && (!how.linear_gates || d.gates) &&
         (!how.state || (context.has("initial_state") && !d.moments.empty())) &&
         (!how.packed || context.has("varlen")) && (how.heads_k == 0 || context.has("grouped"));
}

void one(const BatteryContext& context, const Combination& how, Random& random, Findings& findings) {
  const Index c = context.chunk();
  const std::uint64_t seed = random.bits() >> 1;
  std::vector<Problem> sequences;
  const Index alone = how.key_dim > 64 ? 6 : c + 3;  // wide states are dear
  for (const Index tokens :
       how.packed ? std::vector<Index>{3, c + 2, 1, 4, 2, 5, 1, 3, 2} : std::vector<Index>{alone})
    sequences.push_back(sequence(context, how, tokens, seed + 2 * sequences.size()));
  const Problem problem =
      how.packed ? packed(sequences, context.declaration()) : std::move(sequences.front());
  findings.input(std::string(how.words) + ", seed " + std::to_string(seed));
  judge_call(context, problem, false, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "combinations");
  for (Index round = 0; round < context.many(1, 4); ++round)
    for (const Combination& how : combinations)
      if (applies(context, how)) one(context, how, random, findings);
  return findings.outcome();
}

}  // namespace

const BatteryCheck combinations_check{
    "combinations",
    "bound",
    "options, states, packing, heads and linear gates together keep the bound",
    "2 4 6 7 9",
    false,
    [](const BatteryContext&) { return std::string(); },
    run};

}  // namespace attest
