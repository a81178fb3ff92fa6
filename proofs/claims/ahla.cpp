// The published claims about AHLA (arXiv 2510.27258 section 6), and the corrections.
#include "proofs/printed/ahla.hpp"

#include "proofs/claims/monoid_claims.hpp"

namespace attest {
namespace {
using namespace printed;
using Printed = AhlaMonoid<AhlaRule::printed>;
using Corrected = AhlaMonoid<AhlaRule::corrected>;

const auto serial = [](const auto& in) { return ahla_stream(in); };
const auto masked = [](const auto& in) { return ahla_masked(in); };
template <AhlaRule rule>
auto scan_of() {
  return []<class S>(const Head<S>& in) { return ahla_scan<AhlaMonoid<rule>>(in); };
}
template <AhlaRule rule>
auto fold_of() {
  return []<class S>(const Head<S>& in) { return ahla_left_fold<AhlaMonoid<rule>>(in); };
}
template <class M>
struct DirtyIdentity : M {
  template <class S>
  static AhlaState<S> identity(Dims d) {
    auto x = ahla_zero<S>(d);
    x.R(0, 0) = S(1);
    return x;
  }
};
// P and m of the previous token in E and n.
const auto exclusive = [](const auto& in) {
  return ahla_stream(in, []<class S>(const AhlaState<S>& x, const Head<S>& all, Index t) {
    auto next = ahla_step(x, all, t);
    next.E = all.decay * x.E + outer(all.k.row(t), product(all.q.row(t), all.decay * x.P));
    next.n = all.decay * x.n + outer(all.k.row(t), product(all.q.row(t), all.decay * x.m));
    return next;
  });
};

void theorem_6_1(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 Theorem 6.1";
  const auto matrix = []<class S>(const Head<S>& in) {
    const Matrix<S> w = causal_scores(in.q, in.k);
    return masked_product(product(w, w), in.v);
  };
  const auto symmetric = []<class S>(const Head<S>& in) { return hla2_matrix(in); };
  list.push_back(
      {"ahla.thm6.1",
       source,
       rows_agree("undecayed stream = sum_{j<=t} sum_{i=j..t} (q_t.k_i)(q_i.k_j) v_j, both outputs", false,
                  "stream against sum", serial, masked),
       nullptr,
       nullptr,
       {{"P without the token itself", rows_agree("", false, "stream against sum", exclusive, masked)}}});
  list.push_back({"ahla.thm6.1.decay",
                  source,
                  rows_agree("decayed stream = the sum with weight gamma^(t-j), both outputs", true,
                             "stream against sum", serial, masked),
                  nullptr,
                  nullptr,
                  {{"weight gamma^(2t-i-j)",
                    rows_agree("", true, "stream against sum", serial, []<class S>(const Head<S>& in) {
                      return ahla_sum(
                          in, [&](Index t, Index i, Index j) { return power(in.decay, 2 * t - i - j); });
                    })}}});
  list.push_back({"ahla.thm6.1.matrix",
                  source,
                  rows_agree("the sum = row t of ((W W) o L) V, both outputs", false, "sum against matrix",
                             masked, matrix),
                  nullptr,
                  nullptr,
                  {{"W W^T", rows_agree("", false, "sum against matrix", masked, symmetric)}}});
}

void operator_6_2(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 operator 6.2";
  list.push_back({"ahla.op6.2.associative",
                  source,
                  associative<Printed>("undecayed (+) is associative", false),
                  nullptr,
                  nullptr,
                  {{"right part taken twice", associative<RightTwice<Printed>>("", false)}}});
  list.push_back({"ahla.op6.2.identity",
                  source,
                  has_identity<Printed>("the zero segment is the identity", false),
                  nullptr,
                  nullptr,
                  {{"R not zero", has_identity<DirtyIdentity<Printed>>("", false)}}});
  list.push_back({"ahla.op6.2.scan",
                  source,
                  rows_agree("undecayed scan = stream, both outputs", false, "scan against stream",
                             scan_of<AhlaRule::printed>(), serial),
                  nullptr,
                  nullptr,
                  {{"cross term R_B P_A dropped",
                    rows_agree("", false, "scan against stream", scan_of<AhlaRule::no_cross_term>(), serial)},
                   {"cross term R_A P_B", rows_agree("", false, "scan against stream",
                                                     scan_of<AhlaRule::cross_swapped>(), serial)}}});
  list.push_back(
      {"ahla.op6.2.decay.associative",
       source,
       associative<Printed>("decayed (+) as printed, R_AB = rho_B R_A + R_B, is associative", true),
       also(associative<Corrected>("with R_AB = R_A + R_B it is associative", true)),
       nullptr,
       {{"right part taken twice", associative<RightTwice<Corrected>>("", true)}}});
  list.push_back({"ahla.op6.2.decay.identity",
                  source,
                  has_identity<Printed>(
                      "the zero segment with rho = 1 is the identity of the printed decayed (+)", true),
                  nullptr,
                  nullptr,
                  {{"R not zero", has_identity<DirtyIdentity<Printed>>("", true)}}});
  list.push_back({"ahla.op6.2.decay.scan",
                  source,
                  rows_agree("scan of the printed decayed (+) = decayed stream", true, "scan against stream",
                             scan_of<AhlaRule::printed>(), serial),
                  also(rows_agree("with R_AB = R_A + R_B the scan = decayed stream", true,
                                  "scan against stream", scan_of<AhlaRule::corrected>(), serial)),
                  nullptr,
                  {{"cross term dropped", rows_agree("", true, "scan against stream",
                                                     scan_of<AhlaRule::no_cross_term>(), serial)}}});
  list.push_back({"ahla.op6.2.decay.fold",
                  source,
                  rows_agree("a left fold of the printed decayed (+) = decayed stream", true,
                             "fold against stream", fold_of<AhlaRule::printed>(), serial),
                  nullptr,
                  nullptr,
                  {{"cross term R_A P_B", rows_agree("", true, "fold against stream",
                                                     fold_of<AhlaRule::cross_swapped>(), serial)}}});
}

Statement figure_2c(const std::string& text, bool inclusive) {
  return state(text, all_shapes(), plain_fields(false),
               [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
                 const Head<S> in = inputs.head(shape);
                 const Rows<S> sum = ahla_masked(in);
                 Comparisons<S> list;
                 for (Index width = 1; width <= in.tokens() + 1; ++width)
                   compare_rows(list, "chunk " + std::to_string(width) + " against sum",
                                ahla_chunk(in, width, inclusive), sum);
                 return list;
               });
}
Statement figure_2c_sum(bool inclusive) {
  return state("Figure 2C as printed = the sum without the terms i = t whose j lies before the chunk of t",
               all_shapes(), plain_fields(false), [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
                 const Head<S> in = inputs.head(shape);
                 Comparisons<S> list;
                 for (Index width = 1; width <= in.tokens() + 1; ++width)
                   compare_rows(list, "chunk " + std::to_string(width) + " against sum",
                                ahla_chunk(in, width, inclusive),
                                ahla_sum(in, [&](Index t, Index i, Index j) {
                                  return S(i == t && j < t / width * width ? 0 : 1);
                                }));
                 return list;
               });
}

}  // namespace

void append_ahla_claims(std::vector<Claim>& list) {
  theorem_6_1(list);
  operator_6_2(list);
  list.push_back(
      {"ahla.fig2c",
       "arXiv 2510.27258 Figure 2C",
       figure_2c("q_t^T (E_A + R_{<t} P_A) + [((W_loc W_loc) o L) V_loc]_t = the sum, at every chunk width",
                 false),
       also(figure_2c("with R_{<=t}, the token itself included, it is", true)),
       also(figure_2c_sum(false)),
       {{"the corrected chunk against the lossy sum", figure_2c_sum(true)}}});
}

}  // namespace attest
