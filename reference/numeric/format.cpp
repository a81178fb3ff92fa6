#include "reference/numeric/format.hpp"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// floor(log2 x) of a positive normal x; less than every emin for zero and subnormals.
int exponent_of(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff) - 1023; }

bool is_odd(double x) { return (std::bit_cast<std::uint64_t>(x) & 1) != 0; }

// count rounded to an integer; 0 <= count < 2^53.
double round_to_integer(double count, Rounding rounding) {
  auto integer = static_cast<std::int64_t>(count);
  const double rest = count - static_cast<double>(integer);
  if (rounding == Rounding::nearest_even && (rest > 0.5 || (rest == 0.5 && integer % 2 != 0))) ++integer;
  return static_cast<double>(integer);
}

// hi + lo (exact, |lo| at most half an ulp of hi) rounded to odd: a later rounding to fewer bits sees on
// which side of hi the value lies, so that it rounds as if from the exact value (Boldo and Melquiond 2008).
double round_to_odd(double hi, double lo) {
  if (lo == 0 || is_odd(hi) || !std::isfinite(hi)) return hi;
  return std::nextafter(hi, lo > 0 ? infinity : -infinity);
}

// A temporary MPFR number.
struct Mpfr {
  explicit Mpfr(mpfr_prec_t bits) { mpfr_init2(value, bits); }
  ~Mpfr() { mpfr_clear(value); }
  Mpfr(const Mpfr&) = delete;
  Mpfr& operator=(const Mpfr&) = delete;
  mpfr_t value;
};

}  // namespace

const Format* find_format(std::string_view name) {
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const Format* f) { return f->name == name; });
  return found == formats.end() ? nullptr : *found;
}

double round_to(const Format& format, double x, Rounding rounding) {
  if (format.precision == 53 || std::isnan(x)) return x;
  const bool is_float = format.precision == 24 && format.emin == -126 && format.emax == 127;
  if (is_float && rounding == Rounding::nearest_even) return static_cast<double>(static_cast<float>(x));
  if (std::isinf(x)) return std::copysign(format.overflow(), x);
  const double magnitude = std::fabs(x);
  const int spacing = std::max(exponent_of(magnitude), format.emin) - format.precision + 1;
  double rounded = round_to_integer(magnitude * power_of_two(-spacing), rounding) * power_of_two(spacing);
  if (rounded > format.max_finite()) {
    rounded = rounding == Rounding::nearest_even ? format.overflow() : format.max_finite();
  }
  return std::copysign(rounded, x);
}

double round_to(const Format& format, double hi, double lo, Rounding rounding) {
  const double sum = hi + lo;
  const double lo_part = sum - hi;
  const double error = (hi - (sum - lo_part)) + (lo - lo_part);
  if (!std::isfinite(sum)) {
    const bool overflowed = std::isfinite(hi) && std::isfinite(lo) && rounding == Rounding::toward_zero;
    return overflowed ? std::copysign(format.max_finite(), sum) : round_to(format, sum, rounding);
  }
  if (format.precision < 53) return round_to(format, round_to_odd(sum, error), rounding);
  const bool grew = (error < 0 && sum > 0) || (error > 0 && sum < 0);
  return rounding == Rounding::toward_zero && grew ? std::nextafter(sum, 0.0) : sum;
}

double round_to(const Format& format, mpfr_srcptr x, Rounding rounding) {
  if (format.precision == 53)
    return mpfr_get_d(x, rounding == Rounding::nearest_even ? MPFR_RNDN : MPFR_RNDZ);
  const double truncated = mpfr_get_d(x, MPFR_RNDZ);
  if (!std::isfinite(truncated)) return round_to(format, truncated, rounding);
  const double rest = mpfr_cmp_d(x, truncated);
  // A value below the smallest double is truncated to a zero of its sign, and rounds to one.
  return truncated == 0 ? truncated : round_to(format, round_to_odd(truncated, rest), rounding);
}

double round_to(const Format& format, mpq_srcptr x, Rounding rounding) {
  Mpfr truncated(64);
  const int inexact = mpfr_set_q(truncated.value, x, MPFR_RNDZ);
  Mpfr odd(66);
  mpfr_set(odd.value, truncated.value, MPFR_RNDN);
  if (inexact != 0) mpq_sgn(x) > 0 ? mpfr_nextabove(odd.value) : mpfr_nextbelow(odd.value);
  return round_to(format, odd.value, rounding);
}

std::uint64_t encode(const Format& format, double x) {
  if (format.precision == 53) return std::bit_cast<std::uint64_t>(x);
  const double value = round_to(format, x);
  const int fraction_bits = format.precision - 1;
  const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (format.width - 1);
  const std::uint64_t exponent_mask = (std::uint64_t{1} << (format.width - format.precision)) - 1;
  if (std::isnan(value)) {
    const std::uint64_t all = (std::uint64_t{1} << (format.width - 1)) - 1;
    return format.has_infinity ? (exponent_mask << fraction_bits) | (std::uint64_t{1} << (fraction_bits - 1))
                               : all;
  }
  if (std::isinf(value)) return sign | (exponent_mask << fraction_bits);
  const double magnitude = std::fabs(value);
  const int exponent = std::max(exponent_of(magnitude), format.emin);
  const auto significand = static_cast<std::uint64_t>(magnitude * power_of_two(fraction_bits - exponent));
  // The hidden bit of a normal number adds one to the exponent field.
  return sign | ((static_cast<std::uint64_t>(exponent - format.emin) << fraction_bits) + significand);
}

double decode(const Format& format, std::uint64_t bits) {
  if (format.precision == 53) return std::bit_cast<double>(bits);
  const int fraction_bits = format.precision - 1;
  const std::uint64_t exponent_mask = (std::uint64_t{1} << (format.width - format.precision)) - 1;
  const std::uint64_t fraction_mask = (std::uint64_t{1} << fraction_bits) - 1;
  const std::uint64_t field = bits >> fraction_bits & exponent_mask;
  const std::uint64_t fraction = bits & fraction_mask;
  const double sign = (bits >> (format.width - 1) & 1) != 0 ? -1.0 : 1.0;
  if (format.has_infinity && field == exponent_mask) {
    return fraction == 0 ? sign * infinity : std::numeric_limits<double>::quiet_NaN();
  }
  if (!format.has_infinity && field == exponent_mask && fraction == fraction_mask) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const int exponent = format.emin + std::max(static_cast<int>(field) - 1, 0);
  const auto significand = static_cast<double>(field == 0 ? fraction : fraction + fraction_mask + 1);
  return sign * significand * power_of_two(exponent - fraction_bits);
}

}  // namespace attest
