// A double near any scalar that has an order: for choosing shifts and printing, never for a verdict.
#pragma once
#include "reference/numeric/autodiff.hpp"
#include "reference/numeric/interval.hpp"
#include "reference/numeric/running.hpp"

namespace attest {

inline double approximate(double value) { return value; }
inline double approximate(float value) { return value; }
inline double approximate(const Running& value) { return value.value; }
inline double approximate(const Rational& value) { return nearest_double(value); }
inline double approximate(const Interval& value) { return mpfi_get_d(value.backend().data()); }
template <class S>
double approximate(const Var<S>& value) {
  return approximate(value.value);
}

}  // namespace attest
