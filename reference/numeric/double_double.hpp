// Double-double: a number as the unevaluated sum high + low of two doubles, |low| <= u |high|, u = 2^-53.
//
// Relative error of each operation (barring underflow and overflow), proved in
//   [JMP] Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
//         arithmetic", ACM TOMS 44(2), 2017, and
//   [MR]  Muller, Rideau, "Formalization of double-word arithmetic", ACM TOMS 48(1), 2022:
//   x + d: 2u^2    x + y: 3u^2/(1-4u)    x * d: 3/2 u^2 + 4u^3    x * y: 5u^2    x / y: 15u^2 + 56u^3.
// two_sum is exact (Knuth), fast_two_sum where |a| >= |b| (Dekker), two_product where nothing underflows.
#pragma once

#include <cmath>
#include <compare>

namespace attest {

struct DoubleDouble {
  double high = 0, low = 0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(double value) : high(value) {}
  constexpr DoubleDouble(double h, double l) : high(h), low(l) {}

  explicit operator double() const { return high; }

  friend constexpr bool operator==(const DoubleDouble&, const DoubleDouble&) = default;
  friend constexpr std::partial_ordering operator<=>(const DoubleDouble& a, const DoubleDouble& b) {
    const auto by_high = a.high <=> b.high;
    return by_high == 0 ? a.low <=> b.low : by_high;
  }
};

inline constexpr double kUnitRoundoff = 0x1p-53;

// s = RN(a + b), e = (a + b) - s. Knuth, TAOCP 2, 4.2.2, Theorem B.
inline DoubleDouble two_sum(double a, double b) {
  const double s = a + b;
  const double b_seen = s - a;
  const double a_seen = s - b_seen;
  return {s, (a - a_seen) + (b - b_seen)};
}

// As two_sum, for |a| >= |b| or a = 0. Dekker, Numer. Math. 18, 1971.
inline DoubleDouble fast_two_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

// p = RN(a b), e = a b - p: exact unless |a b| < 2^-969, where it is off by at most 2^-1075.
inline DoubleDouble two_product(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}

inline DoubleDouble operator-(const DoubleDouble& a) { return {-a.high, -a.low}; }

// [JMP] Algorithm 4, DWPlusFP.
inline DoubleDouble operator+(const DoubleDouble& a, double b) {
  const DoubleDouble s = two_sum(a.high, b);
  return fast_two_sum(s.high, a.low + s.low);
}

// [JMP] Algorithm 6, AccurateDWPlusDW.
inline DoubleDouble operator+(const DoubleDouble& a, const DoubleDouble& b) {
  const DoubleDouble s = two_sum(a.high, b.high);
  const DoubleDouble t = two_sum(a.low, b.low);
  const DoubleDouble v = fast_two_sum(s.high, s.low + t.high);
  return fast_two_sum(v.high, t.low + v.low);
}

inline DoubleDouble operator-(const DoubleDouble& a, const DoubleDouble& b) { return a + (-b); }

// [JMP] Algorithm 7, DWTimesFP1.
inline DoubleDouble operator*(const DoubleDouble& a, double b) {
  const DoubleDouble p = two_product(a.high, b);
  const DoubleDouble t = fast_two_sum(p.high, a.low * b);
  return fast_two_sum(t.high, t.low + p.low);
}

// [JMP] Algorithm 11, DWTimesDW2; the bound 5u^2 is [MR]'s.
inline DoubleDouble operator*(const DoubleDouble& a, const DoubleDouble& b) {
  const DoubleDouble p = two_product(a.high, b.high);
  const double cross = std::fma(a.high, b.low, a.low * b.high);
  return fast_two_sum(p.high, p.low + cross);
}

// [JMP] Algorithm 17, DWDivDW2.
inline DoubleDouble operator/(const DoubleDouble& a, const DoubleDouble& b) {
  const double quotient = a.high / b.high;
  const DoubleDouble back = b * quotient;
  const double rest = (a.high - back.high) + (a.low - back.low);
  return fast_two_sum(quotient, rest / b.high);
}

inline DoubleDouble& operator+=(DoubleDouble& a, const DoubleDouble& b) { return a = a + b; }
inline DoubleDouble& operator-=(DoubleDouble& a, const DoubleDouble& b) { return a = a - b; }
inline DoubleDouble& operator*=(DoubleDouble& a, const DoubleDouble& b) { return a = a * b; }
inline DoubleDouble& operator/=(DoubleDouble& a, const DoubleDouble& b) { return a = a / b; }

inline DoubleDouble abs(const DoubleDouble& a) { return a.high < 0 || (a.high == 0 && a.low < 0) ? -a : a; }

inline bool isfinite(const DoubleDouble& a) { return std::isfinite(a.high) && std::isfinite(a.low); }

}  // namespace attest
