// The published claims about third-order HLA (arXiv 2510.27258 section 7), and the corrections.
#include "proofs/printed/hla3.hpp"

#include "proofs/claims/monoid_claims.hpp"
#include "proofs/rank.hpp"

namespace attest {
namespace {
using namespace printed;
using Printed = Hla3Monoid<Hla3Rule::printed>;
using Corrected = Hla3Monoid<Hla3Rule::corrected>;

const auto printed_stream = [](const auto& in) { return hla3_stream(in); };
const auto twice_stream = [](const auto& in) { return hla3_stream(in, true); };
const auto masked = [](const auto& in) { return hla3_masked(in); };
const auto masked_stream = [](const auto& in) { return hla3_masked_stream(in); };
const auto twice = [](const auto& in) { return hla3_twice(in); };
const auto recurrence = [](const auto& in) { return hla3_recurrence(in); };
const auto printed_weight = [](const auto& in) { return hla3_printed_weight(in); };
template <Hla3Rule rule>
auto scan_of() {
  return []<class S>(const Head<S>& in) { return hla3_scan<Hla3Monoid<rule>>(in); };
}
template <class M>
struct DirtyIdentity : M {
  template <class S>
  static Hla3Segment<S> identity(Dims d) {
    auto x = M::template identity<S>(d);
    x.R(0, 0) = S(1);
    return x;
  }
};
// Segments compared member by member; twelve members are more than structured bindings are written for.
template <class M, class S>
void compare(Comparisons<S>& list, const std::string& what, const Hla3Segment<S>& a,
             const Hla3Segment<S>& b) {
  auto each = [&](const char* name, const Matrix<S>& x, const Matrix<S>& y) {
    list.push_back({what + ", " + name, x, y});
  };
  each("S^K", a.K, b.K), each("S^Q", a.Q, b.Q), each("P", a.P, b.P), each("m", a.m, b.m), each("R", a.R, b.R),
      each("r", a.r, b.r);
  each("U", a.U, b.U), each("M", a.M, b.M), each("Mm", a.Mm, b.Mm), each("F", a.F, b.F),
      each("eta", a.eta, b.eta);
}
template <class M>
Statement hla3_associative(const std::string& text, bool decayed) {
  return state(
      text, all_shapes(), plain_fields(decayed), []<class S>(const Shape& shape, const Inputs<S>& inputs) {
        const Head<S> in = inputs.head(shape);
        const auto all = token_segments<M, S>(in);
        const Dims dims = in.dims();
        const Index n = in.tokens();
        Comparisons<S> list;
        std::vector<Hla3Segment<S>> heads = {M::template identity<S>(dims)}, tails;
        for (Index t = 0; t < n; ++t)
          heads.push_back(t == 0 ? all[0] : M::combine(heads.back(), all[static_cast<std::size_t>(t)]));
        for (Index b = 0; b <= n; ++b) tails.push_back(left_fold<M, S>(all, b, n, dims));
        for (Index a = 1; a < n; ++a)
          for (Index b = a + 1; b < n; ++b) {
            const auto middle = left_fold<M, S>(all, a, b, dims);
            const auto &left = heads[static_cast<std::size_t>(a)],
                       &right = tails[static_cast<std::size_t>(b)];
            compare<M>(list,
                       "(A B) C against A (B C), A = [0," + std::to_string(a) + "), C = [" +
                           std::to_string(b) + ",T)",
                       M::combine(M::combine(left, middle), right),
                       M::combine(left, M::combine(middle, right)));
          }
        if (n > 0)
          for (Index form = 0; form < 3; ++form)
            compare<M>(list, "left fold against tree " + std::to_string(form), heads.back(),
                       tree_fold<M, S>(all, 0, n, dims, form));
        return list;
      });
}
template <class M>
Statement hla3_has_identity(const std::string& text) {
  return state(text, all_shapes(), plain_fields(false),
               []<class S>(const Shape& shape, const Inputs<S>& inputs) {
                 const Head<S> in = inputs.head(shape);
                 const auto sum = left_fold<M, S>(token_segments<M, S>(in), 0, in.tokens(), in.dims());
                 const auto unit = M::template identity<S>(in.dims());
                 Comparisons<S> list;
                 compare<M>(list, "1 A against A", M::combine(unit, sum), sum);
                 compare<M>(list, "A 1 against A", M::combine(sum, unit), sum);
                 return list;
               });
}

// Entries of the corrected segment (S^K, X, P, R, U, F) against the printed one's maps.
Index corrected_entries(const Shape& s) { return 3 * s.key_dim * s.key_dim + 3 * s.key_dim * s.value_dim; }
Index map_rank(const Shape& s) { return s.value_dim * (s.key_dim * (s.key_dim + 1) * (s.key_dim + 2) / 6); }

// The maps M of single tokens span a space of this dimension, so that no smaller linear state of a segment tells them
// apart: (x)_3 applies M to an arbitrary S^Q. No tokens span more, and explicit ones do: k_ta = x^(4^a) and v_tc =
// x^(1024 c) with x = t + 2 give pairwise different powers of x.
Statement maps_needed(bool one_less) {
  std::vector<Shape> shapes;
  for (Index d = 1; d <= 4; ++d)
    for (Index dv = 1; dv <= 4; ++dv) shapes.push_back({dv * (d * (d + 1) * (d + 2) / 6) + 3, d, dv, 0});
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const Shape& a, const Shape& b) { return a.tokens < b.tokens; });
  return state(
      "the maps M[Z] = sum D^K Z D^P of (x)_3 span dv d(d+1)(d+2)/6 dimensions: O(d^3 dv) storage is needed "
      "for them",
      shapes, plain_fields(false),
      [one_less]<class S>(const Shape& shape, const Inputs<S>& inputs) {
        const Index n = shape.key_dim;
        auto dimension = [&](const Matrix<S>& keys, const Matrix<S>& values) {
          Matrix<S> rows(shape.tokens, n * n * n * shape.value_dim);
          for (Index t = 0; t < shape.tokens; ++t) {
            const Matrix<S> k = keys.row(t), kk = outer(k, k).reshaped(1, n * n),
                            kv = outer(k, values.row(t)).reshaped(1, n * shape.value_dim);
            rows.row(t) = outer(kv, kk).reshaped(1, kv.size() * kk.size());
          }
          return rank(rows);
        };
        Matrix<S> k(shape.tokens, n), v(shape.tokens, shape.value_dim);
        for (Index t = 0; t < shape.tokens; ++t) {
          const S x(static_cast<int>(t + 2));
          for (Index a = 0, exponent = 1; a < n; ++a, exponent *= 4) k(t, a) = power(x, exponent);
          for (Index c = 0; c < shape.value_dim; ++c) v(t, c) = power(x, 1024 * c);
        }
        const Index stated = map_rank(shape) - (one_less ? 1 : 0);
        return Comparisons<S>{
            {"dimension above the stated one",
             as_matrix(S(static_cast<int>(std::max<Index>(dimension(inputs["k"], inputs["v"]) - stated, 0)))),
             as_matrix(S(0))},
            {"dimension of explicit tokens against the stated one",
             as_matrix(S(static_cast<int>(dimension(k, v)))), as_matrix(S(static_cast<int>(stated)))}};
      },
      [](const Shape& shape) { return 4 * shape.tokens; });  // a minor of rows of degree four
}
// min(1, entries needed by the maps - entries of the corrected segment), from some d on.
Statement smaller_state(Index from) {
  std::vector<Shape> shapes;
  for (Index d = from; d <= 64; ++d) shapes.push_back({0, d, d, 0});
  return state(
      "the masked operator's corrected segment has 3 d^2 + 3 d dv entries, fewer than the printed maps span, "
      "from d = dv = " +
          std::to_string(from) + " on",
      shapes, [](const Shape&) { return Fields{}; },
      []<class S>(const Shape& shape, const Inputs<S>&) {
        return Comparisons<S>{{"fewer (1) against yes (1)",
                               as_matrix(S(corrected_entries(shape) < map_rank(shape) ? 1 : 0)),
                               as_matrix(S(1))}};
      });
}

}  // namespace

void append_hla3_claims(std::vector<Claim>& list) {
  const std::string thm71 = "arXiv 2510.27258 Theorem 7.1", thm72 = "arXiv 2510.27258 Theorem 7.2",
                    alg3 = "arXiv 2510.27258 Algorithm 3";
  list.push_back(
      {"hla3.thm7.1",
       thm71,
       rows_agree("printed undecayed stream q^T (S^K S^Q P - G1 - G2 - G3) = masked third-order sum over i, "
                  "j <= u <= t",
                  false, "stream against sum", printed_stream, masked),
       also(rows_agree(
           "F <- F + (S^K_t q_t)(q_t^T P_t), o_t = q_t^T F is the masked operator, eta with m for P", false,
           "stream against sum", masked_stream, masked)),
       also(rows_agree(
           "the printed stream = the sum over the triples whose largest index is attained at least twice",
           false, "stream against sum", printed_stream, twice)),
       {{"S^K and P before the token",
         rows_agree(
             "", false, "stream against sum", [](const auto& in) { return hla3_masked_stream(in, true); },
             masked)}}});
  list.push_back(
      {"hla3.sec7.decay",
       "arXiv 2510.27258 section 7, decayed",
       rows_agree("F <- gamma^3 F + (S^K q)(q^T P) has the weight gamma^(3t-i-u-j) on i, j <= u <= t", true,
                  "stream against sum", masked_stream, masked),
       nullptr,
       nullptr,
       {{"the other mask", rows_agree("", true, "stream against sum", masked_stream, twice)}}});
  list.push_back({"hla3.eq7.5",
                  "arXiv 2510.27258 equation 7.5",
                  rows_agree("printed corrected-state recurrence = printed stream, without decay", false,
                             "recurrence against stream", recurrence, printed_stream),
                  nullptr,
                  nullptr,
                  {{"D^K D^Q D^P dropped",
                    rows_agree(
                        "", false, "recurrence against stream",
                        [](const auto& in) { return hla3_recurrence(in, true); }, printed_stream)}}});
  list.push_back({"hla3.thm7.2.associative",
                  thm72,
                  hla3_associative<Printed>("undecayed (x)_3 is associative", false),
                  nullptr,
                  nullptr,
                  {{"right part taken twice", hla3_associative<RightTwice<Printed>>("", false)}}});
  list.push_back({"hla3.thm7.2.identity",
                  thm72,
                  hla3_has_identity<Printed>("the zero segment is the identity of (x)_3"),
                  nullptr,
                  nullptr,
                  {{"R not zero", hla3_has_identity<DirtyIdentity<Printed>>("")}}});
  list.push_back({"hla3.thm7.2.scan",
                  thm72,
                  rows_agree("scan of (x)_3 = printed recurrence, without decay", false,
                             "scan against recurrence", scan_of<Hla3Rule::printed>(), recurrence),
                  nullptr,
                  nullptr,
                  {{"M[S^Q] dropped", rows_agree("", false, "scan against recurrence",
                                                 scan_of<Hla3Rule::no_map>(), recurrence)},
                   {"cross terms dropped", rows_agree("", false, "scan against recurrence",
                                                      scan_of<Hla3Rule::no_cross>(), recurrence)}}});
  list.push_back(
      {"hla3.alg3.decay.operator",
       alg3,
       rows_agree("the printed decayed Algorithm 3 is a masked decayed operator: the triples of the "
                  "undecayed one with gamma^(3t-i-u-j)",
                  true, "stream against sum", printed_stream, twice),
       also(rows_agree("with G <- gamma^3 G + gamma^2 (the same increments) it is", true,
                       "stream against sum", twice_stream, twice)),
       also(rows_agree("the printed one has the weight gamma^(3t-i-u-j), minus gamma^(t+s-2-(the other two)) "
                       "where the largest index s is "
                       "attained once, over all i, u, j <= t",
                       true, "stream against sum", printed_stream, printed_weight)),
       {{"the masked operator", rows_agree("", true, "stream against sum", twice_stream, masked)}}});
  list.push_back({"hla3.alg3.decay.associative",
                  alg3,
                  hla3_associative<Printed>(
                      "decayed (x)_3, every moment and map of A scaled by rho_B, is associative", true),
                  also(hla3_associative<Corrected>(
                      "with R, U, M <- rho_B^3 A + rho_A B (gamma once per token) and F_AB = "
                      "rho_B^3 F_A + F_B + S^K_A R_B + "
                      "M_B[S^Q_A] + U_B P_A it is",
                      true)),
                  nullptr,
                  {{"right part taken twice", hla3_associative<RightTwice<Printed>>("", true)}}});
  list.push_back(
      {"hla3.alg3.decay.scan",
       alg3,
       rows_agree("the decayed scan (same carry-scaling) = the printed decayed Algorithm 3", true,
                  "scan against stream", scan_of<Hla3Rule::printed>(), printed_stream),
       also(rows_agree("the corrected scan = the stream with G <- gamma^3 G + gamma^2 (the same increments)",
                       true, "scan against stream", scan_of<Hla3Rule::corrected>(), twice_stream)),
       nullptr,
       {{"maps dropped",
         rows_agree("", false, "scan against stream", scan_of<Hla3Rule::no_map>(), printed_stream)}}});
  list.push_back({"hla3.maps.needed",
                  "arXiv 2510.27258 section 7.3",
                  maps_needed(false),
                  nullptr,
                  nullptr,
                  {{"one dimension less", maps_needed(true)}}});
  list.push_back({"hla3.maps.smaller",
                  "derived; the segment itself: law.hla3.masked.scan",
                  smaller_state(19),
                  nullptr,
                  nullptr,
                  {{"at every size", smaller_state(1)}}});
}

}  // namespace attest
