#include "reference/numeric/rational.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

TEST(Rational, ReadsFractionsAndDecimalsExactly) {
  EXPECT_EQ(*parse_rational("3/4"), Rational(3) / 4);
  EXPECT_EQ(*parse_rational("0.1"), Rational(1) / 10);
  EXPECT_EQ(*parse_rational("-2.50"), Rational(-5) / 2);
  EXPECT_EQ(*parse_rational("1e-3"), Rational(1) / 1000);
  EXPECT_EQ(*parse_rational("+12E2"), Rational(1200));
  EXPECT_EQ(*parse_rational("010"), Rational(10));  // decimal, not octal
  EXPECT_EQ(*parse_rational("08/010"), Rational(4) / 5);
  EXPECT_NE(*parse_rational("0.1"), rational_from(0.1));  // the double is not one tenth
}

TEST(Rational, RefusesWhatIsNotANumber) {
  for (const char* text : {"", "-", "1/0", "a", "1.2.3", "1/2/3", "1e", "1e999999999", "nan", "inf", "0x10",
                           " 1", "1 ", ".", "1/-2", "--1"})
    EXPECT_FALSE(parse_rational(text)) << text;
}

TEST(Rational, RoundsToTheNearestDoubleDownToTheLastSubnormal) {
  for (double value : {0.0, 1.0, -1.5, 1e300, 5e-324, -2.2250738585072014e-308, 0.1})
    EXPECT_EQ(nearest_double(rational_from(value)), value);
  const Rational tiny = rational_from(5e-324);
  EXPECT_EQ(nearest_double(tiny / 2), 0.0);  // a tie goes to even
  EXPECT_EQ(nearest_double(tiny * 3 / 2), 2 * 5e-324);
  EXPECT_EQ(nearest_double(tiny * 3 / 4), 5e-324);
  EXPECT_EQ(nearest_double(rational_from(1.0) + rational_from(std::ldexp(1.0, -53))), 1.0);
  EXPECT_EQ(nearest_double(rational_from(1.0) + rational_from(std::ldexp(1.0, -53)) + tiny),
            1.0 + std::ldexp(1.0, -52));
  EXPECT_TRUE(std::isinf(nearest_double(rational_from(1e308) * 10)));
}

}  // namespace
}  // namespace attest
