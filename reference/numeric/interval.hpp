// Enclosing intervals over MPFI at any precision: every operation returns an interval that contains the exact
// result for all points of its operands, so the width of a result certifies it.
#pragma once
#include <boost/multiprecision/mpfi.hpp>

#include "reference/numeric/rational.hpp"

namespace attest {

using Interval = boost::multiprecision::number<boost::multiprecision::mpfi_float_backend<0>,
                                               boost::multiprecision::et_off>;

// Sets the precision in bits of every interval made on this thread while it lives.
class PrecisionScope {
 public:
  explicit PrecisionScope(int bits);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  unsigned saved_;
};

Interval interval_from(const Rational& value);

// A value as an unevaluated sum high + low of doubles with |exact - (high + low)| <= radius (infinite when unknown).
// Double rounding makes neither high nor low wrong: what they miss is in the radius.
struct Enclosure {
  double high = 0, low = 0, radius = 0;
};
Enclosure enclosure_of(const Interval& value);
Enclosure enclosure_of(const Rational& value);

bool contains(const Interval& interval, const Rational& value);
bool is_nan(const Interval& value);

}  // namespace attest
