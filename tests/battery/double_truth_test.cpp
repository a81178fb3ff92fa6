// The operator in double with a certified radius (gpu_checks/battery/double_truth.hpp), against the oracle over intervals.
#include "gpu_checks/battery/double_truth.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_checks/battery/layout.hpp"
#include "reference/cases/case.hpp"
#include "reference/cases/random.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

struct Compared {
  Index entries = 0, outside = 0, inexact = 0;  // inexact: the value alone is not the exact one
};

Compared compare(const Operator& op, const Problem& problem, int algebra) {
  OracleRequest request;
  request.magnitude = false, request.threads = 1;
  const OracleResult exact = evaluate_oracle(op, problem, request);
  Compared compared;
  for (const auto& [name, quick] : double_truth(op, problem, algebra)) {
    const OracleTensor& truth = exact.tensors.at(name);
    EXPECT_EQ(quick.shape, truth.shape) << name;
    for (std::size_t i = 0; i < quick.value.size(); ++i) {
      if (!std::isfinite(truth.value[i])) continue;
      const double error = std::abs((quick.value[i] - truth.value[i]) - truth.low[i]);
      ++compared.entries, compared.inexact += error > 0;
      compared.outside += !(error <= quick.radius[i] + truth.radius[i]);
    }
  }
  return compared;
}

Case shape_of(std::uint64_t seed, Random& random, const Declaration& d) {
  Case shape;
  const auto upto = [&](std::uint64_t n) { return 1 + static_cast<Index>(random.below(n)); };
  shape.op = d.name, shape.variant = d.variant, shape.seed = seed;
  shape.tokens = upto(40), shape.key_dim = upto(5), shape.value_dim = upto(5), shape.heads = upto(2);
  shape.recipe = recipes().at(random.below(recipes().size())).name;
  shape.gates = gate_recipes().at(random.below(gate_recipes().size())).name;
  const Index parts = random.one_in(2) ? 64 : 67;  // a decay that double holds, and one that it does not
  if (d.decay) shape.options.decay = Rational(static_cast<Index>(random.below(65))) / parts;
  if (d.ridge)
    shape.options.ridge = Rational(static_cast<Index>(random.below(9))) / (random.one_in(2) ? 8 : 7);
  if (d.unit_scale && random.one_in(2)) shape.options.scale = Rational(1) / 3;
  if (d.normalize && random.one_in(2))
    shape.options.normalize = true, shape.options.epsilon = Rational(1) / 7;
  return shape;
}

// The second half of a problem, from the state that a stream in double leaves after the first.
Problem second_half(const Operator& op, const Problem& problem) {
  const Index half = problem.tokens / 2;
  Arithmetic<double> plain;
  const Tensors states = run<double>(op, token_range(problem, 0, half), {Form::stream, 0, 0}, plain);
  return continued_from(token_range(problem, half, problem.tokens), states, op.declaration(),
                        std::vector<Index>(static_cast<std::size_t>(problem.sequences()), half));
}

TEST(DoubleTruth, EveryEntryLiesWithinItsRadiusOfTheOracle) {
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    if (d.moments.empty()) continue;
    Compared all;
    Random random(5, "double truth");
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      Problem problem = draw_problem(shape_of(seed, random, d), d);
      if (seed % 3 == 0) problem = second_half(*op, problem);
      for (int algebra = 0; algebra < static_cast<int>(d.algebras.size()); ++algebra) {
        const Compared one = compare(*op, problem, algebra);
        EXPECT_EQ(one.outside, 0) << d.name << ' ' << d.variant << " seed " << seed << " algebra " << algebra;
        all.entries += one.entries, all.inexact += one.inexact;
      }
    }
    // A radius of 0 would not do: the comparison can fail.
    EXPECT_GT(all.entries, 0) << d.name;
    EXPECT_GT(all.inexact, 0) << d.name << ' ' << d.variant;
  }
}

// o = q decay S, of a state of ones and a token that writes nothing: no operation rounds, the fraction itself may.
TEST(DoubleTruth, IsExactWhereDoubleHoldsTheFractionAndHasARadiusWhereItDoesNot) {
  const auto o_of = [](const std::string& options, double q) {
    const Case shape = parse_case("retention variant=masked T=1 d=1 dv=1 H=1 B=1 " + options + " seed=1");
    const Operator& op = operator_named(shape.op, shape.variant);
    Problem problem = draw_problem(shape, op.declaration());
    problem.fields["q"].data = {q}, problem.fields["k"].data = {0}, problem.fields["v"].data = {0};
    problem.fields["initial_state.S"] = {{1, 1, 1, 1}, {1}};
    EXPECT_EQ(compare(op, problem, 0).outside, 0) << options;
    return double_truth(op, problem, 0).at("o");
  };
  EXPECT_EQ(o_of("decay=3/64", 1).radius[0], 0);
  EXPECT_GT(o_of("decay=3/67", 1).radius[0], 0);
  EXPECT_EQ(o_of("decay=1/64 scale=1/3", 0).radius[0], 0);
  EXPECT_GT(o_of("decay=1/64 scale=1/3", 1).radius[0], 0);
}

}  // namespace
}  // namespace attest
