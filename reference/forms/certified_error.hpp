// How the errors of double-double tables combine: lemmas 2 and 3 and steps 1 and 5 of tests/forms/certified.md.
#pragma once
#include <limits>

#include "reference/forms/certified_kernels.hpp"

namespace attest {

inline constexpr double kFloor = 0x1p-950;  // added to every magnitude: covers all underflow
inline constexpr double kU2 = 0x1p-106;
inline constexpr double kPairProduct = 9 * kU2;
inline constexpr double kUp =
    1 + 0x1p-30;  // covers the rounding of the few operations that combine error bounds

// Relative error of a product or sum of products of operands wrong by a and b, itself wrong by `local`.
inline double product_error(double a, double b, double local) {
  if (!(a <= 0.25 && b <= 0.25)) return std::numeric_limits<double>::infinity();
  return (a + b + a * b + local * (1 + a) * (1 + b)) * kUp;
}
// Of a product of `count` factors wrong by `each`.
inline double power_error(double each, Index count) {
  const double total = each * static_cast<double>(count) * kUp;
  return total <= 1 ? (total + total * total) * kUp : std::numeric_limits<double>::infinity();
}
// What makes a computed sum of `terms` non-negative numbers an upper bound.
inline double sum_inflation(Index terms) { return 1 + static_cast<double>(terms + 8) * 0x1p-52; }
inline double weight_inflation(double error) { return 1 + 2 * error + 0x1p-48; }

}  // namespace attest
