#include "gpu_checks/kernels/cpu/emulated_arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/cases/random.hpp"

namespace attest {
namespace {

template <class S>
Matrix<S> gaussian(Index rows, Index columns, std::uint64_t seed) {
  Random random(seed);
  Matrix<S> matrix(rows, columns);
  for (Index i = 0; i < matrix.size(); ++i) matrix.data()[i] = static_cast<S>(random.gaussian());
  return matrix;
}

// The definition, written once more with the slow roundings.
double rounded_dot(const Matrix<float>& a, Index i, const Matrix<float>& b, Index j, const Format& operands,
                   const Format& sums, Rounding rounding) {
  double sum = 0;
  for (Index k = 0; k < a.cols(); ++k) {
    const double term = round_to(operands, a(i, k)) * round_to(operands, b(k, j));  // exact in double
    const double error_free = sum + term;  // of two fp32 or narrower products
    const double part = error_free - sum, low = (sum - (error_free - part)) + (term - part);
    sum = round_to(sums, error_free, low, rounding);
  }
  return sum;
}

TEST(EmulatedArithmetic, RoundsOperandsAndAccumulatesInSinglePrecision) {
  for (const char* format : {"bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2"}) {
    EmulatedArithmetic<float> arithmetic(parse_contract(std::string("product=") + format));
    const auto a = gaussian<float>(7, 33, 1), b = gaussian<float>(33, 5, 2);
    const Matrix<float> c = arithmetic.product(a, b);
    for (Index i = 0; i < 7; ++i)
      for (Index j = 0; j < 5; ++j)
        EXPECT_EQ(c(i, j), rounded_dot(a, i, b, j, *find_format(format), fp32, Rounding::nearest_even))
            << format;
  }
}

TEST(EmulatedArithmetic, TruncatesOnlyWhereAsked) {
  EmulatedArithmetic<float> nearest(parse_contract("product=bf16")),
      truncating(parse_contract("product=bf16 accumulate=fp32/truncate"));
  const auto a = gaussian<float>(9, 40, 3), b = gaussian<float>(40, 9, 4);
  const Matrix<float> c = truncating.product(a, b);
  for (Index i = 0; i < 9; ++i)
    for (Index j = 0; j < 9; ++j)
      EXPECT_EQ(c(i, j), rounded_dot(a, i, b, j, bf16, fp32, Rounding::toward_zero));
  EXPECT_FALSE(c == nearest.product(a, b));
}

TEST(EmulatedArithmetic, RoundsEveryStageToItsOwnFormat) {
  EmulatedArithmetic<float> arithmetic(parse_contract("intermediate=bf16 state=fp16 output=tf32"));
  const auto x = gaussian<float>(4, 4, 5);
  const auto intermediate = arithmetic.operand("x", x), state = arithmetic.carry("x", x),
             output = arithmetic.output(x);
  bool differs = false;
  for (Index i = 0; i < x.size(); ++i) {
    EXPECT_EQ(intermediate.data()[i], round_to(bf16, x.data()[i]));
    EXPECT_EQ(state.data()[i], round_to(fp16, x.data()[i]));
    EXPECT_EQ(output.data()[i], round_to(tf32, x.data()[i]));
    differs |= intermediate.data()[i] != x.data()[i];
  }
  EXPECT_TRUE(differs);
}

TEST(EmulatedArithmetic, LeavesFp32AndFp64Alone) {
  EmulatedArithmetic<float> single{Contract()};
  const auto x = gaussian<float>(5, 6, 6), y = gaussian<float>(6, 5, 7);
  EXPECT_EQ(single.product(x, y), product(x, y));
  EmulatedArithmetic<double> wide(parse_contract(
      "input=fp64 product=fp64 accumulate=fp64 intermediate=fp64 state=fp64 gate_sum=fp64 output=fp64"));
  const auto u = gaussian<double>(5, 6, 8), w = gaussian<double>(6, 5, 9);
  EXPECT_EQ(wide.product(u, w), product(u, w));
  EXPECT_EQ(wide.carry("", u), u);
}

TEST(EmulatedArithmetic, AttenuatesByRoundedDifferencesOfChunkLocalSums) {
  const std::vector<float> g = {-0.3f, -0.1f, -0.7f, -0.25f, -1.1f};
  std::vector<float> alpha;
  for (const float x : g) alpha.push_back(static_cast<float>(exponential(fp32, x)));
  const Gates<float> gates{&alpha, &g, 1, 1};
  EmulatedArithmetic<float> arithmetic{Contract()};
  const Matrix<float> w = arithmetic.decay(gates, 1, 4);
  const float sums[] = {0, g[1], g[1] + g[2], g[1] + g[2] + g[3]};
  for (Index t = 0; t < 4; ++t)
    for (Index s = 0; s < 4; ++s)
      EXPECT_EQ(w(t, s), s > t ? 0 : static_cast<float>(std::exp(static_cast<double>(sums[t] - sums[s]))));
  EmulatedArithmetic<float> global(parse_contract("gate_sum=fp32/global"));
  EXPECT_NEAR(global.decay(gates, 1, 4)(3, 0), w(3, 0), 1e-6);
}

TEST(EmulatedArithmetic, LetsNothingPassAGateOfMinusInfinity) {
  const float low = -std::numeric_limits<float>::infinity();
  const std::vector<float> g = {-0.5f, low, -0.5f}, alpha = {0.60653067f, 0, 0.60653067f};
  EmulatedArithmetic<float> arithmetic{Contract()};
  const Matrix<float> w = arithmetic.decay({&alpha, &g, 1, 1}, 0, 3);
  EXPECT_EQ(w(2, 0), 0);
  EXPECT_EQ(w(3, 1), 0);
  EXPECT_EQ(w(2, 2), 1);
  EXPECT_NEAR(w(3, 2), 0.60653067f, 1e-7);
}

TEST(EmulatedArithmetic, InvertsByPowersAsBySubstitution) {
  Matrix<float> n = gaussian<float>(13, 13, 10);
  for (Index i = 0; i < 13; ++i)
    for (Index j = i; j < 13; ++j) n(i, j) = i == j ? 1 : 0;
  n = [&] {
    Matrix<float> small = n;
    for (Index i = 0; i < 13; ++i)
      for (Index j = 0; j < i; ++j) small(i, j) /= 8;
    return small;
  }();
  EmulatedArithmetic<float> substitution{Contract()}, powers(parse_contract("inverse=powers"));
  const Matrix<float> a = substitution.inverse("", n), b = powers.inverse("", n), residual = product(n, b);
  for (Index i = 0; i < 13; ++i)
    for (Index j = 0; j < 13; ++j) {
      EXPECT_NEAR(a(i, j), b(i, j), 1e-5);
      EXPECT_NEAR(residual(i, j), i == j ? 1 : 0, 1e-5);
    }
}

TEST(EmulatedArithmetic, RoundsTheExponentialCorrectly) {
  EXPECT_EQ(exponential(fp32, 1), static_cast<double>(2.7182817459106445f));
  EXPECT_EQ(exponential(fp32, -INFINITY), 0);
  EXPECT_EQ(exponential(bf16, -0.5), round_to(bf16, std::exp(-0.5)));
}

}  // namespace
}  // namespace attest
