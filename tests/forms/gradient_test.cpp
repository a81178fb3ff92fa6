// Gradients against exact differences: an output is affine in a single gate, beta, level scale or value, so the
// difference quotient is the derivative; in q and k by Euler's identity for homogeneous functions.
#include "reference/forms/gradient.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/forms/sample_problem.hpp"

namespace attest {
namespace {

class GradientOf : public testing::TestWithParam<const Operator*> {
 protected:
  void SetUp() override {
    if (!declaration().exact) GTEST_SKIP() << "no exact gradient";
  }
  const Operator& op() const { return *GetParam(); }
  const Declaration& declaration() const { return op().declaration(); }
  Tensors fields(std::uint64_t seed = 41) const {
    Tensors result = sample_fields(declaration(), {.tokens = 5}, seed);
    Draw draw(seed + 1);
    result["do"] = draw.tensor({1, 5, 2, 3}, &Draw::half);
    return result;
  }
  Problem problem(const Tensors& fields, const Options& options) const {
    return make_problem(fields, declaration(), options, "sample", Cotangents::required);
  }
  std::map<std::string, OracleTensor> gradient(const Tensors& fields, const Options& options,
                                               Evaluation how = {}) const {
    return evaluate_gradient(op(), problem(fields, options), {.how = how, .exact = true}).tensors;
  }
  // <do, o>
  Rational pairing(const Tensors& fields, const Options& options) const {
    const OracleTensor o =
        evaluate_oracle(op(), problem(fields, options), {.exact = true, .magnitude = false}).tensors.at("o");
    return dot(o, fields.at("do"));
  }
  static Rational dot(const OracleTensor& a, const Tensor& b) {
    Rational sum(0);
    for (std::size_t i = 0; i < b.data.size(); ++i)
      sum += *parse_rational(a.exact[i]) * rational_from(b.data[i]);
    return sum;
  }
};

TEST_P(GradientOf, EqualsTheExactDifferenceInWhatItIsAffineIn) {
  for (const bool normalize : {false, true}) {
    const Options options = sample_options(declaration(), normalize);
    const Tensors start = fields();
    const auto gradients = gradient(start, options);
    std::vector<std::string> affine{"v"};
    for (const char* name : {"alpha", "beta", "level_scales"})
      if (start.contains(name) && !options.normalize) affine.push_back(name);
    for (const std::string& name : affine)
      for (std::size_t i = 0; i < start.at(name).data.size(); i += 3) {
        Tensors moved = start;
        double& entry = moved[name].data[i];
        const double step = name == "alpha" && entry > 0.5 ? -0.25 : 0.25;
        entry += step;
        const Rational slope = (pairing(moved, options) - pairing(start, options)) / rational_from(step);
        EXPECT_EQ(gradients.at("d" + name).exact[i], to_text(slope)) << name << " " << i;
      }
  }
}

TEST_P(GradientOf, SatisfiesEulersIdentity) {
  Options options = sample_options(declaration());
  options.ridge = 0;
  const Tensors start = fields();
  const auto gradients = gradient(start, options);
  const Rational value = pairing(start, options);
  EXPECT_EQ(dot(gradients.at("dq"), start.at("q")), declaration().degree_q * value);
  if (declaration().degree_k >= 0) {
    EXPECT_EQ(dot(gradients.at("dk"), start.at("k")), declaration().degree_k * value);
  }
  EXPECT_NE(value, 0);
}

TEST_P(GradientOf, IsTheSameInEveryForm) {
  const Options options = sample_options(declaration(), true);
  const Tensors start = fields();
  const auto expected = gradient(start, options);
  for (Form form : declaration().forms) {
    if (!declaration().decayed_scan && (form == Form::scan || form == Form::chunk)) continue;
    const auto result = gradient(start, options, {form, 2});
    ASSERT_EQ(result.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_EQ(result.at(name).exact, tensor.exact) << name << " " << form_name(form);
  }
}

TEST_P(GradientOf, IsCertifiedAtAdaptivePrecision) {
  const Options options = sample_options(declaration(), true);
  const Tensors start = fields();
  const auto exact = gradient(start, options);
  const auto result = evaluate_gradient(op(), problem(start, options), {}).tensors;
  for (const auto& [name, tensor] : exact)
    for (std::size_t i = 0; i < tensor.exact.size(); ++i) {
      const OracleTensor& found = result.at(name);
      const Rational truth = *parse_rational(tensor.exact[i]);
      EXPECT_LE(abs(Rational(truth - rational_from(found.value[i]) - rational_from(found.low[i]))),
                rational_from(found.radius[i]));
      EXPECT_LE(found.radius[i], std::ldexp(std::abs(found.value[i]), -100));
      EXPECT_GE(found.magnitude[i] * (1 + 1e-12), std::abs(found.value[i])) << name << " " << i;
    }
}

TEST_P(GradientOf, SumsOverHeadsThatShareAField) {
  const Options options = sample_options(declaration());
  Tensors shared = fields(), repeated = shared;
  Tensor& k = shared["k"];
  Tensor one{{1, 5, 1, 2}, {}};
  for (Index t = 0; t < 5; ++t)
    for (Index c = 0; c < 2; ++c) {
      one.data.push_back(k.data[static_cast<std::size_t>(t * 4 + c)]);
      repeated["k"].data[static_cast<std::size_t>(t * 4 + 2 + c)] = one.data.back();
    }
  k = one;
  const OracleTensor sum = gradient(shared, options).at("dk"), each = gradient(repeated, options).at("dk");
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t c = 0; c < 2; ++c)
      EXPECT_EQ(sum.exact[t * 2 + c], to_text(Rational(*parse_rational(each.exact[t * 4 + c]) +
                                                       *parse_rational(each.exact[t * 4 + 2 + c]))));
}

// <dfinal, final> for a state that a run of no tokens hands through: the derivative is the cotangent itself.
TEST_P(GradientOf, HandsTheCotangentOfTheFinalStateThrough) {
  const Options options = sample_options(declaration());
  Draw draw(3);
  Tensors start = sample_fields(declaration(), {.tokens = 0}, 1);
  start["do"] = {{1, 0, 2, 3}, {}};
  for (const Moment& moment : declaration().moments) {
    std::vector<Index> shape{1, 2, 2, moment.value_columns ? 3 : 2};
    if (declaration().level_scales) shape.insert(shape.begin() + 2, 3);
    Tensor state = draw.tensor(shape, &Draw::half), cotangent = draw.tensor(shape, &Draw::half);
    if (declaration().level_scales)  // position 3: levels 1 and 2 alone
      for (std::size_t i = 0; i < state.data.size(); ++i)
        if (i % 18 < 6) state.data[i] = 0;
    start["initial_state." + moment.name] = state;
    start["dfinal_state." + moment.name] = cotangent;
  }
  if (declaration().level_scales) start["initial_state.position"] = {{1}, {3}};
  const auto gradients = gradient(start, options, {Form::stream});
  for (const Moment& moment : declaration().moments) {
    const OracleTensor& found = gradients.at("dinitial_state." + moment.name);
    for (std::size_t i = 0; i < found.exact.size(); ++i) {
      const bool dead = declaration().level_scales && i % 18 < 6;
      EXPECT_EQ(found.exact[i],
                dead ? "0" : to_text(rational_from(start.at("dfinal_state." + moment.name).data[i])));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gradient, GradientOf, testing::ValuesIn(all_operators()), [](const auto& info) {
  return info.param->declaration().name + "_" + info.param->declaration().variant;
});

TEST(Gradient, WithRespectToALogGateIsTheGateTimesThatOfTheLinearGate) {
  const Operator& op = operator_named("mamba2", "masked");
  Tensors logarithmic{{"q", {{2, 1}, {1, 2}}},
                      {"k", {{2, 1}, {1, 1}}},
                      {"v", {{2, 1}, {3, 5}}},
                      {"do", {{2, 1}, {1, 1}}},
                      {"g", {{2}, {-0.5, -1}}}};
  const auto problem = make_problem(logarithmic, op.declaration(), {}, "sample", Cotangents::required);
  const OracleTensor dg = evaluate_gradient(op, problem, {}).tensors.at("dg");
  EXPECT_EQ(dg.value[0], 0);
  EXPECT_DOUBLE_EQ(dg.value[1], 6 * std::exp(-1.0));
  EXPECT_DOUBLE_EQ(dg.magnitude[1], 6 * std::exp(-1.0));
}

TEST(Gradient, IsNaNWhereANaNOfTheDataReachesIt) {
  const Operator& op = operator_named("linear", "masked");
  Tensors fields{{"q", {{3, 1}, {1, 2, 3}}},
                 {"k", {{3, 1}, {1, 1, 1}}},
                 {"v", {{3, 1}, {3, std::nan(""), 5}}},
                 {"do", {{3, 1}, {1, 1, 1}}}};
  const auto gradients =
      evaluate_gradient(op, make_problem(fields, op.declaration(), {}, "sample", Cotangents::required), {})
          .tensors;
  EXPECT_EQ(gradients.at("dv").value,
            (std::vector<double>{6, 5, 3}));  // the values do not enter their own derivative
  const std::vector<double>&dq = gradients.at("dq").value, &dk = gradients.at("dk").value;
  EXPECT_EQ(dq[0], 3);
  EXPECT_TRUE(std::isnan(dq[1]) && std::isnan(dq[2]) && std::isnan(dk[1]));
  EXPECT_EQ(dk[0], 18);
  EXPECT_EQ(dk[2], 15);
}

TEST(Gradient, HasNoValueWhereADenominatorIsExactlyZero) {
  const Operator& op = operator_named("linear", "masked");
  Options options;
  options.normalize = true;
  Tensors fields{{"q", {{1, 1}, {0}}}, {"k", {{1, 1}, {1}}}, {"v", {{1, 1}, {3}}}, {"do", {{1, 1}, {1}}}};
  const auto gradients =
      evaluate_gradient(op, make_problem(fields, op.declaration(), options, "sample", Cotangents::required),
                        {.exact = true})
          .tensors;
  EXPECT_EQ(gradients.at("dv").exact[0], "nan");
  EXPECT_TRUE(std::isinf(gradients.at("dv").radius[0]));
}

TEST(Gradient, OfAClosedGateIsZeroAndFinite) {
  const Operator& op = operator_named("mamba2", "masked");
  Tensors closed{{"q", {{2, 1}, {1, 2}}},
                 {"k", {{2, 1}, {1, 1}}},
                 {"v", {{2, 1}, {3, 5}}},
                 {"do", {{2, 1}, {1, 1}}},
                 {"g", {{2}, {0, -std::numeric_limits<double>::infinity()}}}};
  const auto problem = make_problem(closed, op.declaration(), {}, "sample", Cotangents::required);
  const auto gradients = evaluate_gradient(op, problem, {}).tensors;
  EXPECT_EQ(gradients.at("dg").value, (std::vector<double>{0, 0}));
  EXPECT_EQ(gradients.at("dv").value, (std::vector<double>{1, 2}));
}

TEST(Gradient, OfTheDecayIsTheDerivativeOfThePolynomial) {
  const Operator& op = operator_named("retention", "masked");  // o_2 = g^2 v_0 + g v_1 + v_2
  Options options;
  options.decay = Rational(1) / 3;
  Tensors fields{{"q", {{3, 1}, {1, 1, 1}}},
                 {"k", {{3, 1}, {1, 1, 1}}},
                 {"v", {{3, 1}, {5, 7, 11}}},
                 {"do", {{3, 1}, {0, 0, 1}}}};
  const auto problem = make_problem(fields, op.declaration(), options, "sample", Cotangents::required);
  EXPECT_EQ(evaluate_gradient(op, problem, {.exact = true}).tensors.at("ddecay").exact[0],
            "31/3");  // 2/3 * 5 + 7
}

}  // namespace
}  // namespace attest
