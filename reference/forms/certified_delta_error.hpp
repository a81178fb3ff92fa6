// The error of a column of a delta rule's state from token to token, rounded upwards: tests/forms/certified_delta.md.
#pragma once
#include <cmath>

#include "reference/forms/certified_delta.hpp"
#include "reference/forms/certified_delta_step.hpp"

namespace attest {

// How far the arithmetic errs, relative to products of norms.
struct DeltaUnits {
  double dot = 0;    // a sum of key_dim products
  double local = 0;  // the other roundings of a token
  double add = 0;    // the sum of two states
};
// The sums of key_dim products in `parts` parts that are joined, in double-double.
DeltaUnits delta_units(DeltaPrecision precision, Index key_dim, Index parts = 2);

// What a token does to the error of any column: e <- growth e + state |s| + value |v| + floor. Its row is read with an error
// of query (e + dot |s|), query at least |q|. A row of the state that the key does not touch only fades: its error
// e <- fade e + lost |s| + floor and its size |s| <- fade |s|.
struct DeltaFactors {
  double growth, state, value, floor, query, fade, lost;
};
std::vector<DeltaFactors> delta_factors(const CertifiedDelta& input, const DeltaUnits& units);

inline constexpr double kDeltaUp = 1 + 0x1p-44;  // covers the roundings of a formula of norms

// At least a b, up to roundings that kDeltaUp covers: what underflows may meet a large factor next.
ATTEST_ON_BOTH double product_up(double a, double b) { return a == 0 || b == 0 ? a * b : a * b + 0x1p-1074; }
ATTEST_ON_BOTH double next_error(const DeltaFactors& f, double error, double norm, double v) {
  return (f.growth * error + f.state * norm + f.value * v + f.floor) * kDeltaUp;
}
// At least the norm of x.
double norm_of(const double* x, Index count);
// At least the norm of a column, from the computed sum of the squares of its high parts.
ATTEST_ON_BOTH double norm_from(double squares, double inflation) {
  return sqrt(squares) * inflation + 0x1p-500;
}
// The radius of a row's entry: reach the sum of |lambda| (e + dot |s|), size of |lambda| |s|, scales of |lambda|.
struct DeltaScale {
  double high = 1, low = 0, error = 0, outer = 0;  // outer: of the products and sums over that many states
};
ATTEST_ON_BOTH double delta_radius(const DeltaScale& scale, double query, double reach, double size,
                                   double scales) {
  const double largest = fabs(scale.high) + fabs(scale.low) + scale.error;
  const double radius = product_up(
      query, product_up(largest, reach + product_up(scale.outer, size)) + product_up(scale.error, size));
  return (radius + 0x1p-1000 * (1 + largest) * (1 + scales)) * kDeltaUp;
}
inline double delta_outer(Index states) { return (8 * static_cast<double>(states) + 32) * 0x1p-106; }
inline double norm_inflation(Index key_dim) { return 1 + static_cast<double>(key_dim + 16) * 0x1p-52; }

}  // namespace attest
