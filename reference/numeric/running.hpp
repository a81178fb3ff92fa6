// Running error analysis as a scalar: a value and a bound on what a computation in working precision u may
// have got wrong so far, second order included:
//   x + y: e = e_x + e_y + u (|x + y| + e_x + e_y),   x y: e = e' + u (|x y| + e') + eta, e' = |x| e_y + |y|
//   e_x + e_x e_y
// Exact where working arithmetic is: adding 0, multiplying by 0 or +-1. The value itself is computed in
// double. Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.3.
// With Working::any_order a sum remembers its terms x_1 .. x_n until it is multiplied, stored (widen) or read into one that
// is: e = sum of e_i + gamma_(n-1) sum of (|x_i| + e_i), the bound of every order and tree of additions (section 4.2), for
// n = 2 that of the one addition.
// What may come to more than Working::most on the way, in any order, is noted: it overflows, and a later factor of 0 makes a
// NaN of it, which no error tells.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace attest {

class Running {
 public:
  double value = 0, error = 0;

  Running() = default;
  Running(int constant) : value(constant) {}
  explicit Running(double constant) : value(constant) {}
  Running(double v, double e) : value(v), error(e) {}

  // Unit roundoff and smallest subnormal of the working precision, the error of its exponential in units of u, whether sums
  // may be made in any order, and what must not be exceeded.
  struct Working {
    double u = 0, eta = 0, exp_units = 0;
    bool any_order = false;
    double most = std::numeric_limits<double>::infinity();
    bool exceeded = false;
    void note(double size) { exceeded = exceeded || !(size <= most); }
  };
  static Working& working() {
    thread_local Working current;
    return current;
  }

  // Stored: one number from now on, with so much more error.
  void widen(double more) { *this = Running(value, error + more); }

  friend Running operator+(const Running& a, const Running& b) {
    if (a.is(0)) return b;
    if (b.is(0)) return a;
    if (working().any_order) return any_order(a, b);
    return sum(a.value + b.value, a.error + b.error);
  }
  friend Running operator-(const Running& a, const Running& b) { return a + -b; }
  friend Running operator*(const Running& a, const Running& b) {
    if (a.is(0) || b.is(0)) return {};
    if (a.is(1)) return b;
    if (b.is(1)) return a;
    const double before = std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error;
    Running result = sum(a.value * b.value, before);
    result.error += working().eta;
    return result;
  }
  // Of a matrix product: sum += factor row. A factor of 0 adds nothing.
  friend void add_multiple(Running* sum, const Running& factor, const Running* row, std::int64_t columns) {
    if (factor.is(0)) return;
    for (std::int64_t j = 0; j < columns; ++j)
      if (!row[j].is(0)) sum[j] = sum[j] + factor * row[j];
  }
  friend Running operator/(const Running& a, const Running& b) {
    const double quotient = a.value / b.value, room = std::abs(b.value) - b.error;
    if (!(room > 0)) return {quotient, std::numeric_limits<double>::infinity()};
    Running result = sum(quotient, (a.error + std::abs(quotient) * b.error) / room);
    result.error += working().eta;
    return result;
  }
  Running operator-() const {
    Running result = *this;
    result.value = -value;
    return result;
  }
  Running& operator+=(const Running& other) { return *this = *this + other; }
  Running& operator-=(const Running& other) { return *this = *this - other; }
  Running& operator*=(const Running& other) { return *this = *this * other; }
  Running& operator/=(const Running& other) { return *this = *this / other; }
  friend bool operator==(const Running& a, const Running& b) {
    return a.value == b.value && a.error == b.error;
  }

  friend Running exp(const Running& a) {
    const double value = std::exp(a.value), before = value * std::expm1(a.error);
    return {value, before + working().exp_units * working().u * (value + before) + working().eta};
  }

 private:
  // The terms of a sum of two or more; of one number it is that number.
  struct Terms {
    double error = 0, size = 0;  // sums of e_i, of |x_i| + e_i
    double count = 0;            // 0: one number
  };
  Terms terms() const { return terms_.count > 0 ? terms_ : Terms{error, std::abs(value) + error, 1}; }
  bool is(double constant) const { return value == constant && error == 0; }
  static Running sum(double value, double before) {
    Working& w = working();
    const double size = std::abs(value) + before;
    w.note(size);
    return {value, before + w.u * size};
  }
  static Running any_order(const Running& a, const Running& b) {
    const Terms x = a.terms(), y = b.terms();
    const Terms all{x.error + y.error, x.size + y.size, x.count + y.count};
    Running result = sum(a.value + b.value, all.error);
    working().note(all.size);
    if (all.count > 2) {
      const double rounding = (all.count - 1) * working().u;
      result.error = rounding < 0.5 ? all.error + rounding / (1 - rounding) * all.size
                                    : std::numeric_limits<double>::infinity();
    }
    result.terms_ = all;
    return result;
  }

  Terms terms_;
};

// Holds the working precision of Running while it lives. What was exceeded within is so without.
class WorkingScope {
 public:
  explicit WorkingScope(const Running::Working& working) : saved_(Running::working()) {
    Running::working() = working;
  }
  ~WorkingScope() {
    saved_.exceeded = saved_.exceeded || Running::working().exceeded;
    Running::working() = saved_;
  }
  WorkingScope(const WorkingScope&) = delete;
  WorkingScope& operator=(const WorkingScope&) = delete;

 private:
  Running::Working saved_;
};

}  // namespace attest
