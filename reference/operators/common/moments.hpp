// Decayed moments as the sums they are: what the direct forms of the HLA family are written with.
#pragma once
#include "reference/operators/common/chunk_linear.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/operators/common/variants.hpp"

namespace attest {

// 1, gamma, gamma^2, ... up to gamma^largest.
template <class S>
std::vector<S> powers(const S& gamma, Index largest) {
  std::vector<S> result{S(1)};
  for (Index i = 1; i <= largest; ++i) result.push_back(result.back() * gamma);
  return result;
}

// X_t = gamma^(t+1) X_initial + sum_{s<=t} gamma^(t-s) x_s y_s^T; t = -1 gives X_initial.
template <class S>
Matrix<S> moment(const std::vector<S>& gamma, const Matrix<S>& x, const Matrix<S>& y,
                 const Matrix<S>& initial, Index t) {
  Matrix<S> sum = gamma[t + 1] * initial;
  for (Index s = 0; s <= t; ++s) sum += gamma[t - s] * outer(x.row(s), y.row(s));
  return sum;
}

// row^T X_t without forming X_t.
template <class S>
Matrix<S> read_moment(const std::vector<S>& gamma, const std::type_identity_t<Matrix<S>>& row,
                      const Matrix<S>& x, const Matrix<S>& y, const Matrix<S>& initial, Index t) {
  Matrix<S> sum = gamma[t + 1] * product(row, initial);
  for (Index s = 0; s <= t; ++s) sum += (gamma[t - s] * dot(row, x.row(s))) * y.row(s);
  return sum;
}

template <class S>
Gates<S> constant_gates(const Head<S>& head, int power) {
  return {nullptr, nullptr, head.decay, power};
}

}  // namespace attest
