// Third-order HLA as printed: literal transcriptions of arXiv 2510.27258 section 7 and Algorithm 3. Moments K = S^K,
// Q = S^Q (key_dim, key_dim), P (key_dim, value_dim), m (key_dim, 1); G = G1 + G2 + G3, h alike with v := 1.
#pragma once
#include "proofs/printed/hla2.hpp"

namespace attest::printed {

template <class S>
struct Hla3State {
  Matrix<S> K, Q, P, m, G, h;
};
template <class S>
Hla3State<S> hla3_zero(Dims d) {
  const Matrix<S> square = zeros<S>(d.key_dim, d.key_dim), wide = zeros<S>(d.key_dim, d.value_dim),
                  thin = zeros<S>(d.key_dim, 1);
  return {square, square, wide, thin, wide, thin};
}

// D^K S^Q P + S^K D^Q P + S^K S^Q D^P of the moments `x` before the token; each increment times its own factor.
template <class S>
Matrix<S> singles(const Hla3State<S>& x, const Matrix<S>& p, const Matrix<S>& k, const Matrix<S>& q,
                  const Matrix<S>& dp) {
  return product(product(outer(k, k), x.Q), p) + product(product(x.K, outer(q, q)), p) +
         product(product(x.K, x.Q), dp);
}
// Printed Algorithm 3: moments times gamma, G <- gamma G + the increments of the previous, undecayed moments. Corrected:
// G <- gamma^3 G + gamma^2 (the same increments).
template <class S>
Hla3State<S> hla3_step(const Hla3State<S>& x, const Head<S>& in, Index t, bool corrected = false) {
  const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t), kv = outer(k, v), kc = k.transpose();
  const S& g = in.decay;
  const S old = corrected ? S(g * g * g) : g, fresh = corrected ? S(g * g) : S(1);
  return {g * x.K + outer(k, k),
          g * x.Q + outer(q, q),
          g * x.P + kv,
          g * x.m + kc,
          old * x.G + fresh * singles(x, x.P, k, q, kv),
          old * x.h + fresh * singles(x, x.m, k, q, kc)};
}
template <class S>
Rows<S> hla3_stream(const Head<S>& in, bool corrected = false) {
  Rows<S> rows = empty_rows(in);
  auto x = hla3_zero<S>(in.dims());
  for (Index t = 0; t < in.tokens(); ++t) {
    x = hla3_step(x, in, t, corrected);
    const Matrix<S> q = in.q.row(t), kq = product(x.K, x.Q);
    rows.o.row(t) = product(q, product(kq, x.P) - x.G),
    rows.normaliser.row(t) = product(q, product(kq, x.m) - x.h);
  }
  return rows;
}

// The masked operator's stream: F <- gamma^3 F + (S^K q)(q^T P), eta alike, o = q^T F.
template <class S>
Rows<S> hla3_masked_stream(const Head<S>& in, bool exclusive = false) {
  Rows<S> rows = empty_rows(in);
  auto x = hla3_zero<S>(in.dims());
  Matrix<S> F = x.P, eta = x.m;
  const S cube = in.decay * in.decay * in.decay;
  for (Index t = 0; t < in.tokens(); ++t) {
    const auto before = x;
    x = hla3_step(x, in, t);
    const auto& at = exclusive ? before : x;
    const Matrix<S> q = in.q.row(t), a = product(q, at.K);
    F = cube * F + outer(a, product(q, at.P)), eta = cube * eta + outer(a, product(q, at.m));
    rows.o.row(t) = product(q, F), rows.normaliser.row(t) = product(q, eta);
  }
  return rows;
}

// Equation 7.5: F_t = F_{t-1} + S^K D^Q D^P + D^K S^Q D^P + D^K D^Q P + D^K D^Q D^P, moments before the token.
template <class S>
Rows<S> hla3_recurrence(const Head<S>& in, bool without_triple = false) {
  Rows<S> rows = empty_rows(in);
  auto x = hla3_zero<S>(in.dims());
  Matrix<S> F = x.P, eta = x.m;
  for (Index t = 0; t < in.tokens(); ++t) {
    const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t), DK = outer(k, k), DQ = outer(q, q);
    auto gain = [&](const Matrix<S>& p, const Matrix<S>& dp) {
      Matrix<S> sum =
          product(product(x.K, DQ), dp) + product(product(DK, x.Q), dp) + product(product(DK, DQ), p);
      return without_triple ? sum : sum + product(product(DK, DQ), dp);
    };
    F += gain(x.P, outer(k, v)), eta += gain(x.m, Matrix<S>(k.transpose()));
    x = hla3_step(x, in, t);
    rows.o.row(t) = product(q, F), rows.normaliser.row(t) = product(q, eta);
  }
  return rows;
}

// The segment of (x)_3. The maps M[Z] = sum D^K Z D^P are kept as matrices on vec(Z), (key_dim value_dim, key_dim^2).
template <class S>
struct Hla3Segment {
  Matrix<S> K, Q, P, m, R, r, U, M, Mm, F, eta;
  S rho;
  template <class F_>
  void visit(F_&&) {}
};
template <class S>
Matrix<S> apply_map(const Matrix<S>& map, const Matrix<S>& z, Index rows, Index columns) {
  return product(map, z.reshaped(z.size(), 1)).reshaped(rows, columns);
}
// Printed ("same carry-scaling" with decay): every moment and map of A times rho_B, cross terms with the scaled A.
// Corrected: R, U and M carry gamma once per token and combine as rho_B^3 A + rho_A B, F as rho_B^3 F_A + F_B plus cross
// terms with the moments of A as they are.
enum class Hla3Rule { printed, corrected, no_map, no_cross };
template <Hla3Rule rule>
struct Hla3Monoid {
  template <class S>
  using Segment = Hla3Segment<S>;
  template <class S>
  static Hla3Segment<S> identity(Dims d) {
    const auto [n, w] = d;
    const Matrix<S> square = zeros<S>(n, n), wide = zeros<S>(n, w), thin = zeros<S>(n, 1);
    return {square, square, wide, thin, wide, thin, square, zeros<S>(n * w, n * n), zeros<S>(n, n * n),
            wide,   thin,   S(1)};
  }
  template <class S>
  static Hla3Segment<S> token(const Head<S>& in, Index t) {
    const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t), DK = outer(k, k), DQ = outer(q, q),
                    DP = outer(k, v);
    const S g = rule == Hla3Rule::corrected ? in.decay : S(1);
    const Matrix<S> dm = k.transpose(), flat = g * DK.reshaped(1, DK.size());
    return {DK,
            DQ,
            DP,
            dm,
            g * product(DQ, DP),
            g * product(DQ, dm),
            g * product(DK, DQ),
            outer(DP.reshaped(1, DP.size()), flat),
            outer(k, flat),
            product(product(DK, DQ), DP),
            product(product(DK, DQ), dm),
            in.decay};
  }
  template <class S>
  static Hla3Segment<S> combine(const Hla3Segment<S>& a, const Hla3Segment<S>& b) {
    const S& g = b.rho;
    if constexpr (rule == Hla3Rule::corrected) {
      const S c = g * g * g;
      const S& f = a.rho;
      return {
          g * a.K + b.K,
          g * a.Q + b.Q,
          g * a.P + b.P,
          g * a.m + b.m,
          c * a.R + f * b.R,
          c * a.r + f * b.r,
          c * a.U + f * b.U,
          c * a.M + f * b.M,
          c * a.Mm + f * b.Mm,
          c * a.F + b.F + product(a.K, b.R) + product(b.U, a.P) + apply_map(b.M, a.Q, a.P.rows(), a.P.cols()),
          c * a.eta + b.eta + product(a.K, b.r) + product(b.U, a.m) + apply_map(b.Mm, a.Q, a.P.rows(), 1),
          f * g};
    }
    const Matrix<S> K = g * a.K, Q = g * a.Q, P = g * a.P, m = g * a.m;
    Hla3Segment<S> x{K + b.K,         Q + b.Q,       P + b.P,           m + b.m,
                     g * a.R + b.R,   g * a.r + b.r, g * a.U + b.U,     g * a.M + b.M,
                     g * a.Mm + b.Mm, g * a.F + b.F, g * a.eta + b.eta, a.rho * b.rho};
    if constexpr (rule == Hla3Rule::no_cross) return x;
    x.F += product(K, b.R) + product(b.U, P), x.eta += product(K, b.r) + product(b.U, m);
    if constexpr (rule == Hla3Rule::no_map) return x;
    x.F += apply_map(b.M, Q, P.rows(), P.cols()), x.eta += apply_map(b.Mm, Q, P.rows(), 1);
    return x;
  }
};
template <class M, class S>
Rows<S> hla3_scan(const Head<S>& in) {
  std::vector<Hla3Segment<S>> all;
  for (Index t = 0; t < in.tokens(); ++t) all.push_back(M::token(in, t));
  Arithmetic<S> exact;
  const auto before = exclusive_scan<M>(exact, all, in.dims());
  Rows<S> rows = empty_rows(in);
  for (Index t = 0; t < in.tokens(); ++t) {
    const auto x = M::combine(before[static_cast<std::size_t>(t)], all[static_cast<std::size_t>(t)]);
    rows.o.row(t) = product(in.q.row(t), x.F), rows.normaliser.row(t) = product(in.q.row(t), x.eta);
  }
  return rows;
}

// sum over i, u, j <= t of weight(t, i, u, j) (q_t.k_i)(q_u.k_i)(q_u.k_j) v_j, and with v := 1.
template <class S, class W>
Rows<S> hla3_sum(const Head<S>& in, W weight) {
  Rows<S> rows = empty_rows(in);
  const Matrix<S> scores = product(in.q, in.k.transpose());
  for (Index t = 0; t < in.tokens(); ++t)
    for (Index j = 0; j <= t; ++j) {
      S total(0);
      for (Index u = 0; u <= t; ++u)
        for (Index i = 0; i <= t; ++i)
          total += weight(t, i, u, j) * scores(t, i) * scores(u, i) * scores(u, j);
      rows.o.row(t) += total * in.v.row(j);
      rows.normaliser(t, 0) += total;
    }
  return rows;
}
// gamma^(3t-i-u-j) on i, j <= u <= t.
template <class S>
Rows<S> hla3_masked(const Head<S>& in) {
  return hla3_sum(in, [&](Index t, Index i, Index u, Index j) {
    return i <= u && j <= u ? power(in.decay, 3 * t - i - u - j) : S(0);
  });
}
inline bool largest_attained_once(Index i, Index u, Index j) {
  const Index s = std::max({i, u, j});
  return (i == s) + (u == s) + (j == s) == 1;
}
// The terms whose largest index is attained at least twice.
template <class S>
Rows<S> hla3_twice(const Head<S>& in) {
  return hla3_sum(in, [&](Index t, Index i, Index u, Index j) {
    return largest_attained_once(i, u, j) ? S(0) : power(in.decay, 3 * t - i - u - j);
  });
}
// gamma^(3t-i-u-j), minus gamma^(t+s-2-(the other two)) where the largest index s is attained once.
template <class S>
Rows<S> hla3_printed_weight(const Head<S>& in) {
  return hla3_sum(in, [&](Index t, Index i, Index u, Index j) {
    const S plain = power(in.decay, 3 * t - i - u - j);
    const Index s = std::max({i, u, j});
    return largest_attained_once(i, u, j) ? S(plain - power(in.decay, t + s - 2 - (i + u + j - s))) : plain;
  });
}

}  // namespace attest::printed
