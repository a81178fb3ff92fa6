// Second-order HLA as printed: literal transcriptions of arXiv 2510.27258 sections 3 and 4 and Figure 1C, and the
// weights that its statements are compared with. Moments S (key_dim, key_dim), C, G (key_dim, value_dim), m, h
// (key_dim, 1): numerator and normaliser are kept apart, so that no division occurs.
#pragma once
#include "proofs/claim.hpp"
#include "reference/forms/forms.hpp"

namespace attest::printed {

// A numerator (tokens, value_dim) and its normaliser (tokens, 1).
template <class S>
struct Rows {
  Matrix<S> o, normaliser;
};

template <class S>
struct Hla2State {
  Matrix<S> S_, C, m, G, h;
  S rho;
  template <class F>
  void visit(F&&) {}
};
template <class S>
Hla2State<S> hla2_zero(Dims d) {
  return {zeros<S>(d.key_dim, d.key_dim),   zeros<S>(d.key_dim, d.value_dim), zeros<S>(d.key_dim, 1),
          zeros<S>(d.key_dim, d.value_dim), zeros<S>(d.key_dim, 1),           S(1)};
}
template <class S>
void hla2_read(Rows<S>& rows, const Hla2State<S>& x, const Head<S>& in, Index t) {
  const Matrix<S> q = in.q.row(t);
  rows.o.row(t) = product(q, product(x.S_, x.C) - x.G) + in.ridge * product(q, x.C);
  rows.normaliser.row(t) = product(q, product(x.S_, x.m) - x.h) + in.ridge * product(q, x.m);
}
template <class S>
Rows<S> empty_rows(const Head<S>& in) {
  return {zeros<S>(in.tokens(), in.v.cols()), zeros<S>(in.tokens(), 1)};
}

// One printed step: S <- gamma S + k k^T, C <- gamma C + q v^T, m <- gamma m + q, G <- gamma G + k (k^T C_prev),
// h <- gamma h + k (k^T m_prev), the previous moments before their decay (section 4.3; gamma = 1: Theorem 3.1).
template <class S>
Hla2State<S> hla2_step(const Hla2State<S>& x, const Head<S>& in, Index t) {
  const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
  const S& g = in.decay;
  return {g * x.S_ + outer(k, k),
          g * x.C + outer(q, v),
          g * x.m + q.transpose(),
          g * x.G + outer(k, product(k, x.C)),
          g * x.h + outer(k, product(k, x.m)),
          g * x.rho};
}
// Corrected: G <- gamma^2 G + gamma k (k^T C_prev), h alike.
template <class S>
Hla2State<S> hla2_step_corrected(const Hla2State<S>& x, const Head<S>& in, Index t) {
  const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
  const S& g = in.decay;
  return {g * x.S_ + outer(k, k),
          g * x.C + outer(q, v),
          g * x.m + q.transpose(),
          (g * g) * x.G + g * outer(k, product(k, x.C)),
          (g * g) * x.h + g * outer(k, product(k, x.m)),
          g * x.rho};
}
template <class S, class Step>
Rows<S> hla2_stream(const Head<S>& in, Step step) {
  Rows<S> rows = empty_rows(in);
  auto x = hla2_zero<S>(in.dims());
  for (Index t = 0; t < in.tokens(); ++t) {
    x = step(x, in, t);
    hla2_read(rows, x, in, t);
  }
  return rows;
}
template <class S>
Rows<S> hla2_stream(const Head<S>& in) {
  return hla2_stream(in, hla2_step<S>);
}
template <class S>
Rows<S> hla2_stream_corrected(const Head<S>& in) {
  return hla2_stream(in, hla2_step_corrected<S>);
}

// The operators (+) as definitions with identity, token and combine. Printed, decayed (section 4.2): G_AB = rho_B G_A +
// G_B + S_B (rho_B C_A); corrected: rho_B^2 G_A + G_B + rho_B S_B C_A. Broken twins for the controls.
enum class Hla2Rule { printed, corrected, no_cross_term, cross_swapped, unmasked };
template <Hla2Rule rule>
struct Hla2Monoid {
  template <class S>
  using Segment = Hla2State<S>;
  template <class S>
  static Hla2State<S> identity(Dims d) {
    return hla2_zero<S>(d);
  }
  template <class S>
  static Hla2State<S> token(const Head<S>& in, Index t) {
    const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
    Hla2State<S> x = hla2_zero<S>(in.dims());
    x.S_ = outer(k, k), x.C = outer(q, v), x.m = q.transpose(), x.rho = in.decay;
    return x;
  }
  template <class S>
  static Hla2State<S> combine(const Hla2State<S>& a, const Hla2State<S>& b) {
    const S& r = b.rho;
    const S old = rule == Hla2Rule::corrected ? S(r * r) : r;
    Hla2State<S> x{r * a.S_ + b.S_, r * a.C + b.C,   r * a.m + b.m,
                   old * a.G + b.G, old * a.h + b.h, a.rho * b.rho};
    if constexpr (rule == Hla2Rule::cross_swapped)
      x.G += product(a.S_, r * b.C), x.h += product(a.S_, r * b.m);
    else if constexpr (rule != Hla2Rule::no_cross_term && rule != Hla2Rule::unmasked)
      x.G += product(b.S_, r * a.C), x.h += product(b.S_, r * a.m);
    return x;
  }
};
// Every exclusive prefix by the Blelloch tree, then the token: which = 0 by combine, 1 by the printed serial update
// (Algorithm 1, local inclusion), 2 by the corrected serial update.
template <class M, class S>
Rows<S> hla2_scan(const Head<S>& in, int inclusion) {
  std::vector<Hla2State<S>> all;
  for (Index t = 0; t < in.tokens(); ++t) all.push_back(M::token(in, t));
  Arithmetic<S> exact;
  const auto before = exclusive_scan<M>(exact, all, in.dims());
  Rows<S> rows = empty_rows(in);
  for (Index t = 0; t < in.tokens(); ++t) {
    const auto& prefix = before[static_cast<std::size_t>(t)];
    const auto x = inclusion == 0   ? M::combine(prefix, all[static_cast<std::size_t>(t)])
                   : inclusion == 1 ? hla2_step(prefix, in, t)
                                    : hla2_step_corrected(prefix, in, t);
    hla2_read(rows, x, in, t);
  }
  return rows;
}
template <class M, class S>
Rows<S> hla2_left_fold(const Head<S>& in) {
  return hla2_stream(
      in, [](const Hla2State<S>& x, const Head<S>& all, Index t) { return M::combine(x, M::token(all, t)); });
}

// sum over i, j <= t of weight(t, i, j) (q_t.k_i)(q_j.k_i) v_j, and with v := 1.
template <class S, class W>
Rows<S> hla2_sum(const Head<S>& in, W weight) {
  Rows<S> rows = empty_rows(in);
  const Matrix<S> scores = product(in.q, in.k.transpose());
  for (Index t = 0; t < in.tokens(); ++t)
    for (Index j = 0; j <= t; ++j) {
      S total(0);
      for (Index i = 0; i <= t; ++i) total += weight(t, i, j) * scores(t, i) * scores(j, i);
      rows.o.row(t) += total * in.v.row(j);
      rows.normaliser(t, 0) += total;
    }
  return rows;
}
// gamma^(2t-i-j) on i <= j <= t.
template <class S>
Rows<S> hla2_masked(const Head<S>& in) {
  return hla2_sum(in,
                  [&](Index t, Index i, Index j) { return i <= j ? power(in.decay, 2 * t - i - j) : S(0); });
}

// Row t of ((W W^T) o L) V with W = L o (Q K^T); v := 1 for the normaliser.
template <class S>
Matrix<S> causal_scores(const Matrix<S>& q, const Matrix<S>& k) {
  Matrix<S> w = product(q, k.transpose());
  for (Index t = 0; t < w.rows(); ++t)
    for (Index s = t + 1; s < w.cols(); ++s) w(t, s) = S(0);
  return w;
}
template <class S>
Matrix<S> lower(Matrix<S> x) {
  for (Index t = 0; t < x.rows(); ++t)
    for (Index s = t + 1; s < x.cols(); ++s) x(t, s) = S(0);
  return x;
}
template <class S>
Matrix<S> ones(Index rows) {
  Matrix<S> x(rows, 1);
  for (Index i = 0; i < rows; ++i) x(i, 0) = S(1);
  return x;
}
template <class S>
Rows<S> masked_product(const Matrix<S>& weights, const Matrix<S>& v) {
  return {product(lower(weights), v), product(lower(weights), ones<S>(v.rows()))};
}
template <class S>
Rows<S> hla2_matrix(const Head<S>& in) {
  const Matrix<S> w = causal_scores(in.q, in.k);
  return masked_product(product(w, Matrix<S>(w.transpose())), in.v);
}

// Figure 1C: q_t^T (S_A C_A - G_A) + [((W_loc W_loc^T) o L) V_loc]_t, A everything before the chunk. The corrected
// formula adds the pairs with i in the carry and j in the chunk: q_t^T S_A C_loc,t (C_loc,t of the chunk up to t).
template <class S>
Rows<S> hla2_chunk(const Head<S>& in, Index width, bool with_cross_term) {
  Rows<S> rows = empty_rows(in);
  auto carry = hla2_zero<S>(in.dims());
  for (Index first = 0; first < in.tokens(); first += width) {
    const Index size = std::min(width, in.tokens() - first);
    Head<S> local;
    local.q = in.q.middle_rows(first, size), local.k = in.k.middle_rows(first, size),
    local.v = in.v.middle_rows(first, size);
    Rows<S> inside = hla2_matrix(local);
    if (with_cross_term) {
      const Matrix<S> mixed = lower(product(product(local.q, carry.S_), Matrix<S>(local.q.transpose())));
      inside.o += product(mixed, local.v);
      inside.normaliser += product(mixed, ones<S>(size));
    }
    rows.o.set_rows(first, product(local.q, product(carry.S_, carry.C) - carry.G) + inside.o);
    rows.normaliser.set_rows(first,
                             product(local.q, product(carry.S_, carry.m) - carry.h) + inside.normaliser);
    for (Index t = first; t < first + size; ++t) carry = hla2_step(carry, in, t);
  }
  return rows;
}

template <class S>
void compare_rows(Comparisons<S>& list, const std::string& what, const Rows<S>& a, const Rows<S>& b) {
  list.push_back({what + ", numerator", a.o, b.o});
  list.push_back({what + ", normaliser", a.normaliser, b.normaliser});
}

// The fields of the HLA family: q, k, v and, decayed, one gamma.
inline std::function<Fields(const Shape&)> plain_fields(bool decayed, bool ridge = false) {
  return [decayed, ridge](const Shape& shape) {
    Fields fields = {{"q", shape.tokens, shape.key_dim},
                     {"k", shape.tokens, shape.key_dim},
                     {"v", shape.tokens, shape.value_dim}};
    if (decayed) fields.push_back({"decay", 1, 1, Domain::gate});
    if (ridge) fields.push_back({"ridge"});
    return fields;
  };
}

// A statement that two routes over the same tokens give the same rows.
template <class L, class R>
Statement rows_agree(const std::string& text, bool decayed, const std::string& what, L left, R right,
                     bool ridge = false) {
  return state(text, all_shapes(), plain_fields(decayed, ridge),
               [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
                 const Head<S> in = inputs.head(shape);
                 Comparisons<S> list;
                 compare_rows(list, what, left(in), right(in));
                 return list;
               });
}

}  // namespace attest::printed
