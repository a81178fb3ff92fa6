// The metrics have tests of their own: what a NaN, an infinity, a bound of zero and an expected zero do to a
// verdict.
#include "reference/metrics/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 inf = std::numeric_limits<double>::infinity();

Matrix<double> row(std::vector<double> values) {
  Matrix<double> result(1, static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) result.data()[i] = values[i];
  return result;
}

ErrorModel model_of(std::vector<double> bound) {
  ErrorModel model;
  model.deterministic = model.accumulation = row(std::move(bound));
  model.variance = zeros<double>(1, model.deterministic.cols());
  return model;
}

Judgement judged(std::vector<double> got, std::vector<double> expected, std::vector<double> bound,
                 std::vector<double> radius = {}, Judging how = {}) {
  return judge(row(std::move(got)),
               {row(std::move(expected)), {}, radius.empty() ? Matrix<double>() : row(radius)},
               model_of(std::move(bound)), Contract{}, how);
}

TEST(Verdict, PassesErrorsWithinTheBoundTheEqualOneIncluded) {
  const Judgement j = judged({1.125, -2}, {1, -2}, {0.125, 0.125});
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
  EXPECT_EQ(j.worst, 0);
  EXPECT_EQ(j.worst_ratio, 1);
  EXPECT_EQ(j.grade.power, 1);
  EXPECT_EQ(j.compared, 2);
}

TEST(Verdict, FailsAnErrorBeyondTheBound) {
  const Judgement j = judged({1, 2.25}, {1, 2}, {0.125, 0.125});
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.violations, 1);
  EXPECT_EQ(j.worst, 1);
  EXPECT_EQ(j.worst_ratio, 2);
}

TEST(Verdict, FailsNonFiniteValuesHoweverWideTheBound) {
  for (const double bad : {nan, inf, -inf}) {
    EXPECT_EQ(judged({bad, 1}, {1, 1}, {0.1, 0.1}).verdict, Verdict::fail) << bad;
    EXPECT_EQ(judged({bad, 1}, {1, 1}, {inf, 0.1}).verdict, Verdict::fail) << bad;
  }
}

TEST(Verdict, ABoundThatIsNotANumberPassesNothing) {
  EXPECT_NE(judged({1, 1}, {1, 1}, {nan, nan}).verdict, Verdict::pass);
  EXPECT_NE(judged({2, 1}, {1, 1}, {nan, 0.1}).verdict, Verdict::pass);
}

TEST(Verdict, WhereTheOracleIsNotFiniteTheKernelMustNotBeEither) {
  EXPECT_EQ(judged({nan, 1}, {nan, 1}, {nan, 0.1}).verdict, Verdict::pass);
  EXPECT_EQ(judged({inf, 1}, {nan, 1}, {nan, 0.1}).verdict, Verdict::pass);
  EXPECT_EQ(judged({1, 1}, {nan, 1}, {nan, 0.1}).verdict, Verdict::fail);
  EXPECT_EQ(judged({nan, nan}, {nan, inf}, {1, 1}).verdict, Verdict::undecided);  // nothing compared
}

TEST(Verdict, ABoundOfZeroAsksForTheExactValue) {
  EXPECT_EQ(judged({1, 3}, {1, 3}, {0, 0}).verdict, Verdict::pass);
  const Judgement j = judged({1, std::nextafter(3.0, 4.0)}, {1, 3}, {0, 0});
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.worst_ratio, inf);
}

TEST(Verdict, AnExpectedZeroHasNoPowerAndAnInfiniteUlpError) {
  const Judgement exact = judged({0, 1}, {0, 1}, {0.125, 0.125});
  EXPECT_EQ(exact.verdict, Verdict::pass);
  EXPECT_EQ(exact.grade.power, 0.5);
  EXPECT_EQ(exact.grade.ulp.max, 0);
  EXPECT_EQ(judged({0.0625, 1}, {0, 1}, {0.125, 0.125}).grade.ulp.max, inf);
  EXPECT_EQ(judged({-0.0, 1}, {0.0, 1}, {0, 0}).verdict, Verdict::pass);
}

TEST(Verdict, IsUndecidedWithoutPowerButFailsAllTheSame) {
  EXPECT_EQ(judged({1, 1, 1}, {1, 1, 1}, {0.25, 0.25, 0.125}).verdict, Verdict::undecided);
  EXPECT_EQ(judged({1, 1, 1}, {1, 1, 1}, {0.25, 0.2, 0.125}).verdict, Verdict::pass);
  EXPECT_EQ(judged({2, 1, 1}, {1, 1, 1}, {0.25, 0.25, 0.125}).verdict, Verdict::fail);
}

TEST(Verdict, IsUndecidedWhenTheOracleIsNotFarBelowTheBound) {
  EXPECT_EQ(judged({1}, {1}, {0x1p-4}, {0x1p-14}).verdict, Verdict::pass);
  EXPECT_EQ(judged({1}, {1}, {0x1p-4}, {0x1.8p-14}).verdict, Verdict::undecided);
  EXPECT_EQ(judged({1}, {1}, {0x1p-4}, {nan}).verdict, Verdict::undecided);
  EXPECT_EQ(judged({1}, {1}, {0x1p-4}, {inf}).verdict, Verdict::undecided);
  EXPECT_EQ(judged({1}, {1}, {0}, {0}).verdict, Verdict::pass);
}

TEST(Verdict, FailsWhatNoValueWithinTheRadiusCouldExcuse) {
  EXPECT_EQ(judged({2}, {1}, {0x1p-4}, {0x1p-5}).verdict, Verdict::fail);
  EXPECT_EQ(judged({1.09375}, {1}, {0x1p-4}, {0x1p-5}).verdict, Verdict::undecided);
  EXPECT_EQ(judged({2, 1}, {1, 1}, {0x1p-4, 0x1p-4}, {0, nan}).verdict, Verdict::fail);
}

TEST(Verdict, UsesTheLowPartOfTheOracle) {
  const Expected expected{row({1}), row({0x1p-60}), {}};
  EXPECT_EQ(judge(row({1}), expected, model_of({0x1p-61}), Contract{}, {}).verdict, Verdict::fail);
  EXPECT_EQ(judge(row({1}), expected, model_of({0x1p-60}), Contract{}, {}).verdict, Verdict::pass);
}

ErrorModel statistical_model() {
  ErrorModel model = model_of({0.125});
  model.accumulation = row({0.001});
  model.variance = row({0.001 * 0.001});
  model.stages = 3;
  return model;
}

TEST(Verdict, SuspectsWhatIsWithinDButBeyondTheStatisticalBound) {
  const double lambda = std::sqrt(2 * std::log(2.0 * 7 * 3 / 1e-9)) / (1 - 0x1p-24),
               limit = 0.001 + 0.001 * lambda;
  const Judging statistical{true, 7}, plain{false, 7};
  const auto verdict = [](double error, const Judging& how) {
    return judge(row({1 + error}), {row({1}), {}, {}}, statistical_model(), Contract{}, how).verdict;
  };
  EXPECT_EQ(verdict(0.999 * limit, statistical), Verdict::pass);
  EXPECT_EQ(verdict(1.001 * limit, statistical), Verdict::suspect);
  EXPECT_EQ(verdict(1.001 * limit, plain), Verdict::pass);
  EXPECT_EQ(verdict(0.13, statistical), Verdict::fail);
}

TEST(Verdict, TheStatisticalBoundNeverExceedsD) {
  ErrorModel model = statistical_model();
  model.variance = row({100});
  EXPECT_EQ(passing_bound(model, Contract{}, 1, true)(0, 0), 0.125);
}

TEST(Verdict, AnUndecidedModelDecidesNothing) {
  ErrorModel model = model_of({0.125});
  model.undecided = true, model.reason = "range: S reaches 1e+05 in fp16";
  const Judgement j = judge(row({5}), {row({1}), {}, {}}, model, Contract{}, {});
  EXPECT_EQ(j.verdict, Verdict::undecided);
  EXPECT_EQ(j.reason, model.reason);
}

TEST(Verdict, AnotherShapeFailsAndNoElementsDecideNothing) {
  EXPECT_EQ(judged({1, 1}, {1}, {0.1}).verdict, Verdict::fail);
  EXPECT_EQ(judged({}, {}, {}).verdict, Verdict::undecided);
}

TEST(Verdict, TheGradeReportsQuantilesOfTheRatioAndOfTheUlps) {
  std::vector<double> got, expected, bound;
  for (int i = 1; i <= 200; ++i)
    got.push_back(1 + i * 0x1p-20), expected.push_back(1), bound.push_back(200 * 0x1p-20);
  const Grade grade = judged(got, expected, bound).grade;
  EXPECT_DOUBLE_EQ(grade.ratio.p50, 0.5);
  EXPECT_DOUBLE_EQ(grade.ratio.p99, 0.99);
  EXPECT_DOUBLE_EQ(grade.ratio.max, 1);
  EXPECT_DOUBLE_EQ(grade.ulp.max, 200 * 16);
}

TEST(Verdict, TheWorstOfSeveralIsAFailThenUndecidedThenSuspect) {
  EXPECT_EQ(worse(Verdict::fail, Verdict::undecided), Verdict::fail);
  EXPECT_EQ(worse(Verdict::suspect, Verdict::undecided), Verdict::undecided);
  EXPECT_EQ(worse(Verdict::suspect, Verdict::pass), Verdict::suspect);
  EXPECT_EQ(worse(Verdict::pass, Verdict::pass), Verdict::pass);
}

}  // namespace
}  // namespace attest
