#include "reference/numeric/format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace attest {

void PrintTo(const Format* format, std::ostream* out) { *out << format->name; }

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Rounder = std::function<double(double)>;

// Every finite value of a format up to 19 bits, ascending, -0 left out.
std::vector<double> finite_values(const Format& format) {
  std::vector<double> values;
  const std::uint64_t sign = std::uint64_t{1} << (format.width - 1);
  for (std::uint64_t bits = sign - 1; bits > 0; --bits) {
    if (std::isfinite(decode(format, bits))) values.push_back(decode(format, sign | bits));
  }
  for (std::uint64_t bits = 0; bits < sign; ++bits) {
    if (std::isfinite(decode(format, bits))) values.push_back(decode(format, bits));
  }
  return values;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

bool has_even_pattern(const Format& format, double x) { return encode(format, x) % 2 == 0; }

struct Violation {
  double input, expected, got;
};

// The first input that a rounding to nearest even treats wrongly: every value, every midpoint of two
// neighbours, and the nearest inputs to either side of it, where `next` steps to the nearest input in a
// direction. Overflow begins at the midpoint between the largest value and the one that would follow it,
// inclusively where the largest value is odd.
std::optional<Violation> first_violation(const Format& format, const Rounder& rounder,
                                         double (*next)(double, double)) {
  std::optional<Violation> violation;
  const auto expect = [&](double input, double expected) {
    const double got = rounder(input);
    if (!violation && !same(got, expected)) violation = Violation{input, expected, got};
  };
  const std::vector<double> values = finite_values(format);
  for (std::size_t i = 0; i + 1 < values.size() && !violation; ++i) {
    const double below = values[i], above = values[i + 1];
    const double negative_zero = above == 0 ? -0.0 : above;
    const double middle = below + (above - below) / 2;
    expect(below, below);
    expect(middle, has_even_pattern(format, below) ? below : negative_zero);
    expect(next(middle, -infinity), below);
    expect(next(middle, infinity), negative_zero);
  }
  const double largest = values.back();
  const double limit = largest + (largest - values[values.size() - 2]) / 2;
  for (const double sign : {1.0, -1.0}) {
    expect(sign * largest, sign * largest);
    expect(sign * next(limit, 0), sign * largest);
    expect(sign * limit, sign * (has_even_pattern(format, largest) ? largest : format.overflow()));
    expect(sign * next(limit, infinity), sign * format.overflow());
    expect(sign * infinity, sign * format.overflow());
    expect(sign * 0.0, sign * 0.0);
  }
  expect(std::nan(""), std::nan(""));
  return violation;
}

double next_double(double x, double direction) { return std::nextafter(x, direction); }
double next_float(double x, double direction) {
  return std::nextafter(static_cast<float>(x), static_cast<float>(direction));
}

std::string text(const std::optional<Violation>& v) {
  if (!v) return "none";
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "input %a, expected %a, got %a", v->input, v->expected, v->got);
  return line.data();
}

// The independent reference: MPFR with the exponent range of the format, from any exact value.
double round_by_mpfr(const Format& format, mpfr_srcptr x, mpfr_rnd_t rounding) {
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_t y;
  mpfr_init2(y, format.precision);
  mpfr_set_emin(format.emin - format.precision + 2);
  mpfr_set_emax(format.emax + 1);
  int inexact = mpfr_set(y, x, rounding);
  inexact = mpfr_check_range(y, inexact, rounding);
  mpfr_subnormalize(y, inexact, rounding);
  double result = mpfr_get_d(y, MPFR_RNDN);
  mpfr_clear(y);
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  if (!format.has_infinity && std::fabs(result) > format.max_finite()) {
    const bool cut = rounding == MPFR_RNDZ && mpfr_number_p(x) != 0;
    result = std::copysign(cut ? format.max_finite() : format.overflow(), result);
  }
  return result;
}

double round_by_mpfr(const Format& format, double x, mpfr_rnd_t rounding) {
  mpfr_t exact;
  mpfr_init2(exact, 53);
  mpfr_set_d(exact, x, MPFR_RNDN);
  const double result = round_by_mpfr(format, exact, rounding);
  mpfr_clear(exact);
  return result;
}

// Doubles of every kind: any pattern, and near values and ties of the format over its whole range.
std::vector<double> samples(const Format& format, std::size_t count) {
  std::mt19937_64 random(20261);
  std::vector<double> values{0.0, -0.0, infinity, -infinity, std::nan(""), 5e-324, -5e-324};
  const int lowest = std::max(format.emin - format.precision - 2, -1022);
  const int highest = std::min(format.emax + 2, 1023);
  while (values.size() < count) {
    values.push_back(std::bit_cast<double>(random()));
    const int exponent =
        lowest + static_cast<int>(random() % static_cast<std::uint64_t>(highest - lowest + 1));
    const std::uint64_t kept = random() >> (64 - 52) >> (52 - std::min(52, format.precision))
                                                            << (52 - std::min(52, format.precision));
    const double near = std::bit_cast<double>((static_cast<std::uint64_t>(exponent + 1023) << 52) | kept);
    const double signed_near = random() % 2 == 0 ? near : -near;
    values.insert(values.end(),
                  {signed_near, next_double(signed_near, infinity), next_double(signed_near, -infinity)});
  }
  return values;
}

class EveryFormat : public testing::TestWithParam<const Format*> {};
class NarrowFormat : public testing::TestWithParam<const Format*> {};

const auto name_of = [](const auto& info) { return std::string(info.param->name); };
INSTANTIATE_TEST_SUITE_P(Format, EveryFormat, testing::ValuesIn(formats), name_of);
INSTANTIATE_TEST_SUITE_P(Format, NarrowFormat, testing::Values(&tf32, &fp16, &bf16, &fp8_e4m3, &fp8_e5m2),
                         name_of);

TEST_P(NarrowFormat, DecodesAndEncodesEveryPatternToItself) {
  const Format& format = *GetParam();
  std::uint64_t nans = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << format.width; ++bits) {
    const double value = decode(format, bits);
    if (std::isnan(value)) {
      ++nans;
      ASSERT_TRUE(std::isnan(decode(format, encode(format, value))));
    } else {
      ASSERT_EQ(encode(format, value), bits);
    }
  }
  const std::uint64_t payloads = (std::uint64_t{1} << (format.precision - 1)) - 1;
  EXPECT_EQ(nans, format.has_infinity ? 2 * payloads : 2);
}

TEST_P(NarrowFormat, OrdersItsPatternsLikeItsValues) {
  const std::vector<double> values = finite_values(*GetParam());
  for (std::size_t i = 0; i + 1 < values.size(); ++i) ASSERT_LT(values[i], values[i + 1]);
  EXPECT_EQ(values.back(), GetParam()->max_finite());
  EXPECT_EQ(values[values.size() / 2 + 1], GetParam()->smallest_subnormal());
}

TEST_P(NarrowFormat, RoundsEveryHalfwayCaseToEvenAndItsNeighboursToTheNearest) {
  const Format& format = *GetParam();
  const auto violation = first_violation(
      format, [&](double x) { return round_to(format, x); }, next_double);
  EXPECT_FALSE(violation) << text(violation);
}

const Rounder& inline_rounder(const Format& format) {
  static const std::vector<std::pair<const Format*, Rounder>> rounders{
      {&tf32, [](double x) { return round_tf32(static_cast<float>(x)); }},
      {&fp16, [](double x) { return round_fp16(static_cast<float>(x)); }},
      {&bf16, [](double x) { return round_bf16(static_cast<float>(x)); }},
      {&fp8_e4m3, [](double x) { return round_fp8_e4m3(static_cast<float>(x)); }},
      {&fp8_e5m2, [](double x) { return round_fp8_e5m2(static_cast<float>(x)); }}};
  for (const auto& [candidate, rounder] : rounders) {
    if (candidate == &format) return rounder;
  }
  throw std::logic_error("no inline rounding");
}

TEST_P(NarrowFormat, RoundsFloatsInlineAtEveryHalfwayCase) {
  const auto violation = first_violation(*GetParam(), inline_rounder(*GetParam()), next_float);
  EXPECT_FALSE(violation) << text(violation);
}

TEST_P(NarrowFormat, RoundsFloatsInlineAsInGeneral) {
  const Rounder& rounder = inline_rounder(*GetParam());
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_TRUE(same(rounder(x), round_to(*GetParam(), x))) << std::hexfloat << x;
  }
}

// Twins that are wrong in one place each: the exhaustive check must find every one of them.
TEST_P(NarrowFormat, CatchesWrongRoundings) {
  const Format& format = *GetParam();
  const std::vector<std::pair<std::string, Rounder>> twins{
      {"truncation", [&](double x) { return round_to(format, x, Rounding::toward_zero); }},
      {"two roundings, through fp32", [&](double x) { return round_to(format, static_cast<float>(x)); }},
      {"subnormals flushed",
       [&](double x) {
         const double y = round_to(format, x);
         return std::fabs(y) < format.smallest_normal() ? std::copysign(0.0, y) : y;
       }},
      {"subnormals with full precision",
       [&](double x) {
         return std::fabs(x) < format.smallest_normal() ? std::ldexp(round_to(format, std::ldexp(x, 64)), -64)
                                                        : round_to(format, x);
       }},
      {"ties away from zero",
       [&](double x) {
         const double y = round_to(format, x);
         const double z = round_to(format, std::nextafter(x, std::copysign(infinity, x)));
         return std::fabs(z) > std::fabs(y) && std::fabs(x) != format.max_finite() ? z : y;
       }},
      {"saturation", [&](double x) {
         const double y = round_to(format, x);
         return std::isfinite(x) && !std::isfinite(y) ? std::copysign(format.max_finite(), x) : y;
       }}};
  for (const auto& [what, twin] : twins) {
    EXPECT_TRUE(first_violation(format, twin, next_double)) << what;
  }
}

TEST_P(NarrowFormat, RoundsTowardZeroToTheNeighbourBelow) {
  const Format& format = *GetParam();
  const std::vector<double> values = finite_values(format);
  for (std::size_t i = values.size() / 2; i + 1 < values.size(); ++i) {
    const double below = values[i], above = values[i + 1];
    for (const double x :
         {below, below + (above - below) / 2, next_double(above, 0), next_double(below, infinity)}) {
      ASSERT_EQ(round_to(format, x, Rounding::toward_zero), below) << std::hexfloat << x;
      ASSERT_EQ(round_to(format, -x, Rounding::toward_zero), -below) << std::hexfloat << x;
    }
  }
  EXPECT_EQ(round_to(format, 1e300, Rounding::toward_zero), format.max_finite());
  EXPECT_TRUE(same(round_to(format, infinity, Rounding::toward_zero), format.overflow()));
}

TEST_P(EveryFormat, AgreesWithMpfr) {
  const Format& format = *GetParam();
  for (const double x : samples(format, 100'000)) {
    ASSERT_TRUE(same(round_to(format, x), round_by_mpfr(format, x, MPFR_RNDN))) << std::hexfloat << x;
    ASSERT_TRUE(same(round_to(format, x, Rounding::toward_zero), round_by_mpfr(format, x, MPFR_RNDZ)))
        << std::hexfloat << x;
  }
}

// Values that no double holds: a near tie plus a tail that a first rounding to double would lose.
TEST_P(EveryFormat, RoundsSumsAndExactNumbersOnce) {
  const Format& format = *GetParam();
  std::mt19937_64 random(7);
  mpfr_t exact, tail;
  mpfr_init2(exact, 2300);
  mpfr_init2(tail, 53);
  mpq_t fraction;
  mpq_init(fraction);
  for (const double hi : samples(format, 20'000)) {
    if (!std::isfinite(hi)) continue;
    const double scale = std::ldexp(hi, -static_cast<int>(50 + random() % 90));
    const double lo = random() % 8 == 0 ? 0.0 : scale * (static_cast<double>(random() % 7) - 3);
    mpfr_set_d(exact, hi, MPFR_RNDN);
    mpfr_set_d(tail, lo, MPFR_RNDN);
    ASSERT_EQ(mpfr_add(exact, exact, tail, MPFR_RNDN), 0);
    if (mpfr_zero_p(exact) == 0) mpfr_get_q(fraction, exact);
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero}) {
      const mpfr_rnd_t mode = rounding == Rounding::nearest_even ? MPFR_RNDN : MPFR_RNDZ;
      const double expected = round_by_mpfr(format, exact, mode);
      ASSERT_TRUE(same(round_to(format, exact, rounding), expected)) << std::hexfloat << hi << " + " << lo;
      if (mpfr_zero_p(exact) != 0) continue;
      ASSERT_TRUE(same(round_to(format, hi, lo, rounding), expected)) << std::hexfloat << hi << " + " << lo;
      ASSERT_TRUE(same(round_to(format, fraction, rounding), expected)) << std::hexfloat << hi << " + " << lo;
    }
  }
  mpq_clear(fraction);
  mpfr_clears(exact, tail, static_cast<mpfr_ptr>(nullptr));
}

TEST(Format, RoundsRationalsThatAreNoBinaryFractions) {
  mpq_t third;
  mpq_init(third);
  mpq_set_si(third, 1, 3);
  EXPECT_EQ(round_to(fp64, third), 1.0 / 3.0);
  EXPECT_EQ(round_to(fp32, third), 1.0f / 3.0f);
  EXPECT_EQ(round_to(bf16, third), 0x1.56p-2);
  EXPECT_EQ(round_to(bf16, third, Rounding::toward_zero), 0x1.54p-2);
  mpq_clear(third);
}

TEST(Format, CatchesSumsRoundedTwice) {
  // 1 + 2^-8 is a tie of bf16; the tail decides, and rounding to double first would lose it.
  EXPECT_EQ(round_to(bf16, 1 + 0x1p-8, 0x1p-200), 1 + 0x1p-7);
  EXPECT_EQ(round_to(bf16, 1 + 0x1p-8, -0x1p-200), 1.0);
  EXPECT_EQ(round_to(bf16, (1 + 0x1p-8) + 0x1p-200), 1.0);
}

TEST(Format, AgreesWithTheHardwareOnFp32) {
  for (const double x : samples(fp32, 1'000'000)) {
    ASSERT_TRUE(same(round_to(fp32, x), static_cast<float>(x))) << std::hexfloat << x;
    ASSERT_TRUE(same(truncate_fp32(x), round_to(fp32, x, Rounding::toward_zero))) << std::hexfloat << x;
  }
}

TEST(Format, AddsTowardZeroWithOneRounding) {
  std::mt19937_64 random(11);
  int different_from_two_roundings = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto sum = std::ldexp(static_cast<float>(static_cast<std::int64_t>(random() >> 40) - (1 << 23)),
                                static_cast<int>(random() % 40));
    const double term =
        std::ldexp(static_cast<double>(static_cast<std::int64_t>(random() >> 16) - (1LL << 47)),
                   static_cast<int>(random() % 120) - 100);
    const float got = add_toward_zero(sum, term);
    ASSERT_TRUE(same(got, round_to(fp32, sum, term, Rounding::toward_zero)))
        << std::hexfloat << sum << " + " << term;
    if (got != truncate_fp32(sum + term)) ++different_from_two_roundings;
  }
  EXPECT_GT(different_from_two_roundings, 0);
}

TEST(Format, KnowsItsConstants) {
  EXPECT_EQ(fp64.max_finite(), std::numeric_limits<double>::max());
  EXPECT_EQ(fp64.smallest_normal(), std::numeric_limits<double>::min());
  EXPECT_EQ(fp32.max_finite(), std::numeric_limits<float>::max());
  EXPECT_EQ(fp32.smallest_subnormal(), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(fp16.max_finite(), 65504);
  EXPECT_EQ(fp16.smallest_subnormal(), 0x1p-24);
  EXPECT_EQ(bf16.max_finite(), 0x1.fep127);
  EXPECT_EQ(bf16.unit_roundoff(), 0x1p-8);
  EXPECT_EQ(fp8_e4m3.max_finite(), 448);
  EXPECT_EQ(fp8_e4m3.smallest_subnormal(), 0x1p-9);
  EXPECT_EQ(fp8_e5m2.max_finite(), 57344);
  EXPECT_EQ(fp8_e5m2.smallest_subnormal(), 0x1p-16);
}

TEST(Format, KnowsPublishedPatterns) {
  EXPECT_EQ(decode(fp8_e4m3, 0x7e), 448);
  EXPECT_TRUE(std::isnan(decode(fp8_e4m3, 0xff)));
  EXPECT_EQ(decode(fp8_e5m2, 0xfc), -infinity);
  EXPECT_EQ(decode(fp16, 0x3c00), 1);
  EXPECT_EQ(decode(bf16, 0xc000), -2);
  EXPECT_EQ(encode(tf32, 1 + 0x1p-10), 0x1fc01u);
  EXPECT_EQ(encode(fp32, -0.1f), std::bit_cast<std::uint32_t>(-0.1f));
  EXPECT_EQ(encode(fp64, 0.1), std::bit_cast<std::uint64_t>(0.1));
}

TEST(Format, IsFoundByItsName) {
  for (const Format* format : formats) EXPECT_EQ(find_format(format->name), format);
  EXPECT_EQ(find_format("fp17"), nullptr);
}

}  // namespace
}  // namespace attest
