// The chunkwise WY / UT transform of the delta rules (arXiv 2406.06484 section 3, arXiv 2412.06464 section 3.3), literal.
#include "reference/operators/delta.hpp"

#include "proofs/ledger.hpp"
#include "proofs/printed/log_linear.hpp"
#include "reference/operators/gated_delta.hpp"

namespace attest {
namespace {
using namespace printed;

Fields delta_fields(const Shape& shape, bool gated) {
  Fields fields = {{"q", shape.tokens, shape.key_dim},
                   {"k", shape.tokens, shape.key_dim},
                   {"v", shape.tokens, shape.value_dim},
                   {"beta", shape.tokens, 1, Domain::gate}};
  if (gated) fields.push_back({"alpha", shape.tokens, 1, Domain::gate});
  fields.push_back({"initial.S", shape.key_dim, shape.value_dim});
  return fields;
}
template <class F>
Statement over_heads(const std::string& text, bool gated, F sides) {
  return state(
      text, all_shapes(), [gated](const Shape& shape) { return delta_fields(shape, gated); },
      [sides]<class S>(const Shape& shape, const Inputs<S>& inputs) { return sides(inputs.head(shape)); });
}

// S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t.
template <class S>
Solution<S> recurrence(const Head<S>& in) {
  Matrix<S> state = initial_moment(in, "S", in.q.cols(), in.v.cols());
  Solution<S> result{zeros<S>(in.tokens(), in.v.cols()), {}};
  for (Index t = 0; t < in.tokens(); ++t) {
    state = transition(in, t, state) + injection(in, t);
    result.o.row(t) = product(in.q.row(t), state);
  }
  result.final.moments["S"] = {state};
  return result;
}

// w_t = beta_t (k_t - sum_{s<t} (k_s.k_t) w_s) for x = k, and with x = v the u_t; `inclusive` is a broken twin.
template <class S>
Matrix<S> wy_rows(const Head<S>& in, const Matrix<S>& x, bool inclusive = false) {
  Matrix<S> rows = zeros<S>(in.tokens(), x.cols());
  for (Index t = 0; t < in.tokens(); ++t) {
    Matrix<S> row = x.row(t);
    for (Index s = 0; s < t; ++s) row = row - dot(in.k.row(inclusive ? t : s), in.k.row(t)) * rows.row(s);
    rows.row(t) = in.beta[static_cast<std::size_t>(t)] * row;
  }
  return rows;
}
// T = (I + stril(diag(beta) K K^T))^-1 diag(beta).
template <class S>
Matrix<S> ut_transform(const Head<S>& in, bool without_beta = false) {
  Matrix<S> n = identity_matrix<S>(in.tokens());
  for (Index t = 0; t < in.tokens(); ++t)
    for (Index s = 0; s < t; ++s)
      n(t, s) = (without_beta ? S(1) : in.beta[static_cast<std::size_t>(t)]) * dot(in.k.row(t), in.k.row(s));
  Arithmetic<S> exact;
  Matrix<S> inverse = exact.inverse("", n);
  for (Index t = 0; t < in.tokens(); ++t)
    for (Index s = 0; s <= t; ++s) inverse(t, s) = inverse(t, s) * in.beta[static_cast<std::size_t>(s)];
  return inverse;
}

}  // namespace

void append_delta_claims(std::vector<Claim>& list) {
  const std::string source = "arXiv 2406.06484 section 3";
  auto wy_product = [](bool broken) {
    return [broken]<class S>(const Head<S>& in) {
      Matrix<S> expected = identity_matrix<S>(in.q.cols()), state = zeros<S>(in.q.cols(), in.v.cols());
      for (Index t = 0; t < in.tokens(); ++t)
        expected = transition(in, t, expected), state = transition(in, t, state) + injection(in, t);
      const Matrix<S> kt = in.k.transpose();
      return Comparisons<S>{{"product of the transitions against I - K^T W", expected,
                             identity_matrix<S>(in.q.cols()) - product(kt, wy_rows(in, in.k, broken))},
                            {"state from zero against K^T U", state, product(kt, wy_rows(in, in.v, broken))}};
    };
  };
  list.push_back({"delta.wy.product",
                  source,
                  over_heads("prod (I - beta_t k_t k_t^T) = I - K^T W and S = K^T U, w_t = beta_t (k_t - "
                             "sum_{s<t} (k_s.k_t) w_s), u alike with v",
                             false, wy_product(false)),
                  nullptr,
                  nullptr,
                  {{"k_t.k_t for k_s.k_t", over_heads("", false, wy_product(true))}}});
  auto ut = [](bool broken) {
    return [broken]<class S>(const Head<S>& in) {
      const Matrix<S> transform = ut_transform(in, broken);
      return Comparisons<S>{{"W against T K", wy_rows(in, in.k), product(transform, in.k)},
                            {"U against T V", wy_rows(in, in.v), product(transform, in.v)}};
    };
  };
  list.push_back({"delta.wy.ut",
                  source,
                  over_heads("W = T K and U = T V with T = (I + stril(diag(beta) K K^T))^-1 diag(beta)",
                             false, ut(false)),
                  nullptr,
                  nullptr,
                  {{"beta left out of the inverse", over_heads("", false, ut(true))}}});
  auto chunked = [](auto definition, bool reset) {
    return [=]<class S>(const Head<S>& in) {
      const Solution<S> serial = recurrence(in);
      Arithmetic<S> exact;
      Comparisons<S> all;
      for (Index width = 1; width <= in.tokens() + 1; ++width) {
        Head<S> given = in;
        if (reset) given.initial.moments.clear();
        const Solution<S> chunk = decltype(definition)::chunk(exact, given, width);
        all.push_back({"chunk " + std::to_string(width) + " against stream, o", chunk.o, serial.o});
        all.push_back({"chunk " + std::to_string(width) + " against stream, final S",
                       chunk.final.moments.at("S").at(0), serial.final.moments.at("S").at(0)});
      }
      return all;
    };
  };
  list.push_back({"delta.wy.chunk",
                  source,
                  over_heads("chunkwise UT form of DeltaNet = stream, every chunk width, any initial state",
                             false, chunked(Delta(), false)),
                  nullptr,
                  nullptr,
                  {{"initial state dropped", over_heads("", false, chunked(Delta(), true))}}});
  list.push_back(
      {"delta.wy.chunk.gated",
       "arXiv 2412.06464 section 3.3",
       over_heads("chunkwise UT form of Gated DeltaNet = stream, every chunk width, any initial state", true,
                  chunked(GatedDelta(), false)),
       nullptr,
       nullptr,
       {{"gates ignored", over_heads("", true, chunked(Delta(), false))}}});
}

}  // namespace attest
