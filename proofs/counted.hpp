// A scalar that computes nothing and counts its multiplications: what a form costs.
#pragma once
#include "reference/tensor/matrix.hpp"

namespace attest {

struct Counted {
  static Index& multiplications() {
    thread_local Index count = 0;
    return count;
  }
  Counted() = default;
  Counted(int) {}
  friend Counted operator+(Counted, Counted) { return {}; }
  friend Counted operator-(Counted, Counted) { return {}; }
  friend Counted operator*(Counted, Counted) {
    ++multiplications();
    return {};
  }
  Counted operator-() const { return {}; }
  Counted& operator+=(Counted) { return *this; }
  Counted& operator-=(Counted) { return *this; }
  Counted& operator*=(Counted) {
    ++multiplications();
    return *this;
  }
  friend bool operator==(Counted, Counted) { return true; }
};

}  // namespace attest
