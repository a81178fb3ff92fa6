// Asymmetric second-order HLA: o_t = sum_{j<=t} sum_{i=j..t} gamma^(t-j) (q_t.k_i)(q_i.k_j) v_j, row t of ((W W) o L) V.
// Stream: P <- gamma P + k v^T, E <- gamma E + k (q^T P) (P of t included), o_t = q^T E.
// Segment (R, P, E, rho), R = sum k q^T never attenuated: E_AB = rho_B E_A + E_B + rho_B R_B P_A, R_AB = R_A + R_B.
// Composition: Lin_gamma(Q, K, Lin_gamma(Q, K, V)). Shapes: q, k (tokens, key_dim), v (tokens, value_dim).
// Source: arXiv 2510.27258 section 6; R_AB is the correction of the printed rho_B R_A + R_B, see `attest prove`.
#pragma once
#include "reference/operators/common/moments.hpp"

namespace attest {

struct Ahla {
  static constexpr bool reads_before = false;
  static Declaration declaration() {
    return {.name = "ahla",
            .variant = "masked",
            .formula = "o_t = sum_{j<=t} sum_{i=j..t} gamma^(t-j) (q_t.k_i)(q_i.k_j) v_j",
            .source = "arXiv 2510.27258 section 6, Theorem 6.1; decayed segment: corrected",
            .decay = true,
            .normalize = true,
            .degree_q = 2,
            .degree_k = 2,
            .moments = {{"P", true, "m"}, {"E", true, "n"}}};
  }
  template <class S>
  struct Segment {
    Matrix<S> R, P, E;
    S rho;
    template <class F>
    void visit(F&& f) {
      f("P", P), f("E", E);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.value_dim),
            zeros<S>(d.key_dim, d.value_dim), S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    const Matrix<S> kv = outer(head.k.row(t), head.v.row(t));
    return {outer(head.k.row(t), head.q.row(t)), kv, dot(head.q.row(t), head.k.row(t)) * kv, head.decay};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {a.R + b.R, b.rho * a.P + b.P, b.rho * a.E + b.E + b.rho * product(b.R, a.P), a.rho * b.rho};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(head.q.row(t), prefix.E);
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, n + 1);
    const Matrix<S> scores = product(head.q, head.k.transpose());
    const Matrix<S> P0 = initial(head, "P"), E0 = initial(head, "E");
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      for (Index j = 0; j <= t; ++j) {
        S weight(0);
        for (Index i = j; i <= t; ++i) weight += gamma[t - j] * scores(t, i) * scores(i, j);
        result.o.row(t) += weight * head.v.row(j);
      }
      for (Index i = 0; i <= t; ++i)
        result.o.row(t) += (gamma[t + 1] * scores(t, i)) * product(head.q.row(i), P0);
      result.o.row(t) += gamma[t + 1] * product(head.q.row(t), E0);
    }
    Matrix<S> rows = zeros<S>(n, head.v.cols());  // q_i^T P_i
    for (Index i = 0; i < n; ++i) rows.row(i) = read_moment(gamma, head.q.row(i), head.k, head.v, P0, i);
    result.final.moments["P"] = {moment(gamma, head.k, head.v, P0, n - 1)};
    result.final.moments["E"] = {moment(gamma, head.k, rows, E0, n - 1)};
    return result;
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1);
    const auto r = chunk_linear(arithmetic, "r", head.q, head.k, head.v, once, initial(head, "P"), width);
    const Matrix<S> rows = arithmetic.operand("r.rows", r.o);
    const auto e = chunk_linear(arithmetic, "e", head.q, head.k, rows, once, initial(head, "E"), width);
    return {arithmetic.output(e.o), {{{"P", {r.state}}, {"E", {e.state}}}, 0}};
  }

 private:
  template <class S>
  static Matrix<S> initial(const Head<S>& head, const char* name) {
    return initial_moment(head, name, head.q.cols(), head.v.cols());
  }
};
using ahla_operators = Variants<Variant<Ahla>>;

}  // namespace attest
