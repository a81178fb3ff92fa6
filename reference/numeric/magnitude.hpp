// The sum of the absolute values of the terms: a scalar that forgets signs, so that the direct form evaluated in
// it gives the magnitude M of its own sum. Subtraction adds; every input enters as its absolute value. Extended precision:
// its exponents let products of several doubles neither underflow nor overflow before they are summed.
#pragma once
#include <cmath>

namespace attest {

class Magnitude {
 public:
  Magnitude() = default;
  Magnitude(int value) : Magnitude(static_cast<double>(value)) {}
  explicit Magnitude(double value) : Magnitude(static_cast<long double>(value)) {}
  explicit Magnitude(long double value) : value_(std::abs(value)) {}
  double value() const { return static_cast<double>(value_); }

  friend Magnitude operator+(Magnitude a, Magnitude b) { return Magnitude(a.value_ + b.value_); }
  friend Magnitude operator-(Magnitude a, Magnitude b) { return a + b; }
  friend Magnitude operator*(Magnitude a, Magnitude b) { return Magnitude(a.value_ * b.value_); }
  friend Magnitude operator/(Magnitude a, Magnitude b) { return Magnitude(a.value_ / b.value_); }
  Magnitude operator-() const { return *this; }
  Magnitude& operator+=(Magnitude other) { return *this = *this + other; }
  Magnitude& operator-=(Magnitude other) { return *this = *this + other; }
  Magnitude& operator*=(Magnitude other) { return *this = *this * other; }
  friend bool operator==(Magnitude a, Magnitude b) { return a.value_ == b.value_; }

 private:
  long double value_ = 0;
};

}  // namespace attest
