#include "reference/numeric/interval.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace attest {
namespace {

Rational draw_rational() {
  const auto numerator = *rc::gen::arbitrary<std::int32_t>();
  const auto denominator = *rc::gen::inRange<std::int32_t>(1, 1 << 30);
  return Rational(numerator) / denominator;
}

RC_GTEST_PROP(Interval, ContainsTheExactResultOfEveryOperation, ()) {
  const PrecisionScope precision(*rc::gen::inRange(24, 300));
  const Rational x = draw_rational(), y = draw_rational();
  const Interval a = interval_from(x), b = interval_from(y);
  RC_ASSERT(contains(a, x));
  RC_ASSERT(contains(a + b, x + y));
  RC_ASSERT(contains(a - b, x - y));
  RC_ASSERT(contains(a * b, x * y));
  if (y != 0) RC_ASSERT(contains(a / b, x / y));
}

RC_GTEST_PROP(Interval, GivesAnEnclosureThatHoldsTheExactValue, ()) {
  const PrecisionScope precision(*rc::gen::inRange(24, 300));
  const Rational x = draw_rational();
  const Enclosure e = enclosure_of(Interval(interval_from(x) * interval_from(x)));
  const Rational missed = abs(Rational(x * x - rational_from(e.high) - rational_from(e.low)));
  RC_ASSERT(missed <= rational_from(e.radius));
}

RC_GTEST_PROP(Interval, ATooSmallRadiusIsNoticed, ()) {  // the control of the property above
  const PrecisionScope precision(60);
  const Rational third = Rational(*rc::gen::inRange(1, 1000)) / 3003;
  const Enclosure e = enclosure_of(interval_from(third));
  const Rational missed = abs(Rational(third - rational_from(e.high) - rational_from(e.low)));
  RC_ASSERT(missed > rational_from(e.radius) / 1000000);
}

TEST(Interval, NarrowsWithPrecision) {
  double last = 1;
  for (int bits : {64, 128, 256, 512}) {
    const PrecisionScope precision(bits);
    const Interval value = exp(interval_from(Rational(1) / 3));
    const Interval width = Interval(upper(value)) - Interval(lower(value));
    EXPECT_LT(enclosure_of(width).high, last * std::ldexp(1.0, -30));
    last = enclosure_of(width).high;
  }
}

TEST(Interval, RestoresThePrecisionThatWasThere) {
  const auto before = Interval::thread_default_precision();
  {
    const PrecisionScope precision(1000);
    EXPECT_GT(Interval::thread_default_precision(), before);
  }
  EXPECT_EQ(Interval::thread_default_precision(), before);
}

TEST(Enclosure, HoldsRationalsToTheirLastBit) {
  const Rational tenth = Rational(1) / 10;
  const Enclosure e = enclosure_of(tenth);
  EXPECT_EQ(e.high, 0.1);
  EXPECT_NE(e.low, 0.0);
  EXPECT_LE(abs(Rational(tenth - rational_from(e.high) - rational_from(e.low))), rational_from(e.radius));
  EXPECT_LE(e.radius, 0.1 * std::ldexp(1.0, -104));
  EXPECT_EQ(enclosure_of(Rational(3) / 4).radius, 0.0);
  EXPECT_TRUE(std::isinf(enclosure_of(rational_from(1e308) * 100).radius));
}

TEST(Enclosure, SaysThatAnIntervalOfNaNsHoldsNothing) {
  const Enclosure e = enclosure_of(Interval(std::nan("")));
  EXPECT_TRUE(std::isnan(e.high));
  EXPECT_TRUE(std::isinf(e.radius));
}

}  // namespace
}  // namespace attest
