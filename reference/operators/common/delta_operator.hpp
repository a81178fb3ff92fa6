// The delta rules in chunks (UT / WY transform). Inside a chunk, Gamma(t,s) the product of the gates of s+1..t,
// g_t = Gamma(t,start), P = tril(Q K^T o Gamma), K' = diag(Gamma(end,s)) K:
//   N = I + stril(diag(beta) K K^T o Gamma),  T = N^-1 diag(beta),  W = T diag(g) K
//   U = T V - W S,  O = diag(g) Q S + P U,  S <- Gamma(end,start) S + K'^T U
// Source: Yang et al. 2024, arXiv 2406.06484 section 3 and arXiv 2412.06464 section 3.3.
#pragma once
#include <algorithm>

#include "reference/operators/common/linear_recurrence.hpp"
#include "reference/operators/common/variants.hpp"

namespace attest {

template <class S>
struct DeltaChunk {
  Index first, size;
  Matrix<S> decay;                   // (size+1, size+1), Gamma with row and column 0 for the start
  Matrix<S> q, k, v;                 // (size, ...)
  Matrix<S> scores;                  // P (size, size)
  Matrix<S> inverse;                 // T (size, size)
  Matrix<S> w;                       // W (size, key_dim)
  Matrix<S> faded_keys;              // K' (size, key_dim)
  Matrix<S> faded_queries() const {  // diag(g) Q
    Matrix<S> result = q;
    for (Index t = 0; t < size; ++t) result.row(t) *= decay(t + 1, 0);
    return result;
  }
};

template <class S>
DeltaChunk<S> delta_chunk(Arithmetic<S>& arithmetic, const Head<S>& head, const Gates<S>& gates, Index first,
                          Index size) {
  DeltaChunk<S> c{first,
                  size,
                  arithmetic.decay(gates, first, first + size),
                  head.q.middle_rows(first, size),
                  head.k.middle_rows(first, size),
                  head.v.middle_rows(first, size),
                  {},
                  {},
                  {},
                  {}};
  c.scores = arithmetic.product(c.q, c.k.transpose());
  Matrix<S> n = arithmetic.product(c.k, c.k.transpose());
  Matrix<S> faded = c.k;  // diag(g) K
  c.faded_keys = c.k;
  for (Index t = 0; t < size; ++t) {
    const S beta = head.beta[first + t];
    for (Index s = 0; s < size; ++s) {
      c.scores(t, s) = s <= t ? S(c.decay(t + 1, s + 1) * c.scores(t, s)) : S(0);
      n(t, s) = s < t ? S(beta * c.decay(t + 1, s + 1) * n(t, s)) : S(s == t ? 1 : 0);
    }
    faded.row(t) *= c.decay(t + 1, 0);
    c.faded_keys.row(t) *= c.decay(size, t + 1);
  }
  c.inverse = arithmetic.inverse("inverse", n);
  for (Index t = 0; t < size; ++t)
    for (Index s = 0; s <= t; ++s) c.inverse(t, s) = c.inverse(t, s) * head.beta[first + s];
  c.scores = arithmetic.operand("scores", std::move(c.scores));
  c.inverse = arithmetic.operand("ut", std::move(c.inverse));
  c.faded_keys = arithmetic.operand("keys", std::move(c.faded_keys));
  c.w = arithmetic.operand("w",
                           arithmetic.product(c.inverse, arithmetic.operand("start_keys", std::move(faded))));
  return c;
}

template <Gate gate>
struct DeltaOperator : Recurrence<DeltaTransition<gate>> {
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    Matrix<S> state = initial_moment(head, "S", head.q.cols(), head.v.cols());
    Matrix<S> o = zeros<S>(head.tokens(), head.v.cols());
    for (Index first = 0; first < head.tokens(); first += width) {
      const Index size = std::min(width, head.tokens() - first);
      const auto c = delta_chunk(arithmetic, head, ScalarTransition<gate>::gates(head), first, size);
      const Matrix<S> before = arithmetic.operand("state", state);
      const Matrix<S> u = arithmetic.operand(
          "u", Matrix<S>(arithmetic.product(c.inverse, c.v) - arithmetic.product(c.w, before)));
      Matrix<S> carried = arithmetic.product(c.q, before);
      for (Index t = 0; t < size; ++t) carried.row(t) *= c.decay(t + 1, 0);
      o.set_rows(first, carried + arithmetic.product(c.scores, u));
      state = arithmetic.carry(
          "carry", Matrix<S>(c.decay(size, 0) * state + arithmetic.product(c.faded_keys.transpose(), u)));
    }
    Solution<S> result{arithmetic.output(o), {}};
    result.final.moments["S"] = {state};
    return result;
  }
};

}  // namespace attest
