// The prime field Z/p with p = 2^61 - 1 (a Mersenne prime): a uniformly random instance satisfies a false
// polynomial identity of total degree D with probability at most D/p (Schwartz-Zippel).
#pragma once
#include <cstdint>
#include <ostream>

#include "reference/numeric/rational.hpp"

namespace attest {

class PrimeField {
 public:
  static constexpr std::uint64_t modulus = (std::uint64_t{1} << 61) - 1;

  PrimeField() = default;
  PrimeField(int value)
      : residue_(value < 0 ? modulus - reduce(-static_cast<std::int64_t>(value)) : reduce(value)) {
    if (residue_ == modulus) residue_ = 0;
  }
  static PrimeField from_residue(std::uint64_t value) {
    PrimeField result;
    result.residue_ = value % modulus;
    return result;
  }
  std::uint64_t residue() const { return residue_; }

  friend PrimeField operator+(PrimeField a, PrimeField b) {
    const std::uint64_t sum = a.residue_ + b.residue_;
    return raw(sum >= modulus ? sum - modulus : sum);
  }
  friend PrimeField operator-(PrimeField a, PrimeField b) {
    return raw(a.residue_ >= b.residue_ ? a.residue_ - b.residue_ : a.residue_ + modulus - b.residue_);
  }
  friend PrimeField operator*(PrimeField a, PrimeField b) {
    const auto wide = static_cast<unsigned __int128>(a.residue_) * b.residue_;
    const std::uint64_t sum =
        static_cast<std::uint64_t>(wide & modulus) + static_cast<std::uint64_t>(wide >> 61);
    return raw(sum >= modulus ? sum - modulus : sum);
  }
  // Division by zero gives zero times the inverse of zero, i.e. zero: callers keep denominators away from it.
  friend PrimeField operator/(PrimeField a, PrimeField b) { return a * b.power(modulus - 2); }
  PrimeField operator-() const { return PrimeField() - *this; }
  PrimeField& operator+=(PrimeField other) { return *this = *this + other; }
  PrimeField& operator-=(PrimeField other) { return *this = *this - other; }
  PrimeField& operator*=(PrimeField other) { return *this = *this * other; }
  PrimeField& operator/=(PrimeField other) { return *this = *this / other; }
  friend bool operator==(PrimeField a, PrimeField b) { return a.residue_ == b.residue_; }
  friend std::ostream& operator<<(std::ostream& out, PrimeField a) { return out << a.residue_; }

  PrimeField power(std::uint64_t exponent) const {
    PrimeField result(1), base = *this;
    for (; exponent != 0; exponent >>= 1, base *= base)
      if (exponent & 1) result *= base;
    return result;
  }

 private:
  static constexpr std::uint64_t reduce(std::int64_t value) {
    return static_cast<std::uint64_t>(value) % modulus;
  }
  static PrimeField raw(std::uint64_t residue) {
    PrimeField result;
    result.residue_ = residue;
    return result;
  }
  std::uint64_t residue_ = 0;
};

}  // namespace attest
