// Lin: the chunked decayed linear attention out of which the chunk forms of the first-order family and of HLA are
// composed. Inside a chunk of width w, with W(t,s) the product of the gates of s+1..t:
//   inclusive  o_t = sum_{s<=t} W(t,s) (q_t.k_s) v_s + W(t,start) q_t^T P        (P: state before the chunk)
//   exclusive  o_t = the same read one token earlier: q_t^T P_{t-1}
//   carry      P  <- W(end,start) P + sum_s W(end,s) k_s v_s^T
// Four products a chunk: scores, local, read-out, carry.
#pragma once
#include <algorithm>
#include <string>

#include "reference/tensor/arithmetic.hpp"

namespace attest {

enum class Reads { inclusive, exclusive };

template <class S>
struct Lin {
  Matrix<S> o, state;  // (tokens, value_dim), (key_dim, value_dim)
};

template <class S>
Lin<S> chunk_linear(Arithmetic<S>& arithmetic, const std::string& name, const Matrix<S>& q,
                    const Matrix<S>& k, const Matrix<S>& v, const Gates<S>& gates, Matrix<S> state,
                    Index width, Reads reads = Reads::inclusive) {
  const Index shift = reads == Reads::inclusive ? 0 : 1;
  Lin<S> result{zeros<S>(q.rows(), v.cols()), std::move(state)};
  for (Index first = 0; first < q.rows(); first += width) {
    const Index size = std::min(width, q.rows() - first);
    const Matrix<S> decay = arithmetic.decay(gates, first, first + size);
    const Matrix<S> q_c = q.middle_rows(first, size), k_c = k.middle_rows(first, size),
                    v_c = v.middle_rows(first, size);
    Matrix<S> weights = arithmetic.product(q_c, k_c.transpose());  // (size, size)
    Matrix<S> faded_keys = k_c;
    Matrix<S> carried = arithmetic.product(q_c, arithmetic.operand(name + ".state", result.state));
    for (Index t = 0; t < size; ++t) {
      for (Index s = 0; s < size; ++s)
        weights(t, s) = s + shift <= t ? S(decay(t + 1 - shift, s + 1) * weights(t, s)) : S(0);
      carried.row(t) *= decay(t + 1 - shift, 0);
      faded_keys.row(t) *= decay(size, t + 1);
    }
    Matrix<S> local = arithmetic.product(arithmetic.operand(name + ".weights", std::move(weights)), v_c);
    result.o.set_rows(first, std::move(local) + carried);
    const Matrix<S> gained =
        arithmetic.product(arithmetic.operand(name + ".keys", std::move(faded_keys)).transpose(), v_c);
    result.state = arithmetic.carry(name + ".carry", Matrix<S>(decay(size, 0) * result.state + gained));
  }
  return result;
}

}  // namespace attest
