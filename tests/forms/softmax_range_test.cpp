#include <gtest/gtest.h>

#include <cmath>

#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"

namespace attest {
namespace {

// Scores of the size of s^2 decide for one key: the weights are 1 and exp(-huge), and the value is that key's.
TEST(Softmax, OfHugeScoresIsTheValueOfTheWinningKey) {
  const Operator& op = operator_named("softmax", "masked");
  for (double s : {1e3, 1e15, 1e30, 1e100}) {
    const Tensors fields{{"q", {{2, 1}, {s, s}}}, {"k", {{2, 1}, {s, -s}}}, {"v", {{2, 1}, {3, 5}}}};
    Options options;
    options.scale = Rational(1);
    const OracleTensor o =
        evaluate_oracle(op, make_problem(fields, op.declaration(), options, "huge"), {}).tensors.at("o");
    for (double value : o.value) EXPECT_EQ(value, 3) << s;
    for (double radius : o.radius) EXPECT_LE(radius, std::ldexp(3.0, -100)) << s;
  }
}

TEST(Softmax, DoesNotDependOnACommonShiftOfTheScores) {
  const Operator& op = operator_named("softmax", "masked");
  const auto evaluate = [&](double shift) {
    const Tensors fields{
        {"q", {{2, 2}, {1, 1, 1, 1}}}, {"k", {{2, 2}, {0.25, shift, -0.5, shift}}}, {"v", {{2, 1}, {3, 5}}}};
    Options options;
    options.scale = Rational(1);
    return evaluate_oracle(op, make_problem(fields, op.declaration(), options, "shift"), {})
        .tensors.at("o")
        .value.at(1);
  };
  const double there = evaluate(0);
  EXPECT_GT(there, 3);
  EXPECT_LT(there, 5);
  for (double shift : {1e6, 1e20, -1e40}) EXPECT_EQ(evaluate(shift), there);
  EXPECT_NEAR(there, (3 + 5 * std::exp(-0.75)) / (1 + std::exp(-0.75)), 1e-14);
}

}  // namespace
}  // namespace attest
