// paths: inputs that leave a single path from one key and one value to the outputs.
// Law: with k at token i, v at token j and the same q everywhere, o_t counts the paths through (t, i, j): masks, levels
// and off-by-ones become visible at once. Undecayed: lattice inputs, bitwise. Decayed: by bound, where what must be 0
// has the bound 0. Log-linear: the level scales one-hot in one level. Gated: a path that is read after 16 chunks, with
// one closed gate before its key, so that halves of the larger blocks have fades that differ.
// Must kill: masks and prefixes (family 3), levels (5), decays of single paths (1, 2, 4).
// Source: NUMERICS, lattice inputs.
#include <algorithm>
#include <bit>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"

namespace attest {
namespace {

constexpr Index key_dim = 4, value_dim = 5;
constexpr double closed_gate = -1024;  // exp() underflows to 0 in every format

struct Path {
  Index key, other_key, value;  // tokens; k is hot at key and other_key, v at value
  int level = -1;               // level scales one-hot there; -1: one everywhere
  Index closed = -1;            // the token whose gate alone is closed; -1: none
};

Problem path_problem(const BatteryContext& context, Index tokens, const Path& path, Options options) {
  const Declaration& d = context.declaration();
  Case shape;
  shape.tokens = tokens, shape.key_dim = key_dim, shape.value_dim = value_dim, shape.gates = "none";
  shape = fitted(context, shape);
  shape.options = options;
  if (d.decay && !options.decay) shape.options.decay = Rational(1);
  Problem problem = draw_problem(shape, d);
  for (auto& [name, tensor] : problem.fields)
    if (name == "q" || name == "k" || name == "v" || name == "beta" || name == "level_scales")
      std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
  const auto at = [&](const char* name, Index t, Index c) -> double& {
    return problem.fields.at(name)
        .data[static_cast<std::size_t>(t * problem.fields.at(name).shape.back() + c)];
  };
  const Index hot = 1 % shape.key_dim;
  for (Index t = 0; t < tokens; ++t) {
    at("q", t, hot) = 1;
    if (!d.level_scales) continue;
    for (Index l = 0; l < problem.levels; ++l)
      at("level_scales", t, l) = path.level < 0 || l == path.level ? 1 : 0;
  }
  at("k", path.key, hot) = at("k", path.other_key, hot) = 1;
  at("v", path.value, path.value % shape.value_dim) = 1;
  if (d.beta)
    for (const Index t : {path.key, path.other_key}) at("beta", t, 0) = 1;
  if (path.closed >= 0) problem.fields.at("g").data[static_cast<std::size_t>(path.closed)] = closed_gate;
  return problem;
}

std::string words(const Path& path, Index tokens) {
  std::string text = "one path: k at tokens " + std::to_string(path.key) + " and " +
                     std::to_string(path.other_key) + ", v at " + std::to_string(path.value);
  if (path.level >= 0) text += ", level " + std::to_string(path.level) + " alone";
  if (path.closed >= 0) text += ", gate closed at " + std::to_string(path.closed) + " alone";
  return text + ", T=" + std::to_string(tokens);
}

std::vector<Index> edges(Index tokens, Index c) {
  std::vector<Index> list;
  for (const Index t :
       {Index(0), Index(1), c / 2, c - 1, c, c + 1, 2 * c - 1, 2 * c, 2 * c + 1, tokens - 2, tokens - 1})
    if (t >= 0 && t < tokens && std::find(list.begin(), list.end(), t) == list.end()) list.push_back(t);
  return list;
}

void exact_path(const BatteryContext& context, Index tokens, const Path& path, Findings& findings) {
  findings.input(words(path, tokens));
  const Problem problem = path_problem(context, tokens, path, {});
  if (!is_certified(context, problem)) return findings.leave_out("the path is not exact in this contract");
  if (const auto outputs = call(context, problem, findings))
    findings.exact(problem, *outputs, lattice_outputs(context, problem));
}

void bounded_path(const BatteryContext& context, Index tokens, const Path& path, Random& random,
                  Findings& findings) {
  const Declaration& d = context.declaration();
  Options options;
  if (d.decay) options.decay = random.one_in(2) ? Rational(1) / 2 : Rational(7) / 8;
  Problem problem = path_problem(context, tokens, path, options);
  if (Tensor* g = d.gates ? &problem.fields.at("g") : nullptr)
    for (double& x : g->data) x = random.one_in(4) ? -random.uniform() : 0;
  if (Tensor* beta = d.beta ? &problem.fields.at("beta") : nullptr)
    beta->data[static_cast<std::size_t>(path.key)] = 0.75;
  findings.input("decayed " + words(path, tokens));
  judge_call(context, round_inputs(context.kernel.contract, problem), false, findings);
}

// Read after 16 chunks, its key after the one closed gate.
void late_path(const BatteryContext& context, Index tokens, Index closed, Index key, Findings& findings) {
  if (key < tokens) exact_path(context, tokens, {key, key, key, -1, closed}, findings);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "paths");
  const Declaration& d = context.declaration();
  const Index c = context.chunk();
  for (const Index tokens :
       {2 * c + 3,
        static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(context.many(4, 8) * c))) + 1}) {
    const std::vector<Index> places = edges(tokens, c);
    const auto any = [&] { return places[random.below(places.size())]; };
    for (Index round = 0; round < context.many(24, 160); ++round) {
      Path path{any(), any(), any()};
      if (d.degree_q <= 1 && !random.one_in(4)) path.other_key = path.value;
      if (d.level_scales)
        path.level = static_cast<int>(random.below(
            static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(tokens - 1)) + 1)));
      exact_path(context, tokens, path, findings);
      path.level = -1;
      if (round % 3 == 0 && (d.decay || d.gates)) bounded_path(context, tokens, path, random, findings);
    }
    // Every level once, the value one token before the end of a block.
    for (int level = 0;
         d.level_scales && level <= static_cast<int>(std::bit_width(static_cast<std::uint64_t>(tokens - 1)));
         ++level)
      for (const Index t : {Index(0), tokens / 2}) exact_path(context, tokens, {t, t, t, level}, findings);
  }
  if (!d.gates || !admits(context.kernel.limits, "g", closed_gate)) return findings.outcome();
  const Index late = context.at_most(std::clamp<Index>(17 * c + 1, 1025, 1200));
  if (late < 4) return findings.outcome();
  late_path(context, late, std::min<Index>(5, c / 2), c + c / 2, findings);
  for (Index round = 0; round < context.many(1, 8); ++round) {
    const Index key = 1 + static_cast<Index>(random.below(static_cast<std::uint64_t>(late) / 2));
    late_path(context, late, static_cast<Index>(random.below(static_cast<std::uint64_t>(key))), key,
              findings);
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck paths_check{
    "paths",    "bitwise", "the outputs count the paths through one key and one value", "1 2 3 4 5", false,
    no_lattice, run};

}  // namespace attest
