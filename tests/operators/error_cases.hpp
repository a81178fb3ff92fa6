// Heads and kernels for the tests of the error models: random heads of every operator, and the forms run with
// the roundings of a contract by a second, simple implementation.
#pragma once
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "reference/forms/operator.hpp"
#include "reference/tensor/contract.hpp"

namespace attest::testing_errors {

// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  // Sum of four uniforms: bell-shaped, variance 1.
  double normal() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += uniform(-1, 1);
    return sum * std::sqrt(0.75);
  }

 private:
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

struct Shape {
  Index tokens, key_dim, value_dim;
  bool initial = false;  // an initial state
  bool ridge = false;
  bool log_gates = true;
};

inline Matrix<double> random_matrix(Random& random, Index rows, Index columns, double size,
                                    const Format& format) {
  Matrix<double> result(rows, columns);
  for (Index i = 0; i < result.size(); ++i) result.data()[i] = round_to(format, size * random.normal());
  return result;
}

inline void normalise_rows(Matrix<double>& keys, const Format& format) {
  for (Index t = 0; t < keys.rows(); ++t) {
    const double norm = std::sqrt(dot(keys.row(t), keys.row(t)));
    for (Index a = 0; a < keys.cols(); ++a) keys(t, a) = round_to(format, keys(t, a) / norm);
  }
}

inline State<double> random_state(Random& random, const Declaration& d, const Shape& shape,
                                  const Format& format) {
  State<double> state;
  state.position = d.level_scales ? 5 : 0;
  for (const Moment& moment : d.moments) {
    const Index columns = moment.value_columns ? shape.value_dim : shape.key_dim,
                levels = d.level_scales ? 4 : 1;
    for (Index level = 0; level < levels; ++level)
      state.moments[moment.name].push_back(random_matrix(random, shape.key_dim, columns, 0.5, format));
  }
  return state;
}

inline Head<double> random_head(const Declaration& d, const Shape& shape, const Contract& contract,
                                std::uint64_t seed) {
  Random random(seed);
  const Format& format = contract.input;
  Head<double> head;
  head.q = random_matrix(random, shape.tokens, shape.key_dim,
                         1 / std::sqrt(static_cast<double>(shape.key_dim)), format);
  head.k = random_matrix(random, shape.tokens, shape.key_dim, 1, format);
  head.v = random_matrix(random, shape.tokens, shape.value_dim, 1, format);
  if (d.beta) normalise_rows(head.k, format);
  for (Index t = 0; t < shape.tokens; ++t) {
    if (d.gates) {
      const double g = round_to(format, -random.uniform(0.001, 0.2)), alpha = round_to(format, std::exp(g));
      if (shape.log_gates) head.log_gate.push_back(g);
      head.alpha.push_back(shape.log_gates ? std::exp(g) : alpha);
    }
    if (d.beta) head.beta.push_back(round_to(format, random.uniform(0, 1)));
  }
  if (d.level_scales) {
    head.level_scales = Matrix<double>(shape.tokens, 16);
    for (Index i = 0; i < head.level_scales.size(); ++i)
      head.level_scales.data()[i] = round_to(format, random.normal());
  }
  if (d.decay) head.decay = 0.96875;
  if (d.ridge && shape.ridge) head.ridge = 0.375;
  if (shape.initial) head.initial = random_state(random, d, shape, format);
  return head;
}

template <class T>
Matrix<T> converted(const Matrix<double>& x) {
  Matrix<T> result(x.rows(), x.cols());
  for (Index i = 0; i < x.size(); ++i) result.data()[i] = T(x.data()[i]);
  return result;
}
template <class T>
std::vector<T> converted(const std::vector<double>& x) {
  std::vector<T> result;
  for (const double entry : x) result.push_back(T(entry));
  return result;
}
template <class T>
Head<T> converted(const Head<double>& head) {
  Head<T> result{converted<T>(head.q),
                 converted<T>(head.k),
                 converted<T>(head.v),
                 converted<T>(head.alpha),
                 converted<T>(head.log_gate),
                 converted<T>(head.beta),
                 converted<T>(head.level_scales),
                 T(head.decay),
                 T(head.ridge),
                 {}};
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const auto& moment : moments) result.initial.moments[name].push_back(converted<T>(moment));
  return result;
}

// A kernel of a contract: float registers, or double ones for an fp64 accumulator.
template <class T>
class Emulated : public Arithmetic<T> {
 public:
  Emulated(const Contract& contract, bool round_output) : contract_(contract), round_output_(round_output) {}
  Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) override {
    const Matrix<T> x = rounded(contract_.product, a), y = rounded(contract_.product, b);
    const Rounding rounding = contract_.truncates ? Rounding::toward_zero : Rounding::nearest_even;
    Matrix<T> result(a.rows(), b.cols());
    for (Index i = 0; i < x.rows(); ++i)
      for (Index j = 0; j < y.cols(); ++j) {
        double sum = 0;
        for (Index k = 0; k < x.cols(); ++k) {
          const double term = round_to(contract_.accumulate,
                                       static_cast<double>(x(i, k)) * static_cast<double>(y(k, j)), rounding);
          const double high = sum + term, part = high - sum, low = (sum - (high - part)) + (term - part);
          sum = round_to(contract_.accumulate, high, low, rounding);
        }
        result(i, j) = static_cast<T>(sum);
      }
    return result;
  }
  Matrix<T> operand(std::string_view, Matrix<T> x) override { return rounded(contract_.intermediate, x); }
  Matrix<T> carry(std::string_view, Matrix<T> x) override { return rounded(contract_.state, x); }
  Matrix<T> output(Matrix<T> x) override { return round_output_ ? rounded(contract_.output, x) : x; }
  Matrix<T> decay(const Gates<T>& gates, Index first, Index last) override {
    if (!gates.log_gate) return Arithmetic<T>::decay(gates, first, last);
    const Format& format = contract_.gate_sum;
    std::vector<double> sums{0};
    const Index start = contract_.gate_scope == GateScope::global ? 0 : first, size = last - first + 1;
    for (Index t = start; t < last; ++t)
      sums.push_back(round_to(format, sums.back() + static_cast<double>((*gates.log_gate)[t])));
    Matrix<T> weights(size, size);
    for (Index t = 0; t < size; ++t)
      for (Index s = 0; s <= t; ++s) {
        const double exponent = round_to(format, sums[first - start + t] - sums[first - start + s]);
        weights(t, s) = static_cast<T>(round_to(format, std::exp(exponent)));
      }
    return weights;
  }

 private:
  static Matrix<T> rounded(const Format& format, const Matrix<T>& x) {
    Matrix<T> result = x;
    for (Index i = 0; i < x.size(); ++i)
      result.data()[i] = static_cast<T>(round_to(format, static_cast<double>(x.data()[i])));
    return result;
  }
  const Contract contract_;
  bool round_output_;
};

template <class T>
Matrix<double> run_emulated(const Operator& op, const Head<double>& head, const Evaluation& how,
                            const Contract& contract, bool round_output = true) {
  Emulated<T> arithmetic(contract, round_output);
  const Evaluator<T>& evaluator = op;
  const Matrix<T> o = evaluator.evaluate(converted<T>(head), how, arithmetic).o;
  Matrix<double> result(o.rows(), o.cols());
  for (Index i = 0; i < o.size(); ++i) result.data()[i] = static_cast<double>(o.data()[i]);
  return result;
}

inline Matrix<double> run_kernel(const Operator& op, const Head<double>& head, const Evaluation& how,
                                 const Contract& contract) {
  if (contract.accumulate == fp64) return run_emulated<double>(op, head, how, contract);
  return run_emulated<float>(op, head, how, contract);
}

}  // namespace attest::testing_errors
