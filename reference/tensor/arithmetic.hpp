// How a form computes: the places where a kernel rounds are named here, and the truth rounds nowhere.
// A form calls product() for every matrix product, operand() for a tensor it feeds to one after computing it,
// carry() for a state it keeps, output() for what it returns, and asks decay() for the attenuation of a segment.
// Exact evaluation uses this class as it is; the CPU kernels override it with their precision contract, and the
// tests of the error model with one that perturbs a single entry of a single stage.
#pragma once
#include <string_view>

#include "reference/tensor/head.hpp"

namespace attest {

// The attenuation of a Lin: a gate per token, or a constant gamma^power.
template <class S>
struct Gates {
  const std::vector<S>* alpha = nullptr;     // (tokens), or null
  const std::vector<S>* log_gate = nullptr;  // (tokens), as given; may be null
  S gamma{1};
  int power = 1;
};

template <class S>
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  virtual Matrix<S> product(const Matrix<S>& a, const Matrix<S>& b) { return attest::product(a, b); }
  virtual Matrix<S> operand(std::string_view, Matrix<S> tensor) { return tensor; }
  virtual Matrix<S> carry(std::string_view, Matrix<S> state) { return state; }
  virtual Matrix<S> output(Matrix<S> o) { return o; }
  // Whether anybody reads the final states; a form may leave out what only they need.
  virtual bool wants_states() const { return true; }
  // (I + strictly lower)^-1 of a unit lower-triangular matrix, by substitution.
  virtual Matrix<S> inverse(std::string_view, const Matrix<S>& n) {
    Matrix<S> result = identity_matrix<S>(n.rows());
    for (Index i = 0; i < n.rows(); ++i)
      for (Index s = 0; s < i; ++s)
        for (Index j = 0; j <= s; ++j) result(i, j) -= n(i, s) * result(s, j);
    return result;
  }
  // W(t - first + 1, s - first + 1) = product of the gates of tokens s+1 .. t, for first-1 <= s <= t < last;
  // row and column 0 stand for the moment before `first`. (last-first+1, last-first+1), lower triangular.
  virtual Matrix<S> decay(const Gates<S>& gates, Index first, Index last) {
    const Index size = last - first + 1;
    Matrix<S> weights = zeros<S>(size, size);
    for (Index s = 0; s < size; ++s) {
      weights(s, s) = S(1);
      for (Index t = s + 1; t < size; ++t) weights(t, s) = weights(t - 1, s) * gate(gates, first + t - 1);
    }
    return weights;
  }

 protected:
  static S gate(const Gates<S>& gates, Index t) {
    return gates.alpha ? (*gates.alpha)[t] : attest::power(gates.gamma, gates.power);
  }
};

}  // namespace attest
