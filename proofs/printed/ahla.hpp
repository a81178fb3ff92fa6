// AHLA as printed: literal transcriptions of arXiv 2510.27258 section 6 and Figure 2C. Moments R (key_dim, key_dim),
// P, E (key_dim, value_dim), m, n (key_dim, 1).
#pragma once
#include "proofs/printed/hla2.hpp"

namespace attest::printed {

template <class S>
struct AhlaState {
  Matrix<S> R, P, m, E, n;
  S rho;
  template <class F>
  void visit(F&&) {}
};
template <class S>
AhlaState<S> ahla_zero(Dims d) {
  return {zeros<S>(d.key_dim, d.key_dim),   zeros<S>(d.key_dim, d.value_dim), zeros<S>(d.key_dim, 1),
          zeros<S>(d.key_dim, d.value_dim), zeros<S>(d.key_dim, 1),           S(1)};
}
template <class S>
void ahla_read(Rows<S>& rows, const AhlaState<S>& x, const Head<S>& in, Index t) {
  rows.o.row(t) = product(in.q.row(t), x.E), rows.normaliser.row(t) = product(in.q.row(t), x.n);
}
// P <- gamma P + k v^T, m <- gamma m + k, then E <- gamma E + k (q^T P), n <- gamma n + k (q^T m).
template <class S>
AhlaState<S> ahla_step(const AhlaState<S>& x, const Head<S>& in, Index t) {
  const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
  AhlaState<S> next = x;
  next.P = in.decay * x.P + outer(k, v), next.m = in.decay * x.m + k.transpose();
  next.E = in.decay * x.E + outer(k, product(q, next.P)),
  next.n = in.decay * x.n + outer(k, product(q, next.m));
  return next;
}
template <class S, class Step>
Rows<S> ahla_stream(const Head<S>& in, Step step) {
  Rows<S> rows = empty_rows(in);
  auto x = ahla_zero<S>(in.dims());
  for (Index t = 0; t < in.tokens(); ++t) {
    x = step(x, in, t);
    ahla_read(rows, x, in, t);
  }
  return rows;
}
template <class S>
Rows<S> ahla_stream(const Head<S>& in) {
  return ahla_stream(in, ahla_step<S>);
}

// Printed, decayed: R_AB = rho_B R_A + R_B; corrected: R_AB = R_A + R_B. E_AB = rho_B E_A + E_B + R_B (rho_B P_A).
enum class AhlaRule { printed, corrected, no_cross_term, cross_swapped };
template <AhlaRule rule>
struct AhlaMonoid {
  template <class S>
  using Segment = AhlaState<S>;
  template <class S>
  static AhlaState<S> identity(Dims d) {
    return ahla_zero<S>(d);
  }
  template <class S>
  static AhlaState<S> token(const Head<S>& in, Index t) {
    const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
    const S score = dot(q, k);
    return {outer(k, q), outer(k, v), k.transpose(), score * outer(k, v), score * k.transpose(), in.decay};
  }
  template <class S>
  static AhlaState<S> combine(const AhlaState<S>& a, const AhlaState<S>& b) {
    const S& r = b.rho;
    AhlaState<S> x{(rule == AhlaRule::corrected ? S(1) : r) * a.R + b.R,
                   r * a.P + b.P,
                   r * a.m + b.m,
                   r * a.E + b.E,
                   r * a.n + b.n,
                   a.rho * b.rho};
    if constexpr (rule == AhlaRule::cross_swapped)
      x.E += product(a.R, r * b.P), x.n += product(a.R, r * b.m);
    else if constexpr (rule != AhlaRule::no_cross_term)
      x.E += product(b.R, r * a.P), x.n += product(b.R, r * a.m);
    return x;
  }
};

template <class M, class S>
Rows<S> ahla_scan(const Head<S>& in) {
  std::vector<AhlaState<S>> all;
  for (Index t = 0; t < in.tokens(); ++t) all.push_back(M::token(in, t));
  Arithmetic<S> exact;
  const auto before = exclusive_scan<M>(exact, all, in.dims());
  Rows<S> rows = empty_rows(in);
  for (Index t = 0; t < in.tokens(); ++t)
    ahla_read(rows, M::combine(before[static_cast<std::size_t>(t)], all[static_cast<std::size_t>(t)]), in, t);
  return rows;
}
template <class M, class S>
Rows<S> ahla_left_fold(const Head<S>& in) {
  return ahla_stream(
      in, [](const AhlaState<S>& x, const Head<S>& all, Index t) { return M::combine(x, M::token(all, t)); });
}

// sum_{j<=t} sum_{i=j..t} weight(t, i, j) (q_t.k_i)(q_i.k_j) v_j.
template <class S, class W>
Rows<S> ahla_sum(const Head<S>& in, W weight) {
  Rows<S> rows = empty_rows(in);
  const Matrix<S> scores = product(in.q, in.k.transpose());
  for (Index t = 0; t < in.tokens(); ++t)
    for (Index j = 0; j <= t; ++j) {
      S total(0);
      for (Index i = j; i <= t; ++i) total += weight(t, i, j) * scores(t, i) * scores(i, j);
      rows.o.row(t) += total * in.v.row(j);
      rows.normaliser(t, 0) += total;
    }
  return rows;
}
template <class S>
Rows<S> ahla_masked(const Head<S>& in) {
  return ahla_sum(in, [&](Index t, Index, Index j) { return power(in.decay, t - j); });
}

// Figure 2C: q_t^T (E_A + R P_A) + [((W_loc W_loc) o L) V_loc]_t, R the moment of the chunk's tokens before t (printed)
// or up to and with t (corrected).
template <class S>
Rows<S> ahla_chunk(const Head<S>& in, Index width, bool inclusive) {
  Rows<S> rows = empty_rows(in);
  auto carry = ahla_zero<S>(in.dims());
  for (Index first = 0; first < in.tokens(); first += width) {
    const Index size = std::min(width, in.tokens() - first);
    const Matrix<S> w = causal_scores(in.q.middle_rows(first, size), in.k.middle_rows(first, size));
    const Rows<S> inside = masked_product(product(w, w), in.v.middle_rows(first, size));
    Matrix<S> r = zeros<S>(in.q.cols(), in.q.cols());
    for (Index t = first; t < first + size; ++t) {
      const Matrix<S> q = in.q.row(t), own = outer(in.k.row(t), in.q.row(t));
      if (inclusive) r += own;
      rows.o.row(t) = product(q, carry.E + product(r, carry.P)) + inside.o.row(t - first);
      rows.normaliser.row(t) = product(q, carry.n + product(r, carry.m)) + inside.normaliser.row(t - first);
      if (!inclusive) r += own;
    }
    for (Index t = first; t < first + size; ++t) carry = ahla_step(carry, in, t);
  }
  return rows;
}

}  // namespace attest::printed
