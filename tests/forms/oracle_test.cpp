// The oracle's certificate: against exact values, at fixed and adaptive precision, with NaN and infinities among the data.
#include "reference/forms/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/forms/sample_problem.hpp"

namespace attest {
namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN(),
                 infinite = std::numeric_limits<double>::infinity();

Rational distance(const Rational& exact, double value, double low) {
  return abs(Rational(exact - rational_from(value) - rational_from(low)));
}

class OracleOf : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }
  const Declaration& declaration() const { return op().declaration(); }
  Problem sample(const Options& options, std::uint64_t seed = 17) const {
    return make_problem(sample_fields(declaration(), {.batch = 1, .tokens = 9}, seed), declaration(), options,
                        "sample");
  }
};

TEST_P(OracleOf, IsWithinItsRadiusOfTheExactValueInEveryForm) {
  if (!declaration().exact) GTEST_SKIP() << "no exact value";
  Options options = sample_options(declaration(), true);
  if (declaration().decay && declaration().decayed_scan) options.decay = Rational(1) / 3;
  if (declaration().decay && !declaration().decayed_scan) options.decay.reset();
  const Problem problem = sample(options);
  const OracleResult exact = evaluate_oracle(op(), problem, {.exact = true});
  for (Form form : declaration().forms)
    for (const std::optional<int> bits : {std::optional<int>(), std::optional<int>(60)}) {
      const OracleResult result = evaluate_oracle(op(), problem, {.how = Evaluation{form}, .bits = bits});
      ASSERT_EQ(result.tensors.size(), exact.tensors.size());
      for (const auto& [name, tensor] : result.tensors)
        for (std::size_t i = 0; i < tensor.value.size(); ++i) {
          const Rational truth = *parse_rational(exact.tensors.at(name).exact[i]);
          EXPECT_LE(distance(truth, tensor.value[i], tensor.low[i]), rational_from(tensor.radius[i]))
              << name << " " << i;
          if (!bits) {
            EXPECT_LE(tensor.radius[i], std::ldexp(std::abs(tensor.value[i]), -100)) << name << " " << i;
          }
        }
    }
}

TEST_P(OracleOf, KeepsItsValuesWhenOthersAreNaN) {
  const Tensors clean = sample_fields(declaration(), {.tokens = 6}, 23);
  for (const double bad : {nan_value, infinite, -infinite}) {
    Tensors fields = clean;
    fields["v"].data[(3 * 2 + 1) * 3 + 2] = bad;  // token 3, head 1, column 2
    const Options options = sample_options(declaration());
    const OracleResult expected =
        evaluate_oracle(op(), make_problem(clean, declaration(), options, "sample"), {});
    const OracleResult result =
        evaluate_oracle(op(), make_problem(fields, declaration(), options, "sample"), {});
    const OracleTensor &o = result.tensors.at("o"), &before = expected.tensors.at("o");
    for (std::size_t i = 0; i < o.value.size(); ++i) {
      const bool reached = i / 6 >= 3 && i % 6 == 5;
      EXPECT_EQ(std::isnan(o.value[i]), reached) << i;
      if (reached) {
        EXPECT_EQ(o.radius[i], infinite);
      } else {
        EXPECT_EQ(o.value[i], before.value[i]);
      }
    }
  }
}

TEST_P(OracleOf, SaysThatAQueryOfNaNReachesItsOwnRowAtLeast) {
  Tensors fields = sample_fields(declaration(), {.tokens = 6}, 23);
  fields["q"].data[2 * 4] = nan_value;  // token 2, head 0
  const OracleResult result =
      evaluate_oracle(op(), make_problem(fields, declaration(), sample_options(declaration()), "sample"), {});
  const OracleTensor& o = result.tensors.at("o");
  for (std::size_t i = 0; i < o.value.size(); ++i) {
    const std::size_t token = i / 6, head = i % 6 / 3;
    if (token < 2 || head == 1) {
      EXPECT_FALSE(std::isnan(o.value[i])) << i;
    }
    if (token == 2 && head == 0) {
      EXPECT_TRUE(std::isnan(o.value[i])) << i;
    }
  }
}

TEST_P(OracleOf, GivesTheSameRowsAloneAndOnAnyNumberOfThreads) {
  const Problem problem = sample(sample_options(declaration(), true));
  const OracleResult whole = evaluate_oracle(op(), problem, {.threads = 1});
  const OracleResult part = evaluate_oracle(op(), problem, {.rows = {{2, 5}}, .threads = 3});
  EXPECT_EQ(part.tensors.size(), 1u);
  const OracleTensor &o = part.tensors.at("o"), &all = whole.tensors.at("o");
  EXPECT_EQ(o.shape, (std::vector<Index>{1, 3, 2, 3}));
  EXPECT_EQ(o.value, std::vector<double>(all.value.begin() + 12, all.value.begin() + 30));
  EXPECT_EQ(o.magnitude, std::vector<double>(all.magnitude.begin() + 12, all.magnitude.begin() + 30));
}

TEST_P(OracleOf, HasAMagnitudeOfAtLeastTheValue) {
  const OracleResult result = evaluate_oracle(op(), sample(sample_options(declaration(), true)), {});
  for (const auto& [name, tensor] : result.tensors)
    for (std::size_t i = 0; i < tensor.value.size(); ++i)
      EXPECT_GE(tensor.magnitude[i] * (1 + 1e-12), std::abs(tensor.value[i])) << name << " " << i;
}

TEST_P(OracleOf, AgreesWithTheDoubleDoubleSumsWithinBothRadii) {
  const std::set<std::string> covered{
      "linear", "retention", "mamba2", "log_linear",  "log_linear_mamba2",     "hla2",
      "ahla",   "hla3",      "delta",  "gated_delta", "log_linear_gated_delta"};
  const bool expected = covered.contains(declaration().name) && declaration().variant != "printed";
  for (const bool normalize : {false, true}) {
    Options options = sample_options(declaration(), normalize);
    options.ridge = 0;
    options.scale = Rational(1) / 3;
    if (declaration().decay) options.decay = Rational(2) / 3;
    Tensors fields = sample_fields(declaration(), {.tokens = 9}, 31);
    if (declaration().gates) {
      fields.erase("alpha");
      fields["g"] = Tensor{{1, 9, 2}, std::vector<double>(18, -0.3)};
      fields["g"].data[7] = -infinite;
    }
    const Problem problem = make_problem(fields, declaration(), options, "sample");
    const OracleResult quick = evaluate_oracle(op(), problem, {.rows = {{0, 9}}, .double_double = true}),
                       slow = evaluate_oracle(op(), problem, {.rows = {{0, 9}}});
    EXPECT_EQ(quick.method == "double-double", expected) << quick.method;
    const OracleTensor &a = quick.tensors.at("o"), &b = slow.tensors.at("o");
    for (std::size_t i = 0; i < a.value.size(); ++i) {
      const Rational apart = abs(Rational(rational_from(a.value[i]) + rational_from(a.low[i]) -
                                          rational_from(b.value[i]) - rational_from(b.low[i])));
      EXPECT_LE(apart, rational_from(a.radius[i]) + rational_from(b.radius[i])) << i;
      EXPECT_LE(a.radius[i], std::ldexp(a.magnitude[i], -59) + 1e-300) << i;
      EXPECT_NEAR(a.magnitude[i], b.magnitude[i], 1e-9 * b.magnitude[i] + 1e-280) << i;
    }
  }
}

// 1e300 and zeros: products overflow and meet zeros, but no input is NaN.
TEST_P(OracleOf, HasNoMagnitudeThatIsNaNWhereTheValueIsNot) {
  Tensors fields = sample_fields(declaration(), {.tokens = 5}, 29);
  for (const char* name : {"q", "k", "v"})
    for (std::size_t i = 0; i < fields[name].data.size(); ++i) fields[name].data[i] = i % 2 ? 0 : 1e300;
  const OracleResult result = evaluate_oracle(op(), make_problem(fields, declaration(), {}, "sample"), {});
  for (const auto& [name, tensor] : result.tensors)
    for (std::size_t i = 0; i < tensor.magnitude.size(); ++i)
      EXPECT_FALSE(std::isnan(tensor.magnitude[i]) && !std::isnan(tensor.value[i])) << name << " " << i;
}

INSTANTIATE_TEST_SUITE_P(Oracle, OracleOf, testing::ValuesIn(all_operators()), [](const auto& info) {
  return info.param->declaration().name + "_" + info.param->declaration().variant;
});

TEST(Oracle, GivesNoValueWhereTheDenominatorIsExactlyZero) {
  const Operator& op = operator_named("linear", "masked");
  Options options;
  options.normalize = true;
  const Tensors fields{{"q", {{2, 1}, {0, 1}}}, {"k", {{2, 1}, {1, 1}}}, {"v", {{2, 1}, {3, 5}}}};
  const Problem problem = make_problem(fields, op.declaration(), options, "sample");
  for (const bool exact : {true, false}) {
    const OracleTensor o = evaluate_oracle(op, problem, {.exact = exact}).tensors.at("o");
    EXPECT_TRUE(std::isnan(o.value[0]));
    EXPECT_EQ(o.radius[0], infinite);
    EXPECT_EQ(o.value[1], 4);
    EXPECT_EQ(o.radius[1], 0);
  }
}

TEST(Oracle, RaisesThePrecisionUntilACancelledValueIsCertified) {
  const Operator& op = operator_named("linear", "masked");
  const double huge = std::ldexp(1.0, 500), tiny = std::ldexp(1.0, -500);
  const Tensors fields{
      {"q", {{3, 1}, {1, 1, 1}}}, {"k", {{3, 1}, {huge, tiny, huge}}}, {"v", {{3, 1}, {1, 1, -1}}}};
  const OracleResult result = evaluate_oracle(op, make_problem(fields, op.declaration(), {}, "sample"), {});
  EXPECT_EQ(result.tensors.at("o").value[2], tiny);
  EXPECT_GT(result.bits, first_bits);
  const OracleResult fixed =
      evaluate_oracle(op, make_problem(fields, op.declaration(), {}, "sample"), {.bits = 100});
  EXPECT_GT(fixed.tensors.at("o").radius[2], tiny);  // and too little precision says so
}

TEST(Oracle, TakesALogGateOfMinusInfinityAsZero) {
  const Operator& op = operator_named("mamba2", "masked");
  Tensors fields{{"q", {{2, 1}, {1, 1}}},
                 {"k", {{2, 1}, {1, 1}}},
                 {"v", {{2, 1}, {3, 5}}},
                 {"g", {{2}, {0, -infinite}}}};
  const OracleTensor o =
      evaluate_oracle(op, make_problem(fields, op.declaration(), {}, "sample"), {}).tensors.at("o");
  EXPECT_EQ(o.value, (std::vector<double>{3, 5}));
}

// (q k) v, of which q k is below the smallest double, or above the largest.
TEST(Oracle, MagnitudesNeitherUnderflowNorOverflowOnTheWay) {
  const Operator& op = operator_named("linear", "masked");
  for (const double x : {1e-200, 1e200}) {
    const double v = x < 1 ? 1e300 : 1e-300;
    const Tensors fields{{"q", {{1, 1}, {x}}}, {"k", {{1, 1}, {x}}}, {"v", {{1, 1}, {v}}}};
    const OracleTensor o =
        evaluate_oracle(op, make_problem(fields, op.declaration(), {}, "sample"), {}).tensors.at("o");
    EXPECT_NEAR(o.magnitude[0] / o.value[0], 1, 1e-12);
  }
}

TEST(Oracle, SumsAbsoluteValuesForTheMagnitudeOfSoftmax) {
  const Operator& op = operator_named("softmax", "masked");
  const Tensors fields{{"q", {{2, 1}, {0, 0}}}, {"k", {{2, 1}, {1, 1}}}, {"v", {{2, 1}, {4, -2}}}};
  const OracleTensor o =
      evaluate_oracle(op, make_problem(fields, op.declaration(), {}, "sample"), {}).tensors.at("o");
  EXPECT_EQ(o.value, (std::vector<double>{4, 1}));
  EXPECT_EQ(o.magnitude, (std::vector<double>{4, 3}));
}

}  // namespace
}  // namespace attest
