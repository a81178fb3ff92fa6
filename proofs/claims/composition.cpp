// Composition identities and matrix chunk forms, derived here and printed nowhere: every higher-order operator as
// decayed linear attentions of one another, Lin_gamma(Q, K, V)_t = sum_{s<=t} gamma^(t-s) (q_t.k_s) v_s, and chunks of
// width w carried by S, P and F (or E).
#include "proofs/ledger.hpp"
#include "proofs/printed/ahla.hpp"
#include "proofs/printed/hla3.hpp"

namespace attest {
namespace {
using namespace printed;

template <class S>
Matrix<S> lin(const Matrix<S>& q, const Matrix<S>& k, const Matrix<S>& v, const S& gamma,
              bool exclusive = false) {
  Matrix<S> o = zeros<S>(q.rows(), v.cols());
  for (Index t = 0; t < q.rows(); ++t)
    for (Index s = 0; s <= t - (exclusive ? 1 : 0); ++s)
      o.row(t) += (power(gamma, t - s) * dot(q.row(t), k.row(s))) * v.row(s);
  return o;
}
// A route with numerator and normaliser: the same formula on V and on a column of ones.
template <class F>
auto both(F formula) {
  return [formula]<class S>(const Head<S>& in) {
    return Rows<S>{formula(in, in.v), formula(in, ones<S>(in.tokens()))};
  };
}
template <class S>
Matrix<S> twice_lin(const Head<S>& in, const Matrix<S>& v, Index power_of_gamma) {
  return lin(in.q, lin(in.q, in.k, in.k, in.decay), v, power(in.decay, power_of_gamma));
}

void compositions(std::vector<Claim>& list) {
  const std::string source = "derived";
  const auto hla2 = [](Index p) {
    return both([p]<class S>(const Head<S>& in, const Matrix<S>& v) { return twice_lin(in, v, p); });
  };
  list.push_back(
      {"compose.hla2",
       source,
       rows_agree(
           "HLA2 = Lin_{gamma^2}(Q, A, V), A = Lin_gamma(Q, K, K)", true, "sum against composition",
           [](const auto& in) { return hla2_masked(in); }, hla2(2)),
       nullptr,
       nullptr,
       {{"gamma where gamma^2 belongs", rows_agree(
                                            "", true, "sum against composition",
                                            [](const auto& in) { return hla2_masked(in); }, hla2(1))}}});
  const auto ahla = [](bool transposed) {
    return both([transposed]<class S>(const Head<S>& in, const Matrix<S>& v) {
      const Matrix<S> inner = transposed ? lin(in.k, in.q, v, in.decay) : lin(in.q, in.k, v, in.decay);
      return lin(in.q, in.k, inner, in.decay);
    });
  };
  list.push_back(
      {"compose.ahla",
       source,
       rows_agree(
           "AHLA = Lin_gamma(Q, K, Lin_gamma(Q, K, V))", true, "sum against composition",
           [](const auto& in) { return ahla_masked(in); }, ahla(false)),
       nullptr,
       nullptr,
       {{"q and k swapped inside", rows_agree(
                                       "", true, "sum against composition",
                                       [](const auto& in) { return ahla_masked(in); }, ahla(true))}}});
  const auto hla3 = [](Index p) {
    return both([p]<class S>(const Head<S>& in, const Matrix<S>& v) {
      return lin(in.q, lin(in.q, in.k, in.k, in.decay), lin(in.q, in.k, v, in.decay), power(in.decay, p));
    });
  };
  list.push_back(
      {"compose.hla3",
       source,
       rows_agree(
           "HLA3 = Lin_{gamma^3}(Q, A, Lin_gamma(Q, K, V)), A = Lin_gamma(Q, K, K)", true,
           "sum against composition", [](const auto& in) { return hla3_masked(in); }, hla3(3)),
       nullptr,
       nullptr,
       {{"gamma^2 where gamma^3 belongs", rows_agree(
                                              "", true, "sum against composition",
                                              [](const auto& in) { return hla3_masked(in); }, hla3(2))}}});
  // a_t = (q.k) S^K q + (k^T S^Q k + (q.k)^2) k, b_t = (q.k) P^T q, moments before the token.
  const auto rank_two = [](bool with_square) {
    return both([with_square]<class S>(const Head<S>& in, const Matrix<S>& v) {
      const S one(1);
      const Matrix<S> x = lin(in.q, in.k, in.k, one, true), y = lin(in.k, in.q, in.q, one, true),
                      z = lin(in.q, in.k, v, one, true);
      Matrix<S> a = x, b = z;
      for (Index t = 0; t < in.tokens(); ++t) {
        const S score = dot(in.q.row(t), in.k.row(t));
        S along = dot(y.row(t), in.k.row(t));
        if (with_square) along += score * score;
        a.row(t) = score * x.row(t) + along * in.k.row(t);
        b.row(t) = score * z.row(t);
      }
      return lin(in.q, a, v, one) + lin(in.q, in.k, b, one);
    });
  };
  list.push_back(
      {"compose.hla3.printed",
       source,
       rows_agree(
           "the printed undecayed third order is a rank-two linear attention Lin(Q, A, V) + Lin(Q, K, B)",
           false, "stream against composition", [](const auto& in) { return hla3_stream(in); },
           rank_two(true)),
       nullptr,
       nullptr,
       {{"(q.k)^2 left out", rows_agree(
                                 "", false, "stream against composition",
                                 [](const auto& in) { return hla3_stream(in); }, rank_two(false))}}});
  const auto direct_stream = [](bool with_own) {
    return [with_own]<class S>(const Head<S>& in) {
      Rows<S> rows = empty_rows(in);
      auto x = hla2_zero<S>(in.dims());
      Matrix<S> f = x.C, n = x.m;
      for (Index t = 0; t < in.tokens(); ++t) {
        const Matrix<S> q = in.q.row(t), before = x.S_;
        x = hla2_step(x, in, t);
        const Matrix<S> a = product(q, with_own ? x.S_ : before);
        f = (in.decay * in.decay) * f + outer(a, in.v.row(t)), n = (in.decay * in.decay) * n + a.transpose();
        rows.o.row(t) = product(q, f), rows.normaliser.row(t) = product(q, n);
      }
      return rows;
    };
  };
  list.push_back({"compose.hla2.direct",
                  source,
                  rows_agree("F <- gamma^2 F + (S_t q_t) v_t^T, o_t = q_t^T F is the decayed masked HLA2, "
                             "without a subtraction",
                             true, "stream against sum", direct_stream(true),
                             [](const auto& in) { return hla2_masked(in); }),
                  nullptr,
                  nullptr,
                  {{"S before the token", rows_agree("", true, "stream against sum", direct_stream(false),
                                                     [](const auto& in) { return hla2_masked(in); })}}});
}

// ---- matrix chunk forms
template <class S>
Matrix<S> scaled_rows(Matrix<S> m, const std::vector<S>& factors) {
  for (Index t = 0; t < m.rows(); ++t) m.row(t) *= factors[static_cast<std::size_t>(t)];
  return m;
}
// gamma^(e (p - j)) on j <= p.
template <class S>
Matrix<S> faded(Matrix<S> m, const S& gamma, Index e) {
  for (Index p = 0; p < m.rows(); ++p)
    for (Index j = 0; j < m.cols(); ++j) m(p, j) = j <= p ? S(power(gamma, e * (p - j)) * m(p, j)) : S(0);
  return m;
}
template <class S>
struct Chunk {
  Matrix<S> q, k, v, w, w_gamma;  // W and W^gamma
  std::vector<S> g, rest;         // gamma^p and gamma^(w-p), p = 1 .. w
  S rho;
};
template <class S>
Chunk<S> chunk_of(const Head<S>& in, const Matrix<S>& v, Index first, Index size) {
  Chunk<S> c{in.q.middle_rows(first, size),
             in.k.middle_rows(first, size),
             v.middle_rows(first, size),
             {},
             {},
             {},
             {},
             power(in.decay, size)};
  c.w = causal_scores(c.q, c.k), c.w_gamma = faded(c.w, in.decay, 1);
  for (Index p = 1; p <= size; ++p)
    c.g.push_back(power(in.decay, p)), c.rest.push_back(power(in.decay, size - p));
  return c;
}
template <class S>
std::vector<S> squares(std::vector<S> x, int e) {
  for (S& entry : x) entry = power(entry, e);
  return x;
}
// What a broken chunk form leaves out: nothing, the carry's cross term, or a power of gamma.
enum class Leaves { nothing, cross, gamma };

template <class S>
Matrix<S> hla2_matrix_chunk(const Head<S>& in, const Matrix<S>& v, Index width, Leaves leaves) {
  const Index d = in.q.cols();
  Matrix<S> s = zeros<S>(d, d), f = zeros<S>(d, v.cols()), o = zeros<S>(in.tokens(), v.cols());
  for (Index first = 0; first < in.tokens(); first += width) {
    const auto c = chunk_of(in, v, first, std::min(width, in.tokens() - first));
    Matrix<S> y = product(c.w_gamma, Matrix<S>(c.w.transpose()));
    if (leaves != Leaves::cross) y += scaled_rows(product(product(c.q, s), Matrix<S>(c.q.transpose())), c.g);
    o.set_rows(first, scaled_rows(product(c.q, f), squares(c.g, leaves == Leaves::gamma ? 1 : 2)) +
                          product(faded(y, in.decay, 1), c.v));
    const Matrix<S> kept = scaled_rows(c.k, c.rest), values = scaled_rows(c.v, c.rest);
    f = (c.rho * c.rho) * f +
        product(product(Matrix<S>(kept.transpose()), Matrix<S>(c.w.transpose())), values) +
        c.rho * product(product(s, Matrix<S>(c.q.transpose())), values);
    s = c.rho * s + product(Matrix<S>(kept.transpose()), c.k);
  }
  return o;
}
template <class S>
Matrix<S> ahla_matrix_chunk(const Head<S>& in, const Matrix<S>& v, Index width, Leaves leaves) {
  const Index d = in.q.cols();
  Matrix<S> carry_p = zeros<S>(d, v.cols()), e = carry_p, o = zeros<S>(in.tokens(), v.cols());
  for (Index first = 0; first < in.tokens(); first += width) {
    const auto c = chunk_of(in, v, first, std::min(width, in.tokens() - first));
    Matrix<S> r = product(c.w_gamma, c.v);
    if (leaves != Leaves::cross) r += scaled_rows(product(c.q, carry_p), c.g);
    o.set_rows(first, scaled_rows(product(c.q, e), squares(c.g, leaves == Leaves::gamma ? 2 : 1)) +
                          product(c.w_gamma, r));
    const Matrix<S> kept = scaled_rows(c.k, c.rest).transpose();
    e = c.rho * e + product(kept, r);
    carry_p = c.rho * carry_p + product(kept, c.v);
  }
  return o;
}
template <class S>
Matrix<S> hla3_matrix_chunk(const Head<S>& in, const Matrix<S>& v, Index width, Leaves leaves) {
  const Index d = in.q.cols();
  Matrix<S> s = zeros<S>(d, d), carry_p = zeros<S>(d, v.cols()), f = carry_p,
            o = zeros<S>(in.tokens(), v.cols());
  for (Index first = 0; first < in.tokens(); first += width) {
    const Index size = std::min(width, in.tokens() - first);
    const auto c = chunk_of(in, v, first, size);
    const Matrix<S> qt = c.q.transpose();
    Matrix<S> y =
        product(c.w_gamma, Matrix<S>(c.w.transpose())) + scaled_rows(product(product(c.q, s), qt), c.g);
    Matrix<S> r = product(c.w_gamma, c.v), a = product(c.w_gamma, c.k);
    if (leaves != Leaves::cross) r += scaled_rows(product(c.q, carry_p), c.g);
    a += scaled_rows(product(c.q, Matrix<S>(s.transpose())), c.g);
    o.set_rows(first, scaled_rows(product(c.q, f), squares(c.g, leaves == Leaves::gamma ? 2 : 3)) +
                          product(faded(y, in.decay, 2), r));
    // F <- rho^3 F + sum_u gamma^(3(w-u)) a_u r_u^T, a_u = S^K_u q_u and r_u = P_u^T q_u with the carry in them.
    f = (c.rho * c.rho * c.rho) * f + product(Matrix<S>(scaled_rows(a, squares(c.rest, 3)).transpose()), r);
    const Matrix<S> kept = scaled_rows(c.k, c.rest).transpose();
    s = c.rho * s + product(kept, c.k), carry_p = c.rho * carry_p + product(kept, c.v);
  }
  return o;
}

template <class C, class N>
Statement chunk_statement(const std::string& text, C chunk, N naive, Leaves leaves) {
  return state(
      text, all_shapes(), plain_fields(true), [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
        const Head<S> in = inputs.head(shape);
        const Rows<S> sum = naive(in);
        Comparisons<S> all;
        for (Index width = 1; width <= in.tokens() + 1; ++width)
          compare_rows(
              all, "chunk " + std::to_string(width) + " against sum",
              Rows<S>{chunk(in, in.v, width, leaves), chunk(in, ones<S>(in.tokens()), width, leaves)}, sum);
        return all;
      });
}
template <class C, class N>
void add_chunk(std::vector<Claim>& list, const std::string& id, const std::string& text, C chunk, N naive) {
  list.push_back({id,
                  "derived",
                  chunk_statement(text, chunk, naive, Leaves::nothing),
                  nullptr,
                  nullptr,
                  {{"cross term with the carry dropped", chunk_statement("", chunk, naive, Leaves::cross)},
                   {"wrong power of gamma on the carry", chunk_statement("", chunk, naive, Leaves::gamma)}}});
}

}  // namespace

void append_composition_claims(std::vector<Claim>& list) {
  compositions(list);
  add_chunk(
      list, "chunk.hla2",
      "O = g^2 Q F_A + (Y o D_1) V, F <- rho^2 F_A + (g'K)^T W^T (g'V) + rho S_A Q^T g' V, and with V := 1",
      [](const auto& in, const auto& v, Index w, Leaves l) { return hla2_matrix_chunk(in, v, w, l); },
      [](const auto& in) { return hla2_masked(in); });
  add_chunk(
      list, "chunk.ahla",
      "O = g Q E_A + W^gamma r, E <- rho E_A + (g'K)^T r, r = W^gamma V + g Q P_A, and with V := 1",
      [](const auto& in, const auto& v, Index w, Leaves l) { return ahla_matrix_chunk(in, v, w, l); },
      [](const auto& in) { return ahla_masked(in); });
  add_chunk(
      list, "chunk.hla3",
      "O = g^3 Q F_A + (Y o D_2) r, F <- rho^3 F_A + (g'^3 (W^gamma K + g Q S_A))^T r, and with V := 1",
      [](const auto& in, const auto& v, Index w, Leaves l) { return hla3_matrix_chunk(in, v, w, l); },
      [](const auto& in) { return hla3_masked(in); });
}

}  // namespace attest
