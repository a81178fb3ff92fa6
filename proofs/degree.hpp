// An upper bound on the total degree of a polynomial: the scalar (max, +). Evaluating an identity over it with every
// input of degree 1 gives the D of Schwartz-Zippel; cancellation only lowers the true degree. The constant 0 has
// degree minus infinity. No division: identities are polynomial.
#pragma once
#include <algorithm>

#include "reference/tensor/matrix.hpp"

namespace attest {

class Degree {
 public:
  static constexpr Index none = -(Index{1} << 40);

  Degree() = default;
  Degree(int constant) : degree_(constant == 0 ? none : 0) {}
  static Degree of_degree(Index degree) {
    Degree result;
    result.degree_ = degree;
    return result;
  }
  Index degree() const { return std::max<Index>(degree_, 0); }

  friend Degree operator+(Degree a, Degree b) { return of_degree(std::max(a.degree_, b.degree_)); }
  friend Degree operator-(Degree a, Degree b) { return a + b; }
  friend Degree operator*(Degree a, Degree b) {
    return a.degree_ < 0 || b.degree_ < 0 ? Degree() : of_degree(a.degree_ + b.degree_);
  }
  Degree operator-() const { return *this; }
  Degree& operator+=(Degree other) { return *this = *this + other; }
  Degree& operator-=(Degree other) { return *this = *this + other; }
  Degree& operator*=(Degree other) { return *this = *this * other; }
  friend bool operator==(Degree a, Degree b) { return a.degree_ == b.degree_; }

 private:
  Index degree_ = none;
};

}  // namespace attest
