// value: o and the final states against the oracle, on drawn inputs of many recipes.
// Law: |kernel - exact| <= D, the bound of the kernel's contract; on independent draws the statistical bound decides
// between PASS and SUSPECT, and SUSPECT is asked again with fresh seeds. Outputs: all, by bound.
// Must kill: precision (family 9), wrong decays and gates (2), scale and ridge (9, 11), cross terms (3).
// Source: NUMERICS, error model; Higham and Mary 2019.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "reference/cases/random.hpp"
#include "reference/cases/recipe.hpp"

namespace attest {
namespace {

struct Input {
  const char *recipe, *gates;
  Index tokens, key_dim, value_dim, heads, batch;
};

std::vector<Input> inputs(const BatteryContext& context) {
  const Index c = context.chunk();
  std::vector<Input> list = {
      {"gaussian", "published", 3 * c + 5, 8, 8, 2, 1},
      {"gaussian", "uniform", 2 * c + 1, 16, 7, 1, 2},
      {"correlated", "published", 2 * c + 3, 8, 8, 1, 1},
      {"growing", "none", 2 * c, 8, 4, 1, 1},
      {"range", "published", c + 7, 8, 8, 1, 1},
      {"cancellation", "published", 2 * c + 2, 8, 8, 1, 1},
      {"sparse", "uniform", 2 * c + 9, 8, 8, 1, 1},
      {"repeated", "published", c + 3, 8, 8, 1, 1},
      {"gaussian", "published", context.at_most(600), 8, 6, 1, 1},
  };
  if (context.effort == Effort::quick) return list;
  for (const RecipeInfo& recipe : recipes())
    for (const RecipeInfo& gates : gate_recipes())
      list.push_back({recipe.name.c_str(), gates.name.c_str(), 2 * c + 5, 16, 12, 2, 1});
  list.push_back({"gaussian", "published", 8 * c + 1, 32, 32, 1, 1});
  return list;
}

bool independent(const BatteryContext& context, const Input& input) {
  return find_recipe(input.recipe)->independent && find_gate_recipe(input.gates)->independent &&
         !context.kernel.contract.truncates;
}

Case case_of(const Input& input, std::uint64_t seed) {
  Case shape;
  shape.tokens = input.tokens, shape.key_dim = input.key_dim, shape.value_dim = input.value_dim;
  shape.heads = input.heads, shape.batch = input.batch, shape.recipe = input.recipe,
  shape.gates = input.gates;
  shape.seed = seed;
  return shape;
}

// Options beyond the defaults, one at a time.
std::vector<Options> option_list(const BatteryContext& context) {
  const Declaration& d = context.declaration();
  std::vector<Options> list;
  const auto add = [&](auto&& set) { set(list.emplace_back()); };
  if (d.decay) add([](Options& o) { o.decay = Rational(3) / 4; });
  if (d.ridge) add([](Options& o) { o.ridge = Rational(1) / 2, o.decay = Rational(1); });
  if (d.unit_scale) add([](Options& o) { o.scale = Rational(5) / 16; });
  if (!d.normalize) return list;
  for (const Rational& epsilon : {Rational(1) / 4, Rational(1) / 100, Rational(0), Rational(1) / 1000000})
    add([&](Options& o) { o.normalize = true, o.epsilon = epsilon; });
  return list;
}

void judge_drawn(const BatteryContext& context, const Case& shape, bool statistical, Findings& findings) {
  findings.input(short_text(fitted(context, shape)));
  const Index before = findings.suspicious();
  judge_call(context, drawn(context, shape), statistical, findings);
  if (findings.suspicious() == before) return;
  for (const char* again : {"again/1", "again/2"}) {
    Case fresh = shape;
    fresh.seed = Random(shape.seed, again).bits() >> 1;
    Findings second(context.kernel);
    judge_call(context, drawn(context, fresh), statistical, second);
    if (second.failed() || second.suspicious() > 0)
      return findings.fault("beyond the statistical bound, and again with seed " +
                            std::to_string(fresh.seed));
  }
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  std::uint64_t seed = context.seed;
  for (const Input& input : inputs(context))
    judge_drawn(context, case_of(input, seed++), independent(context, input), findings);
  for (const Options& options : option_list(context)) {
    Case shape = case_of({"gaussian", "published", 2 * context.chunk() + 3, 8, 6, 1, 1}, seed++);
    shape.options = options;
    if (options.normalize) shape.recipe = "uniform";
    judge_drawn(context, shape, false, findings);
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck value_check{
    "value",    "bound", "the outputs lie within the bound of the contract around the exact value",
    "2 3 9 11", false,   [](const BatteryContext&) { return std::string(); },
    run};

}  // namespace attest
