// A scalar that carries the set of tokens it was computed from, and no value: what an output depends on for any input,
// transcendental functions included.
#pragma once
#include <cstdint>

namespace attest {

struct Dependence {
  std::uint64_t tokens = 0;  // one bit each
  Dependence() = default;
  Dependence(int) {}
  explicit Dependence(double) {}
  static Dependence on(std::int64_t token) {
    Dependence result;
    result.tokens = std::uint64_t{1} << token;
    return result;
  }
  friend Dependence operator+(Dependence a, Dependence b) { return a |= b; }
  friend Dependence operator-(Dependence a, Dependence b) { return a |= b; }
  friend Dependence operator*(Dependence a, Dependence b) { return a |= b; }
  friend Dependence operator/(Dependence a, Dependence b) { return a |= b; }
  Dependence& operator+=(Dependence b) { return *this |= b; }
  Dependence& operator-=(Dependence b) { return *this |= b; }
  Dependence& operator*=(Dependence b) { return *this |= b; }
  Dependence& operator/=(Dependence b) { return *this |= b; }
  friend bool operator==(Dependence a, Dependence b) { return a.tokens == b.tokens; }

 private:
  Dependence& operator|=(Dependence b) {
    tokens |= b.tokens;
    return *this;
  }
};
inline Dependence exp(Dependence a) { return a; }
// The shift of softmax near a row's maximum; it changes no exact value.
inline double approximate(Dependence) { return 0; }

}  // namespace attest
