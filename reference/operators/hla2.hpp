// Second-order HLA. masked: o_t = sum_{j<=t} sum_{i<=j} gamma^(2t-i-j) (q_t.k_i)(q_j.k_i) v_j, row t of ((W W^T) o L) V.
// unmasked: i and j both run to t. printed: weight gamma^(2t-i-j) - [j<i] gamma^(t-1-j) over all i, j <= t.
// ridge lambda adds lambda q_t^T C_t, C_t = sum_j gamma^(t-j) q_j v_j^T (S replaced by S + lambda I at read-out).
// Shapes: q, k (tokens, key_dim), v (tokens, value_dim); moments S (key_dim, key_dim), C, G (key_dim, value_dim).
// masked state: S <- gamma S + k k^T, G <- gamma^2 G + gamma k (k^T C), C <- gamma C + q v^T; o_t = q^T (S C - G).
// The direct algebra carries F = S C - G instead: F <- gamma^2 F + (S q) v^T, which subtracts nothing.
// Compositions: masked = Lin_{gamma^2}(Q, A, V) with A = Lin_gamma(Q, K, K); unmasked = Lin_gamma(A, Q, V).
// Source: arXiv 2510.27258 (May 2026), sections 3 and 4; decayed G and the F form are corrections, see `attest prove`.
#pragma once
#include "reference/operators/common/moments.hpp"

namespace attest {

struct Hla2Base {
  static constexpr bool reads_before = false;
  static Declaration declare(const char* variant, const char* formula, const char* source) {
    return {.name = "hla2",
            .variant = variant,
            .formula = formula,
            .source = source,
            .decay = true,
            .ridge = true,
            .normalize = true,
            .degree_q = 2,
            .degree_k = 2};
  }
  template <class S>
  static Matrix<S> initial(const Head<S>& head, const char* name) {
    return initial_moment(head, name, head.q.cols(), *name == 'S' ? head.q.cols() : head.v.cols());
  }
  // Lin_gamma(Q, Q, V): q_t^T C_t for the ridge, and C itself.
  template <class S>
  static Lin<S> chunk_ridge(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    return chunk_linear(arithmetic, "ridge", head.q, head.q, head.v, constant_gates(head, 1),
                        initial(head, "C"), width);
  }
};

struct Hla2Masked : Hla2Base {
  static Declaration declaration() {
    auto d = declare("masked", "o_t = sum_{j<=t} sum_{i<=j} gamma^(2t-i-j) (q_t.k_i)(q_j.k_i) v_j",
                     "arXiv 2510.27258 section 3.2, Theorem 3.1; decayed: corrected");
    d.moments = {{"S", false, ""}, {"C", true, "m"}, {"G", true, "h"}};
    d.algebras = {"subtract", "direct"};
    return d;
  }

  template <class S>
  struct Segment {
    Matrix<S> S_, C, G;
    S rho;  // gamma^length
    template <class F>
    void visit(F&& f) {
      f("S", S_), f("C", C), f("G", G);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.value_dim),
            zeros<S>(d.key_dim, d.value_dim), S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    return {outer(head.k.row(t), head.k.row(t)), outer(head.q.row(t), head.v.row(t)),
            zeros<S>(head.q.cols(), head.v.cols()), head.decay};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {b.rho * a.S_ + b.S_, b.rho * a.C + b.C, (b.rho * b.rho) * a.G + b.G + b.rho * product(b.S_, a.C),
            a.rho * b.rho};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    const Matrix<S> q = head.q.row(t);
    return product(product(q, prefix.S_), prefix.C) - product(q, prefix.G) +
           head.ridge * product(q, prefix.C);
  }

  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, 2 * n + 2);
    const Matrix<S> scores = product(head.q, head.k.transpose());  // q_t.k_i, (tokens, tokens)
    const Matrix<S> S0 = initial(head, "S"), C0 = initial(head, "C"),
                    F0 = product(S0, C0) - initial(head, "G");
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      const Matrix<S> through_S0 = product(product(head.q.row(t), S0), head.q.transpose());  // q_t^T S_0 q_j
      for (Index j = 0; j <= t; ++j) {
        S weight = gamma[2 * t - j + 1] * through_S0(0, j) +
                   head.ridge * gamma[t - j] * dot(head.q.row(t), head.q.row(j));
        for (Index i = 0; i <= j; ++i) weight += gamma[2 * t - i - j] * scores(t, i) * scores(j, i);
        result.o.row(t) += weight * head.v.row(j);
      }
      result.o.row(t) += gamma[2 * t + 2] * product(head.q.row(t), F0) +
                         (head.ridge * gamma[t + 1]) * product(head.q.row(t), C0);
    }
    result.final.moments["S"] = {moment(gamma, head.k, head.k, S0, n - 1)};
    result.final.moments["C"] = {moment(gamma, head.q, head.v, C0, n - 1)};
    result.final.moments["G"] = {final_G(head, gamma, scores, C0)};
    return result;
  }

  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1), twice = constant_gates(head, 2);
    const auto a = chunk_linear(arithmetic, "a", head.q, head.k, head.k, once, initial(head, "S"), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", a.o);
    const auto u = chunk_linear(arithmetic, "u", a_rows, head.q, head.v, once, initial(head, "C"), width);
    const auto b = chunk_linear(arithmetic, "b", head.k, head.q, head.v, once, initial(head, "C"), width,
                                Reads::exclusive);
    const Matrix<S> b_rows = arithmetic.operand("b.rows", Matrix<S>(head.decay * b.o));
    const auto g = chunk_linear(arithmetic, "g", head.q, head.k, b_rows, twice, initial(head, "G"), width);
    Matrix<S> o = u.o - g.o;
    if (!(head.ridge == S(0))) o += head.ridge * chunk_ridge(arithmetic, head, width).o;
    Solution<S> result{arithmetic.output(o), {}};
    result.final.moments = {{"S", {a.state}}, {"C", {u.state}}, {"G", {g.state}}};
    return result;
  }

 private:
  // G_T = sum_i gamma^(2(T-1-i)+1) k_i (k_i^T C_{i-1}), C_{i-1} written out, + gamma^(2T) G_0.
  template <class S>
  static Matrix<S> final_G(const Head<S>& head, const std::vector<S>& gamma, const Matrix<S>& scores,
                           const Matrix<S>& C0) {
    const Index n = head.tokens();
    Matrix<S> sum = gamma[2 * n] * initial(head, "G");
    for (Index i = 0; i < n; ++i) {
      Matrix<S> row = gamma[2 * n - 1 - i] * product(head.k.row(i), C0);
      for (Index j = 0; j < i; ++j) row += (gamma[2 * n - 2 - i - j] * scores(j, i)) * head.v.row(j);
      sum += outer(head.k.row(i), row);
    }
    return sum;
  }
};

// The masked operator carried as F = S C - G.
struct Hla2MaskedDirect : Hla2Base {
  template <class S>
  struct Segment {
    Matrix<S> S_, C, F;
    S rho;
    template <class V>
    void visit(V&& f) {
      f("S", S_), f("C", C), f("F", F);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.value_dim),
            zeros<S>(d.key_dim, d.value_dim), S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    const Matrix<S> k = head.k.row(t), v = head.v.row(t);
    return {outer(k, k), outer(head.q.row(t), v), outer(Matrix<S>(dot(k, head.q.row(t)) * k), v), head.decay};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {b.rho * a.S_ + b.S_, b.rho * a.C + b.C, (b.rho * b.rho) * a.F + b.F + b.rho * product(a.S_, b.C),
            a.rho * b.rho};
  }
  // combine(prefix, token(head, t)), the same operations on every entry without what is only added and forgotten.
  template <class S>
  static Segment<S> append(const Segment<S>& prefix, const Head<S>& head, Index t) {
    const Row<const S> k = head.k.row(t), q = head.q.row(t), v = head.v.row(t);
    const S& rho = head.decay;
    const S twice = rho * rho, score = dot(k, q);
    Segment<S> next{zeros<S>(k.cols(), k.cols()), outer(q, v), zeros<S>(k.cols(), v.cols()),
                    prefix.rho * rho};
    const Matrix<S> gained = product(prefix.S_, next.C);
    for (Index i = 0; i < k.cols(); ++i) {
      const S scored = score * k(0, i);
      for (Index j = 0; j < k.cols(); ++j) next.S_(i, j) = rho * prefix.S_(i, j) + k(0, i) * k(0, j);
      for (Index j = 0; j < v.cols(); ++j) {
        next.C(i, j) = rho * prefix.C(i, j) + next.C(i, j);
        next.F(i, j) = twice * prefix.F(i, j) + scored * v(0, j) + rho * gained(i, j);
      }
    }
    return next;
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(head.q.row(t), prefix.F) + head.ridge * product(head.q.row(t), prefix.C);
  }
  template <class S>
  static Segment<S> import_state(const Head<S>& head) {
    const Matrix<S> S0 = initial(head, "S"), C0 = initial(head, "C");
    return {S0, C0, product(S0, C0) - initial(head, "G"), S(1)};
  }
  template <class S>
  static State<S> export_state(const Segment<S>& s, const Head<S>&) {
    return {{{"S", {s.S_}}, {"C", {s.C}}, {"G", {product(s.S_, s.C) - s.F}}}, 0};
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1), twice = constant_gates(head, 2);
    const Segment<S> start = import_state(head);
    const auto a =
        chunk_linear(arithmetic, "a", head.q, head.k, head.k, once, Matrix<S>(start.S_.transpose()), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", a.o);
    const auto f = chunk_linear(arithmetic, "f", head.q, a_rows, head.v, twice, start.F, width);
    const bool ridge = !(head.ridge == S(0));
    Matrix<S> o = f.o;
    if (!ridge && !arithmetic.wants_states()) return {arithmetic.output(std::move(o)), {}};
    const auto c = chunk_ridge(arithmetic, head, width);
    if (ridge) o += head.ridge * c.o;
    const Matrix<S> s = a.state.transpose();
    return {arithmetic.output(o),
            {{{"S", {s}}, {"C", {c.state}}, {"G", {product(s, c.state) - f.state}}}, 0}};
  }
};

// F <- gamma^2 F + (S q) v^T, S with the token in it: how a stream is usually written, and another association of the same sum.
struct Hla2MaskedOuter : Hla2MaskedDirect {
  template <class S>
  static Segment<S> append(const Segment<S>& prefix, const Head<S>& head, Index t) {
    const Matrix<S> k = head.k.row(t), q = head.q.row(t), v = head.v.row(t);
    const S& rho = head.decay;
    const Matrix<S> state = rho * prefix.S_ + outer(k, k);
    return {state, rho * prefix.C + outer(q, v), (rho * rho) * prefix.F + outer(product(q, state), v),
            prefix.rho * rho};
  }
};

struct Hla2Unmasked : Hla2Base {
  static Declaration declaration() {
    auto d = declare("unmasked", "o_t = sum_{i,j<=t} gamma^(2t-i-j) (q_t.k_i)(k_i.q_j) v_j",
                     "arXiv 2510.27258 section 3.1");
    d.moments = {{"S", false, ""}, {"C", true, "m"}};
    return d;
  }
  template <class S>
  struct Segment {
    Matrix<S> S_, C;
    S rho;
    template <class F>
    void visit(F&& f) {
      f("S", S_), f("C", C);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim), zeros<S>(d.key_dim, d.value_dim), S(1)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    return {outer(head.k.row(t), head.k.row(t)), outer(head.q.row(t), head.v.row(t)), head.decay};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {b.rho * a.S_ + b.S_, b.rho * a.C + b.C, a.rho * b.rho};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(Matrix<S>(product(head.q.row(t), prefix.S_) + head.ridge * head.q.row(t)), prefix.C);
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, n);
    const Matrix<S> S0 = initial(head, "S"), C0 = initial(head, "C");
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      const Matrix<S> row =
          read_moment(gamma, head.q.row(t), head.k, head.k, S0, t) + head.ridge * head.q.row(t);
      result.o.row(t) = read_moment(gamma, row, head.q, head.v, C0, t);
    }
    result.final.moments["S"] = {moment(gamma, head.k, head.k, S0, n - 1)};
    result.final.moments["C"] = {moment(gamma, head.q, head.v, C0, n - 1)};
    return result;
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1);
    const auto a = chunk_linear(arithmetic, "a", head.q, head.k, head.k, once, initial(head, "S"), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", Matrix<S>(a.o + head.ridge * head.q));
    const auto u = chunk_linear(arithmetic, "u", a_rows, head.q, head.v, once, initial(head, "C"), width);
    return {arithmetic.output(u.o), {{{"S", {a.state}}, {"C", {u.state}}}, 0}};
  }
};

// The decayed stream of the paper, as printed: G <- gamma G + k (k^T C) with C before its own decay. Its segment
// needs one more moment that never decays, Z = sum k k^T: G_AB = rho_B G_A + G_B + gamma^(|B|-1) Z_B C_A.
struct Hla2Printed : Hla2Base {
  static Declaration declaration() {
    auto d =
        declare("printed", "o_t = sum_{i,j<=t} (gamma^(2t-i-j) - [j<i] gamma^(t-1-j)) (q_t.k_i)(q_j.k_i) v_j",
                "arXiv 2510.27258 section 4.3, the decayed stream as printed");
    d.moments = {{"S", false, ""}, {"C", true, "m"}, {"G", true, "h"}};
    return d;
  }
  template <class S>
  struct Segment {
    Matrix<S> S_, C, G, Z;
    S rho, tail;  // gamma^length, gamma^(length-1); tail is 1 for the empty segment, whose Z is 0
    bool empty;
    template <class F>
    void visit(F&& f) {
      f("S", S_), f("C", C), f("G", G);
    }
  };
  template <class S>
  static Segment<S> identity(Dims d) {
    return {zeros<S>(d.key_dim, d.key_dim),
            zeros<S>(d.key_dim, d.value_dim),
            zeros<S>(d.key_dim, d.value_dim),
            zeros<S>(d.key_dim, d.key_dim),
            S(1),
            S(1),
            true};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    const Matrix<S> kk = outer(head.k.row(t), head.k.row(t));
    return {kk,
            outer(head.q.row(t), head.v.row(t)),
            zeros<S>(head.q.cols(), head.v.cols()),
            kk,
            head.decay,
            S(1),
            false};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {b.rho * a.S_ + b.S_, b.rho * a.C + b.C, b.rho * a.G + b.G + b.tail * product(b.Z, a.C),
            a.Z + b.Z,           a.rho * b.rho,     a.empty ? b.tail : S(a.tail * b.rho),
            a.empty && b.empty};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    const Matrix<S> q = head.q.row(t);
    return product(product(q, prefix.S_), prefix.C) - product(q, prefix.G) +
           head.ridge * product(q, prefix.C);
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index n = head.tokens();
    const auto gamma = powers(head.decay, 2 * n + 2);
    const Matrix<S> scores = product(head.q, head.k.transpose());
    const Matrix<S> S0 = initial(head, "S"), C0 = initial(head, "C"), G0 = initial(head, "G");
    Solution<S> result{zeros<S>(n, head.v.cols()), {}};
    for (Index t = 0; t < n; ++t) {
      const Matrix<S> q = head.q.row(t);
      for (Index j = 0; j <= t; ++j) {
        S weight = head.ridge * gamma[t - j] * dot(q, head.q.row(j)) +
                   gamma[2 * t + 1 - j] * dot(product(q, S0), head.q.row(j));
        for (Index i = 0; i <= t; ++i) {
          S pair = gamma[2 * t - i - j];
          if (j < i) pair -= gamma[t - 1 - j];
          weight += pair * scores(t, i) * scores(j, i);
        }
        result.o.row(t) += weight * head.v.row(j);
      }
      for (Index i = 0; i <= t; ++i)
        result.o.row(t) += ((gamma[2 * t + 1 - i] - gamma[t]) * scores(t, i)) * product(head.k.row(i), C0);
      result.o.row(t) += gamma[2 * t + 2] * product(product(q, S0), C0) - gamma[t + 1] * product(q, G0) +
                         (head.ridge * gamma[t + 1]) * product(q, C0);
    }
    result.final.moments["S"] = {moment(gamma, head.k, head.k, S0, n - 1)};
    result.final.moments["C"] = {moment(gamma, head.q, head.v, C0, n - 1)};
    Matrix<S> rows = zeros<S>(n, head.v.cols());  // k_i^T C_{i-1}
    for (Index i = 0; i < n; ++i) rows.row(i) = read_moment(gamma, head.k.row(i), head.q, head.v, C0, i - 1);
    result.final.moments["G"] = {moment(gamma, head.k, rows, G0, n - 1)};
    return result;
  }
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Gates<S> once = constant_gates(head, 1);
    const auto a = chunk_linear(arithmetic, "a", head.q, head.k, head.k, once, initial(head, "S"), width);
    const Matrix<S> a_rows = arithmetic.operand("a.rows", a.o);
    const auto u = chunk_linear(arithmetic, "u", a_rows, head.q, head.v, once, initial(head, "C"), width);
    const auto b = chunk_linear(arithmetic, "b", head.k, head.q, head.v, once, initial(head, "C"), width,
                                Reads::exclusive);
    const Matrix<S> b_rows = arithmetic.operand("b.rows", b.o);
    const auto g = chunk_linear(arithmetic, "g", head.q, head.k, b_rows, once, initial(head, "G"), width);
    Matrix<S> o = u.o - g.o;
    if (!(head.ridge == S(0))) o += head.ridge * chunk_ridge(arithmetic, head, width).o;
    return {arithmetic.output(o), {{{"S", {a.state}}, {"C", {u.state}}, {"G", {g.state}}}, 0}};
  }
};

using hla2_operators =
    Variants<Variant<Hla2Masked, Hla2MaskedDirect>, Variant<Hla2Unmasked>, Variant<Hla2Printed>>;

}  // namespace attest
