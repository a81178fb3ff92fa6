#include "reference/numeric/interval.hpp"

#include <mpfr.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

// Boost counts precision in decimal digits; this many always hold the bits asked for.
unsigned digits_for(int bits) { return static_cast<unsigned>(std::ceil(bits * 0.30103)) + 1; }

class Real {
 public:
  explicit Real(mpfr_prec_t bits) { mpfr_init2(value, bits); }
  ~Real() { mpfr_clear(value); }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  mpfr_t value;
};

double nearest_with_subnormals(const mpfr_t value) { return mpfr_get_d(value, MPFR_RNDN); }

}  // namespace

PrecisionScope::PrecisionScope(int bits) : saved_(Interval::thread_default_precision()) {
  Interval::thread_default_precision(digits_for(bits));
}
PrecisionScope::~PrecisionScope() { Interval::thread_default_precision(saved_); }

Interval interval_from(const Rational& value) {
  Interval result;
  mpfi_set_q(result.backend().data(), value.backend().data());
  return result;
}

Enclosure enclosure_of(const Interval& value) {
  const auto* data = value.backend().data();
  if (mpfi_nan_p(data)) return {std::nan(""), std::nan(""), std::numeric_limits<double>::infinity()};
  const mpfr_prec_t bits = mpfi_get_prec(data) + 64;
  Real middle(bits), rest(bits), reach(64), side(64);
  mpfr_add(middle.value, &data->left, &data->right, MPFR_RNDN);
  mpfr_div_2ui(middle.value, middle.value, 1, MPFR_RNDN);
  Enclosure result;
  result.high = nearest_with_subnormals(middle.value);
  if (!std::isfinite(result.high)) {
    // Infinite when the whole interval lies beyond the doubles on one side; otherwise nothing is known yet.
    const bool beyond = std::isinf(mpfr_get_d(&data->left, MPFR_RNDZ) * 2) &&
                        std::isinf(mpfr_get_d(&data->right, MPFR_RNDZ) * 2) &&
                        mpfr_sgn(&data->left) == mpfr_sgn(&data->right) && mpfr_number_p(&data->left) &&
                        mpfr_number_p(&data->right);
    return {beyond ? result.high : 0, 0, std::numeric_limits<double>::infinity()};
  }
  mpfr_sub_d(rest.value, middle.value, result.high, MPFR_RNDN);
  result.low = nearest_with_subnormals(rest.value);
  // The farther end from high + low, every step rounded away from zero.
  Real point(2200);  // holds any sum of two doubles
  mpfr_set_d(point.value, result.high, MPFR_RNDN);
  mpfr_add_d(point.value, point.value, result.low, MPFR_RNDN);
  mpfr_sub(reach.value, &data->right, point.value, MPFR_RNDU);
  mpfr_sub(side.value, point.value, &data->left, MPFR_RNDU);
  mpfr_max(reach.value, reach.value, side.value, MPFR_RNDU);
  result.radius = mpfr_sgn(reach.value) <= 0 ? 0 : mpfr_get_d(reach.value, MPFR_RNDU);
  return result;
}

Enclosure enclosure_of(const Rational& value) {
  Enclosure result;
  result.high = nearest_double(value);
  if (!std::isfinite(result.high)) return {result.high, 0, std::numeric_limits<double>::infinity()};
  const Rational rest = value - rational_from(result.high);
  result.low = nearest_double(rest);
  const Rational missed = abs(Rational(rest - rational_from(result.low)));
  if (missed == 0) return result;
  Real rounded(53);
  mpfr_set_q(rounded.value, missed.backend().data(), MPFR_RNDU);
  result.radius = mpfr_get_d(rounded.value, MPFR_RNDU);
  return result;
}

bool contains(const Interval& interval, const Rational& value) {
  const auto* data = interval.backend().data();
  if (mpfi_nan_p(data)) return false;
  return mpfr_cmp_q(&data->left, value.backend().data()) <= 0 &&
         mpfr_cmp_q(&data->right, value.backend().data()) >= 0;
}

bool is_nan(const Interval& value) { return mpfi_nan_p(value.backend().data()) != 0; }

}  // namespace attest
