// Third-order HLA. masked: o_t = sum_{u<=t} sum_{i<=u} sum_{j<=u} gamma^(3t-i-u-j) (q_t.k_i)(q_u.k_i)(q_u.k_j) v_j.
// unmasked: o_t = q_t^T S^K_t S^Q_t P_t. printed: o_t = q_t^T (S^K S^Q P - G), G <- gamma G + k k^T S^Q P +
// S^K q q^T P + S^K S^Q k v^T (all before the token, undecayed): the terms whose largest index is attained twice.
// Shapes: q, k (tokens, key_dim), v (tokens, value_dim); S^K, S^Q (key_dim, key_dim), P, F, G (key_dim, value_dim).
// masked stream: F <- gamma^3 F + (S^K q)(q^T P), o_t = q^T F. Segment, p the place in it, w its length:
//   X = sum gamma^(3w-p) q q^T, R = sum gamma^(3w-2p) q q^T P_p, U = sum gamma^(3w-2p) S^K_p q q^T (P_p, S^K_p local)
//   X_AB = rho_B^3 X_A + rho_A^2 X_B, R_AB = rho_B^3 R_A + rho_A (R_B + X_B P_A), U_AB = rho_B^3 U_A + rho_A (U_B +
//   S_A X_B), F_AB = rho_B^3 F_A + F_B + S_A R_B + U_B P_A + S_A X_B P_A. Composition: Lin_{gamma^3}(Q, A, Lin(Q,K,V)).
// Source: arXiv 2510.27258 section 7; the masked stream and segment are corrections, see `attest prove`.
#pragma once
#include "reference/operators/common/moments.hpp"

namespace attest {

struct Hla3Base {
  static constexpr bool reads_before = false;
  static Declaration declare(const char* variant, const char* formula, const char* source) {
    return {.name = "hla3",
            .variant = variant,
            .formula = formula,
            .source = source,
            .decay = true,
            .normalize = true,
            .degree_q = 3,
            .degree_k = 3};
  }
  template <class S>
  static Matrix<S> initial(const Head<S>& head, const char* name) {
    return initial_moment(head, name, head.q.cols(), *name == 'S' ? head.q.cols() : head.v.cols());
  }
  template <class S>
  static Matrix<S> square(const Matrix<S>& x, Index t) {
    return outer(x.row(t), x.row(t));
  }
};

struct Hla3Masked : Hla3Base {
  static Declaration declaration() {
    auto d = declare(
        "masked", "o_t = sum_{u<=t} sum_{i,j<=u} gamma^(3t-i-u-j) (q_t.k_i)(q_u.k_i)(q_u.k_j) v_j",
        "arXiv 2510.27258 section 7.1 (W W^T W, middle index kept <= t); stream and segment: corrected");
    d.moments = {{"SK", false, ""}, {"P", true, "m"}, {"F", true, "eta"}};
    return d;
  }
  template <class S>
  struct Segment {
    Matrix<S> SK, X, P, R, U, F;
    S rho;
    template <class V>
    void visit(V&& f) {
      f("SK", SK), f("P", P), f("F", F);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    const Matrix<S> square = zeros<S>(d.key_dim, d.key_dim), wide = zeros<S>(d.key_dim, d.value_dim);
    return {square, square, wide, wide, square, wide, S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    const Matrix<S> q = head.q.row(t), k = head.k.row(t), v = head.v.row(t);
    const S score = dot(q, k), gamma = head.decay;
    return {outer(k, k),
            (gamma * gamma) * outer(q, q),
            outer(k, v),
            (gamma * score) * outer(q, v),
            (gamma * score) * outer(k, q),
            (score * score) * outer(k, v),
            gamma};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    const S cube = b.rho * b.rho * b.rho;
    const Matrix<S> x_p = product(b.X, a.P);
    return {b.rho * a.SK + b.SK,
            cube * a.X + (a.rho * a.rho) * b.X,
            b.rho * a.P + b.P,
            cube * a.R + a.rho * (b.R + x_p),
            cube * a.U + a.rho * (b.U + product(a.SK, b.X)),
            cube * a.F + b.F + product(a.SK, b.R) + product(b.U, a.P) + product(a.SK, x_p),
            a.rho * b.rho};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(head.q.row(t), prefix.F);
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, 3 * n + 3);
    const Matrix<S> scores = product(head.q, head.k.transpose());
    const Matrix<S> S0 = initial(head, "SK"), P0 = initial(head, "P"), F0 = initial(head, "F");
    Matrix<S> rows =
        zeros<S>(n, head.v.cols());  // sum_{j<=u} gamma^(u-j) (q_u.k_j) v_j + gamma^(u+1) q_u^T P_0
    Matrix<S> transformed = zeros<S>(n, head.q.cols());  // S^K_u q_u, for the final state
    for (Index u = 0; u < n; ++u) {
      rows.row(u) = gamma[u + 1] * product(head.q.row(u), P0);
      transformed.row(u) = gamma[u + 1] * product(head.q.row(u), S0.transpose());
      for (Index j = 0; j <= u; ++j) {
        rows.row(u) += (gamma[u - j] * scores(u, j)) * head.v.row(j);
        transformed.row(u) += (gamma[u - j] * scores(u, j)) * head.k.row(j);
      }
    }
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      const Matrix<S> through_S0 = product(product(head.q.row(t), S0), head.q.transpose());
      for (Index u = 0; u <= t; ++u) {
        S weight = gamma[3 * t - 2 * u + 1] * through_S0(0, u);
        for (Index i = 0; i <= u; ++i) weight += gamma[3 * t - 2 * u - i] * scores(t, i) * scores(u, i);
        result.o.row(t) += weight * rows.row(u);
      }
      result.o.row(t) += gamma[3 * t + 3] * product(head.q.row(t), F0);
    }
    Matrix<S> final_F = gamma[3 * n] * F0;
    for (Index u = 0; u < n; ++u) final_F += gamma[3 * (n - 1 - u)] * outer(transformed.row(u), rows.row(u));
    result.final.moments = {{"SK", {moment(gamma, head.k, head.k, S0, n - 1)}},
                            {"P", {moment(gamma, head.k, head.v, P0, n - 1)}},
                            {"F", {final_F}}};
    return result;
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1);
    const auto a = chunk_linear(arithmetic, "a", head.q, head.k, head.k, once,
                                Matrix<S>(initial(head, "SK").transpose()), width);
    const auto r = chunk_linear(arithmetic, "r", head.q, head.k, head.v, once, initial(head, "P"), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", a.o), r_rows = arithmetic.operand("r.rows", r.o);
    const auto f = chunk_linear(arithmetic, "f", head.q, a_rows, r_rows, constant_gates(head, 3),
                                initial(head, "F"), width);
    return {arithmetic.output(f.o),
            {{{"SK", {Matrix<S>(a.state.transpose())}}, {"P", {r.state}}, {"F", {f.state}}}, 0}};
  }
};

struct Hla3Unmasked : Hla3Base {
  static Declaration declaration() {
    auto d = declare("unmasked", "o_t = q_t^T S^K_t S^Q_t P_t", "arXiv 2510.27258 section 7.1");
    d.moments = {{"SK", false, ""}, {"SQ", false, ""}, {"P", true, "m"}};
    return d;
  }
  template <class S>
  struct Segment {
    Matrix<S> SK, SQ, P;
    S rho;
    template <class V>
    void visit(V&& f) {
      f("SK", SK), f("SQ", SQ), f("P", P);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.value_dim),
            S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    return {square(head.k, t), square(head.q, t), outer(head.k.row(t), head.v.row(t)), head.decay};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {b.rho * a.SK + b.SK, b.rho * a.SQ + b.SQ, b.rho * a.P + b.P, a.rho * b.rho};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(product(product(head.q.row(t), prefix.SK), prefix.SQ), prefix.P);
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, n);
    const Matrix<S> K0 = initial(head, "SK"), Q0 = initial(head, "SQ"), P0 = initial(head, "P");
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      const Matrix<S> first = read_moment(gamma, head.q.row(t), head.k, head.k, K0, t);
      const Matrix<S> second = read_moment(gamma, first, head.q, head.q, Q0, t);
      result.o.row(t) = read_moment(gamma, second, head.k, head.v, P0, t);
    }
    result.final.moments = {{"SK", {moment(gamma, head.k, head.k, K0, n - 1)}},
                            {"SQ", {moment(gamma, head.q, head.q, Q0, n - 1)}},
                            {"P", {moment(gamma, head.k, head.v, P0, n - 1)}}};
    return result;
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1);
    const auto a = chunk_linear(arithmetic, "a", head.q, head.k, head.k, once, initial(head, "SK"), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", a.o);
    const auto b = chunk_linear(arithmetic, "b", a_rows, head.q, head.q, once, initial(head, "SQ"), width);
    const Matrix<S> b_rows = arithmetic.operand("b.rows", b.o);
    const auto c = chunk_linear(arithmetic, "c", b_rows, head.k, head.v, once, initial(head, "P"), width);
    return {arithmetic.output(c.o), {{{"SK", {a.state}}, {"SQ", {b.state}}, {"P", {c.state}}}, 0}};
  }
};

// The printed segment operator (x)_3, undecayed: F = S^K S^Q P - G with the additive maps R = sum D^Q D^P,
// U = sum D^K D^Q and M[Z] = sum D^K Z D^P kept as a (key_dim value_dim, key_dim^2) matrix.
struct Hla3PrintedScan : Hla3Base {
  template <class S>
  struct Segment {
    Matrix<S> SK, SQ, P, R, U, M, F;
    template <class V>
    void visit(V&& f) {
      f("SK", SK), f("SQ", SQ), f("P", P), f("F", F);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    const Matrix<S> square = zeros<S>(d.key_dim, d.key_dim), wide = zeros<S>(d.key_dim, d.value_dim);
    return {square, square, wide, wide, square, zeros<S>(d.key_dim * d.value_dim, d.key_dim * d.key_dim),
            wide};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    const Matrix<S> q = head.q.row(t), k = head.k.row(t), v = head.v.row(t), kk = outer(k, k),
                    kv = outer(k, v);
    const S score = dot(q, k);
    return {kk,
            outer(q, q),
            kv,
            score * outer(q, v),
            score * outer(k, q),
            outer(kv.reshaped(1, kv.size()), kk.reshaped(1, kk.size())),
            (score * score) * kv};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    const Matrix<S> mapped = product(b.M, a.SQ.reshaped(a.SQ.size(), 1));
    return {a.SK + b.SK,
            a.SQ + b.SQ,
            a.P + b.P,
            a.R + b.R,
            a.U + b.U,
            a.M + b.M,
            a.F + b.F + product(a.SK, b.R) + product(b.U, a.P) + mapped.reshaped(a.F.rows(), a.F.cols())};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(head.q.row(t), prefix.F);
  }
  template <class S>
  static Segment<S> import_state(const Head<S>& head) {
    Segment<S> result = identity<S>(head.dims());
    result.SK = initial(head, "SK"), result.SQ = initial(head, "SQ"), result.P = initial(head, "P");
    result.F = product(product(result.SK, result.SQ), result.P) - initial(head, "G");
    return result;
  }
  template <class S>
  static State<S> export_state(const Segment<S>& s, const Head<S>&) {
    return {{{"SK", {s.SK}}, {"SQ", {s.SQ}}, {"P", {s.P}}, {"G", {product(product(s.SK, s.SQ), s.P) - s.F}}},
            0};
  }
};

struct Hla3Printed : Hla3Base {
  using Scan = Hla3PrintedScan;
  static Declaration declaration() {
    auto d = declare("printed", "o_t = q_t^T (S^K_t S^Q_t P_t - G1_t - G2_t - G3_t)",
                     "arXiv 2510.27258 section 7.2, Algorithm 3 as printed");
    d.decayed_scan = false;
    d.moments = {{"SK", false, ""}, {"SQ", false, ""}, {"P", true, "m"}, {"G", true, "h"}};
    return d;
  }
  template <class S>
  struct Segment {
    Matrix<S> SK, SQ, P, G;  // G = G1 + G2 + G3
    template <class V>
    void visit(V&& f) {
      f("SK", SK), f("SQ", SQ), f("P", P), f("G", G);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    const Matrix<S> square = zeros<S>(d.key_dim, d.key_dim), wide = zeros<S>(d.key_dim, d.value_dim);
    return {square, square, wide, wide};
  }
  template <class S>
  static Segment<S> append(const Segment<S>& a, const Head<S>& head, Index t) {
    const Matrix<S> k = head.k.row(t), q = head.q.row(t), v = head.v.row(t), kv = outer(k, v);
    const S& gamma = head.decay;
    return {gamma * a.SK + outer(k, k), gamma * a.SQ + outer(q, q), gamma * a.P + kv,
            gamma * a.G + outer(k, product(product(k, a.SQ), a.P)) +
                product(Matrix<S>(product(a.SK, q.transpose())), product(q, a.P)) +
                product(Matrix<S>(product(a.SK, product(a.SQ, k.transpose()))), v)};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(product(product(head.q.row(t), prefix.SK), prefix.SQ), prefix.P) -
           product(head.q.row(t), prefix.G);
  }
  // Every moment as its sum; G_t = gamma^(t+1) G_0 + sum_s gamma^(t-s) (the three increments of s).
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, n);
    std::vector<Segment<S>> at;  // SK, SQ, P at -1 .. n-1
    for (Index t = -1; t < n; ++t)
      at.push_back({moment(gamma, head.k, head.k, initial(head, "SK"), t),
                    moment(gamma, head.q, head.q, initial(head, "SQ"), t),
                    moment(gamma, head.k, head.v, initial(head, "P"), t),
                    {}});
    std::vector<Matrix<S>> increments;
    for (Index s = 0; s < n; ++s)
      increments.push_back(product(product(square(head.k, s), at[s].SQ), at[s].P) +
                           product(product(at[s].SK, square(head.q, s)), at[s].P) +
                           product(product(at[s].SK, at[s].SQ), outer(head.k.row(s), head.v.row(s))));
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t <= n; ++t) {
      Matrix<S> G = gamma[t] * initial(head, "G");
      for (Index s = 0; s < t; ++s) G += gamma[t - 1 - s] * increments[s];
      at[t].G = G;
      if (t > 0) result.o.row(t - 1) = read(at[t], head, t - 1);
    }
    result.final.moments = {{"SK", {at[n].SK}}, {"SQ", {at[n].SQ}}, {"P", {at[n].P}}, {"G", {at[n].G}}};
    return result;
  }
  // Undecayed: a rank-two linear attention, O = Lin(Q, A, V) + Lin(Q, K, B), with before-the-token moments
  // a_t = (q_t.k_t) S^K q_t + (k_t^T S^Q k_t + (q_t.k_t)^2) k_t and b_t = (q_t.k_t) P^T q_t.
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> none;
    const Matrix<S> K0 = initial(head, "SK"), Q0 = initial(head, "SQ"), P0 = initial(head, "P");
    const auto x = chunk_linear(arithmetic, "x", head.q, head.k, head.k, none, Matrix<S>(K0.transpose()),
                                width, Reads::exclusive);
    const auto y = chunk_linear(arithmetic, "y", head.k, head.q, head.q, none, Q0, width, Reads::exclusive);
    const auto z = chunk_linear(arithmetic, "z", head.q, head.k, head.v, none, P0, width, Reads::exclusive);
    Matrix<S> a = x.o, b = z.o;
    for (Index t = 0; t < head.tokens(); ++t) {
      const S score = dot(head.q.row(t), head.k.row(t));
      a.row(t) = score * x.o.row(t) + (dot(y.o.row(t), head.k.row(t)) + score * score) * head.k.row(t);
      b.row(t) = score * z.o.row(t);
    }
    a = arithmetic.operand("a.rows", a), b = arithmetic.operand("b.rows", b);
    const Matrix<S> F0 = product(product(K0, Q0), P0) - initial(head, "G");
    const auto f = chunk_linear(arithmetic, "f", head.q, a, head.v, none, F0, width);
    const auto g =
        chunk_linear(arithmetic, "g", head.q, head.k, b, none, zeros<S>(F0.rows(), F0.cols()), width);
    const Matrix<S> SK = x.state.transpose(), F = f.state + g.state;
    return {arithmetic.output(Matrix<S>(f.o + g.o)),
            {{{"SK", {SK}},
              {"SQ", {y.state}},
              {"P", {z.state}},
              {"G", {product(product(SK, y.state), z.state) - F}}},
             0}};
  }
};

using hla3_operators = Variants<Variant<Hla3Masked>, Variant<Hla3Unmasked>, Variant<Hla3Printed>>;

}  // namespace attest
