// Exact derivatives over any scalar: forward mode (Dual) and reverse mode (Var on a Tape).
// Dual carries value + tangent; Var records each operation with its local partial derivatives, and
// Tape::adjoints walks them backwards: x_bar = sum over uses y of y_bar * dy/dx.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace attest {

template <class S>
struct Dual {
  S value{0}, tangent{0};
  Dual() = default;
  Dual(int constant) : value(constant) {}
  Dual(S constant) : value(constant) {}
  Dual(S v, S t) : value(v), tangent(t) {}

  friend Dual operator+(const Dual& a, const Dual& b) { return {a.value + b.value, a.tangent + b.tangent}; }
  friend Dual operator-(const Dual& a, const Dual& b) { return {a.value - b.value, a.tangent - b.tangent}; }
  friend Dual operator*(const Dual& a, const Dual& b) {
    return {a.value * b.value, a.tangent * b.value + a.value * b.tangent};
  }
  friend Dual operator/(const Dual& a, const Dual& b) {
    const S quotient = a.value / b.value;
    return {quotient, (a.tangent - quotient * b.tangent) / b.value};
  }
  Dual operator-() const { return Dual() - *this; }
  Dual& operator+=(const Dual& other) { return *this = *this + other; }
  Dual& operator-=(const Dual& other) { return *this = *this - other; }
  Dual& operator*=(const Dual& other) { return *this = *this * other; }
  Dual& operator/=(const Dual& other) { return *this = *this / other; }
  friend bool operator==(const Dual& a, const Dual& b) {
    return a.value == b.value && a.tangent == b.tangent;
  }
};

// One tape is active per thread and scalar while it lives; Vars made meanwhile belong to it.
template <class S>
class Tape {
 public:
  Tape() : outer_(active()) { active() = this; }
  ~Tape() { active() = outer_; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  static Tape*& active() {
    thread_local Tape* tape = nullptr;
    return tape;
  }
  std::int64_t record(std::int64_t a, S slope_a, std::int64_t b, S slope_b) {
    nodes_.push_back({a, b, std::move(slope_a), std::move(slope_b)});
    return static_cast<std::int64_t>(nodes_.size()) - 1;
  }
  std::size_t size() const { return nodes_.size(); }
  // The adjoint of every node, from the cotangents put on some of them.
  std::vector<S> adjoints(std::vector<S> bar) const {
    bar.resize(nodes_.size(), S(0));
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = nodes_[i];
      if (node.a >= 0) bar[node.a] += bar[i] * node.slope_a;
      if (node.b >= 0) bar[node.b] += bar[i] * node.slope_b;
    }
    return bar;
  }

 private:
  struct Node {
    std::int64_t a, b;
    S slope_a, slope_b;
  };
  std::vector<Node> nodes_;
  Tape* outer_;
};

template <class S>
struct Var {
  S value{0};
  std::int64_t node = -1;  // -1: a constant
  Var() = default;
  Var(int constant) : value(constant) {}
  Var(S constant) : value(std::move(constant)) {}
  static Var input(S value) {
    Var result(std::move(value));
    result.node = Tape<S>::active()->record(-1, S(0), -1, S(0));
    return result;
  }

  friend Var operator+(const Var& a, const Var& b) { return make(a.value + b.value, a, S(1), b, S(1)); }
  friend Var operator-(const Var& a, const Var& b) { return make(a.value - b.value, a, S(1), b, S(-1)); }
  friend Var operator*(const Var& a, const Var& b) { return make(a.value * b.value, a, b.value, b, a.value); }
  friend Var operator/(const Var& a, const Var& b) {
    S quotient = a.value / b.value;
    return make(quotient, a, S(S(1) / b.value), b, S(S(0) - quotient / b.value));
  }
  Var operator-() const { return Var() - *this; }
  Var& operator+=(const Var& other) { return *this = *this + other; }
  Var& operator-=(const Var& other) { return *this = *this - other; }
  Var& operator*=(const Var& other) { return *this = *this * other; }
  Var& operator/=(const Var& other) { return *this = *this / other; }
  friend bool operator==(const Var& a, const Var& b) { return a.value == b.value; }

  static Var make(S value, const Var& a, S slope_a, const Var& b, S slope_b) {
    Var result(std::move(value));
    if (a.node >= 0 || b.node >= 0)
      result.node = Tape<S>::active()->record(a.node, std::move(slope_a), b.node, std::move(slope_b));
    return result;
  }
};

template <class S>
Var<S> exp(const Var<S>& a) {
  using std::exp;
  S value = exp(a.value);
  return Var<S>::make(value, a, value, Var<S>(), S(0));
}

}  // namespace attest
