// Every double-double operation against exact rationals, with the error bound that its source proves.
#include "reference/numeric/double_double.hpp"

#include <gtest/gtest.h>

#include <boost/multiprecision/gmp.hpp>
#include <cmath>
#include <cstdint>

namespace attest {
namespace {

using Fraction = boost::multiprecision::mpq_rational;

Fraction exact(const DoubleDouble& x) { return Fraction(x.high) + Fraction(x.low); }

struct RandomDoubles {
  std::uint64_t state;
  std::uint64_t bits() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Any significand, many of them with long runs of zeros or ones, exponent within +-range.
  double number(int range) {
    std::uint64_t significand = bits() >> 12;
    const int run = static_cast<int>(bits() % 53);
    if (bits() & 1) significand = bits() & 1 ? significand >> run << run : significand | ((1ull << run) - 1);
    const double value = 1 + static_cast<double>(significand & ((1ull << 52) - 1)) * 0x1p-52;
    const int exponent = static_cast<int>(bits() % static_cast<std::uint64_t>(2 * range + 1)) - range;
    return std::ldexp(bits() & 1 ? value : -value, exponent);
  }
  DoubleDouble pair(int range) {
    const double high = number(range);
    const double low = number(0) * std::fabs(high) * std::ldexp(1.0, -55 - static_cast<int>(bits() % 4));
    return fast_two_sum(high, low);
  }
};

const Fraction kU = Fraction(kUnitRoundoff);
const Fraction kU2 = kU * kU;
constexpr int kDraws = 20000;

template <class Operation>
Fraction worst_relative_error(std::uint64_t seed, Operation operation) {
  RandomDoubles random{seed};
  Fraction worst = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto [computed, truth] = operation(random);
    EXPECT_LE(std::fabs(computed.low), kUnitRoundoff * std::fabs(computed.high));
    if (truth == 0) {
      EXPECT_EQ(exact(computed), 0);
      continue;
    }
    const Fraction relative = abs((exact(computed) - truth) / truth);
    if (relative > worst) worst = relative;
  }
  return worst;
}

struct Outcome {
  DoubleDouble computed;
  Fraction truth;
};

TEST(DoubleDouble, TwoSumAndTwoProductLoseNothing) {
  RandomDoubles random{1};
  for (int i = 0; i < kDraws; ++i) {
    const double a = random.number(100), b = random.number(100);
    ASSERT_EQ(exact(two_sum(a, b)), Fraction(a) + Fraction(b));
    ASSERT_EQ(exact(two_product(a, b)), Fraction(a) * Fraction(b));
    const bool ordered = std::fabs(a) >= std::fabs(b);
    ASSERT_EQ(exact(fast_two_sum(ordered ? a : b, ordered ? b : a)), Fraction(a) + Fraction(b));
  }
}

TEST(DoubleDouble, AddsADoubleWithinTwoSquaredRoundoffs) {
  const Fraction worst = worst_relative_error(2, [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(60);
    const double b =
        r.bits() & 1 ? r.number(60) : -a.high * (1 + 0x1p-52 * static_cast<double>(r.bits() % 3));
    return Outcome{a + b, exact(a) + Fraction(b)};
  });
  EXPECT_LE(worst, 2 * kU2);
  EXPECT_GT(worst, kU2 / 4);
}

TEST(DoubleDouble, AddsWithinThreeSquaredRoundoffsEvenUnderCancellation) {
  const auto sum = [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(30);
    DoubleDouble b = r.pair(30);
    if (r.bits() & 1) b = fast_two_sum(-a.high, b.low * a.high / b.high);
    return Outcome{a + b, exact(a) + exact(b)};
  };
  EXPECT_LE(worst_relative_error(3, sum), 3 * kU2 / (1 - 4 * kU));
}

TEST(DoubleDouble, ASloppySumBreaksThatBound) {  // [JMP] Algorithm 5: no relative bound under cancellation
  const Fraction worst = worst_relative_error(3, [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(30);
    DoubleDouble b = r.pair(30);
    if (r.bits() & 1) b = fast_two_sum(-a.high, b.low * a.high / b.high);
    const DoubleDouble s = two_sum(a.high, b.high);
    return Outcome{fast_two_sum(s.high, s.low + (a.low + b.low)), exact(a) + exact(b)};
  });
  EXPECT_GT(worst, 3 * kU2 / (1 - 4 * kU));
}

TEST(DoubleDouble, MultipliesByADoubleWithinThreeHalvesSquaredRoundoffs) {
  const Fraction worst = worst_relative_error(4, [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(60);
    const double b = r.number(60);
    return Outcome{a * b, exact(a) * Fraction(b)};
  });
  EXPECT_LE(worst, 3 * kU2 / 2 + 4 * kU2 * kU);
  EXPECT_GT(worst, kU2 / 4);
}

TEST(DoubleDouble, MultipliesWithinFiveSquaredRoundoffs) {
  const Fraction worst = worst_relative_error(5, [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(60), b = r.pair(60);
    return Outcome{a * b, exact(a) * exact(b)};
  });
  EXPECT_LE(worst, 5 * kU2);
  EXPECT_GT(worst, kU2);
}

TEST(DoubleDouble, DividesWithinFifteenSquaredRoundoffs) {
  const Fraction worst = worst_relative_error(6, [](RandomDoubles& r) {
    const DoubleDouble a = r.pair(60), b = r.pair(60);
    return Outcome{a / b, exact(a) / exact(b)};
  });
  EXPECT_LE(worst, 15 * kU2 + 56 * kU2 * kU);
  EXPECT_GT(worst, kU2);
}

TEST(DoubleDouble, OrdersByTheWholeValue) {
  const DoubleDouble one{1}, above{1, 0x1p-60}, below{1, -0x1p-60};
  EXPECT_LT(below, one);
  EXPECT_LT(one, above);
  EXPECT_EQ(abs(DoubleDouble(-1, 0x1p-60)), below);
  EXPECT_FALSE(DoubleDouble(std::nan("")) < one);
  EXPECT_FALSE(isfinite(DoubleDouble(INFINITY)));
}

}  // namespace
}  // namespace attest
