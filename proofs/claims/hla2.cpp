// The published claims about second-order HLA (arXiv 2510.27258 sections 3 to 5), and the corrections.
#include "proofs/printed/hla2.hpp"

#include "proofs/claims/monoid_claims.hpp"

namespace attest {
namespace {
using namespace printed;

const auto printed_stream = [](const auto& in) { return hla2_stream(in); };
const auto corrected_stream = [](const auto& in) { return hla2_stream_corrected(in); };
const auto masked = [](const auto& in) { return hla2_masked(in); };

// weight(n, t, i, j, gamma-powers) as a difference of two powers, over all i, j <= t.
template <class W>
auto weighted(W weight) {
  return [weight]<class S>(const Head<S>& in) {
    return hla2_sum(in, [&](Index t, Index i, Index j) { return weight(in.decay, t, i, j); });
  };
}
const auto printed_weight = weighted([]<class S>(const S& g, Index t, Index i, Index j) {
  return j < i ? S(power(g, 2 * t - i - j) - power(g, t - 1 - j)) : S(power(g, 2 * t - i - j));
});
const auto fold_weight = weighted([]<class S>(const S& g, Index t, Index i, Index j) {
  return j < i ? S(power(g, 2 * t - i - j) - power(g, t - j)) : S(power(g, 2 * t - i - j));
});
const auto second_weight = weighted(
    []<class S>(const S& g, Index t, Index i, Index j) { return i <= j ? power(g, t + j - 2 * i) : S(0); });
const auto all_pairs =
    weighted([]<class S>(const S& g, Index t, Index i, Index j) { return power(g, 2 * t - i - j); });

template <Hla2Rule rule>
auto scan_of(int inclusion) {
  return [inclusion]<class S>(const Head<S>& in) { return hla2_scan<Hla2Monoid<rule>>(in, inclusion); };
}
template <Hla2Rule rule>
auto fold_of() {
  return []<class S>(const Head<S>& in) { return hla2_left_fold<Hla2Monoid<rule>>(in); };
}

template <class M>
struct TokenAsIdentity : M {
  template <class S>
  static Hla2State<S> identity(Dims d) {
    auto x = hla2_zero<S>(d);
    x.S_(0, 0) = S(1);
    return x;
  }
};

// q_t^T (S_t C_t), S and C decayed: the unmasked operator as a stream.
const auto unmasked_stream = []<class S>(const Head<S>& in) {
  Rows<S> rows = empty_rows(in);
  auto x = hla2_zero<S>(in.dims());
  for (Index t = 0; t < in.tokens(); ++t) {
    x = hla2_step(x, in, t);
    x.G *= S(0), x.h *= S(0);
    hla2_read(rows, x, in, t);
  }
  return rows;
};

void theorem_3_1(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 Theorem 3.1";
  const auto no_cross = [](const auto& in) {
    return hla2_stream(in, []<class S>(const Hla2State<S>& x, const Head<S>& all, Index t) {
      auto next = hla2_step(x, all, t);
      next.G = x.G, next.h = x.h;
      return next;
    });
  };
  const auto inclusive = [](const auto& in) {
    return hla2_stream(in, []<class S>(const Hla2State<S>& x, const Head<S>& all, Index t) {
      auto next = hla2_step(x, all, t);
      const Matrix<S> k = all.k.row(t);
      next.G = x.G + outer(k, product(k, next.C));
      next.h = x.h + outer(k, product(k, next.m));
      return next;
    });
  };
  list.push_back(
      {"hla.thm3.1",
       source,
       rows_agree(
           "undecayed masked stream = sum_{j<=t} sum_{i<=j} (q_t.k_i)(q_j.k_i) v_j, numerator and normaliser",
           false, "stream against sum", printed_stream, masked),
       nullptr,
       nullptr,
       {{"G never updated", rows_agree("", false, "stream against sum", no_cross, masked)},
        {"C of the token itself in G", rows_agree("", false, "stream against sum", inclusive, masked)}}});
  list.push_back({"hla.thm3.1.matrix",
                  source,
                  rows_agree("the masked sum = row t of ((W W^T) o L) V, numerator and normaliser", false,
                             "sum against matrix", masked, [](const auto& in) { return hla2_matrix(in); }),
                  nullptr,
                  nullptr,
                  {{"unmasked pairs", rows_agree("", false, "sum against matrix", all_pairs,
                                                 [](const auto& in) { return hla2_matrix(in); })}}});
  list.push_back(
      {"hla.sec3.1.unmasked",
       "arXiv 2510.27258 section 3.1",
       rows_agree("unmasked stream q_t^T S_t C_t = sum over all i, j <= t, decayed by gamma^(2t-i-j) too",
                  true, "stream against sum", unmasked_stream, all_pairs),
       nullptr,
       nullptr,
       {{"masked sum", rows_agree("", true, "stream against sum", unmasked_stream, masked)}}});
}

void operators_4(std::vector<Claim>& list) {
  using Printed = Hla2Monoid<Hla2Rule::printed>;
  using Corrected = Hla2Monoid<Hla2Rule::corrected>;
  using Unmasked = Hla2Monoid<Hla2Rule::unmasked>;
  const std::string source = "arXiv 2510.27258 operator 4.1",
                    decayed_source = "arXiv 2510.27258 operator 4.2";
  list.push_back({"hla.op4.1.associative",
                  source,
                  associative<Printed>("undecayed masked (+) is associative", false),
                  nullptr,
                  nullptr,
                  {{"right part taken twice", associative<Reversed<Printed>>("", false)}}});
  list.push_back({"hla.op4.1.identity",
                  source,
                  has_identity<Printed>("the zero segment is the identity of undecayed masked (+)", false),
                  nullptr,
                  nullptr,
                  {{"S not zero", has_identity<TokenAsIdentity<Printed>>("", false)}}});
  list.push_back(
      {"hla.op4.1.scan",
       source,
       rows_agree("scan of the undecayed masked (+) = stream, numerator and normaliser", false,
                  "scan against stream", scan_of<Hla2Rule::printed>(0), printed_stream),
       nullptr,
       nullptr,
       {{"cross term S_B C_A dropped",
         rows_agree("", false, "scan against stream", scan_of<Hla2Rule::no_cross_term>(0), printed_stream)},
        {"cross term S_A C_B", rows_agree("", false, "scan against stream",
                                          scan_of<Hla2Rule::cross_swapped>(0), printed_stream)}}});
  list.push_back({"hla.op4.2.unmasked.associative",
                  decayed_source,
                  associative<Unmasked>("decayed unmasked (+) is associative", true),
                  nullptr,
                  nullptr,
                  {{"right part taken twice", associative<Reversed<Unmasked>>("", true)}}});
  list.push_back({"hla.op4.2.unmasked.scan",
                  decayed_source,
                  rows_agree("scan of the decayed unmasked (+) = stream", true, "scan against stream",
                             scan_of<Hla2Rule::unmasked>(0), unmasked_stream),
                  nullptr,
                  nullptr,
                  {{"masked stream", rows_agree("", true, "scan against stream",
                                                scan_of<Hla2Rule::unmasked>(0), corrected_stream)}}});
  list.push_back(
      {"hla.op4.2.masked.associative",
       decayed_source,
       associative<Printed>(
           "decayed masked (+) as printed, G_AB = rho_B G_A + G_B + S_B (rho_B C_A), is associative", true),
       also(associative<Corrected>(
           "with G_AB = rho_B^2 G_A + G_B + rho_B S_B C_A (h alike) it is associative", true)),
       nullptr,
       {{"right part taken twice", associative<Reversed<Corrected>>("", true)}}});
  list.push_back(
      {"hla.op4.2.masked.identity",
       decayed_source,
       has_identity<Printed>(
           "the zero segment with rho = 1 is the identity of the printed decayed masked (+)", true),
       nullptr,
       nullptr,
       {{"S not zero", has_identity<TokenAsIdentity<Printed>>("", true)}}});
  list.push_back(
      {"hla.op4.2.masked.fold",
       decayed_source,
       rows_agree("a left fold of the printed decayed masked (+) = the printed decayed stream", true,
                  "fold against stream", fold_of<Hla2Rule::printed>(), printed_stream),
       also(rows_agree(
           "a left fold of the corrected (+) = the corrected stream G <- gamma^2 G + gamma k (k^T C)", true,
           "fold against stream", fold_of<Hla2Rule::corrected>(), corrected_stream)),
       also(rows_agree("the left fold of the printed (+) has the weight gamma^(2t-i-j) - [j<i] gamma^(t-j) "
                       "over all i, j <= t",
                       true, "fold against sum", fold_of<Hla2Rule::printed>(), fold_weight)),
       {{"cross term dropped", rows_agree("", true, "fold against stream", fold_of<Hla2Rule::no_cross_term>(),
                                          corrected_stream)}}});
}

void theorem_4_1(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 Theorem 4.1";
  list.push_back({"hla.thm4.1.undecayed",
                  source,
                  rows_agree("scan = serial stream without decay", false, "scan against stream",
                             scan_of<Hla2Rule::printed>(0), printed_stream),
                  nullptr,
                  nullptr,
                  {{"cross term dropped", rows_agree("", false, "scan against stream",
                                                     scan_of<Hla2Rule::no_cross_term>(0), printed_stream)}}});
  list.push_back(
      {"hla.thm4.1.decay",
       source,
       rows_agree("scan of the printed decayed masked (+) = the printed decayed stream", true,
                  "scan against stream", scan_of<Hla2Rule::printed>(0), printed_stream),
       also(rows_agree("scan of the corrected (+) = the corrected stream", true, "scan against stream",
                       scan_of<Hla2Rule::corrected>(0), corrected_stream)),
       nullptr,
       {{"gamma where gamma^2 belongs",
         rows_agree("", true, "scan against stream", scan_of<Hla2Rule::printed>(0), corrected_stream)}}});
  list.push_back(
      {"hla.sec4.3",
       "arXiv 2510.27258 section 4.3",
       rows_agree(
           "the printed decayed stream is the decayed masked operator, weight gamma^(2t-i-j) on i <= j <= t",
           true, "stream against sum", printed_stream, masked),
       also(rows_agree("with G <- gamma^2 G + gamma k (k^T C_prev), h alike, it is", true,
                       "stream against sum", corrected_stream, masked)),
       also(rows_agree(
           "the printed stream has the weight gamma^(2t-i-j) - [j<i] gamma^(t-1-j) over all i, j <= t", true,
           "stream against sum", printed_stream, printed_weight)),
       {{"fold weight", rows_agree("", true, "stream against sum", printed_stream, fold_weight)}}});
  const auto second_stream = []<class S>(const Head<S>& in) {
    Rows<S> rows = empty_rows(in);
    const auto [d, dv] = in.dims();
    Matrix<S> s = zeros<S>(d, d), f = zeros<S>(d, dv), n = zeros<S>(d, 1);
    for (Index t = 0; t < in.tokens(); ++t) {
      const Matrix<S> q = in.q.row(t), k = in.k.row(t), v = in.v.row(t);
      s = (in.decay * in.decay) * s + outer(k, k);
      const Matrix<S> a = product(q, s);
      f = in.decay * f + outer(a, v), n = in.decay * n + a.transpose();
      rows.o.row(t) = product(q, f), rows.normaliser.row(t) = product(q, n);
    }
    return rows;
  };
  list.push_back({"hla.sec4.3.second",
                  "arXiv 2510.27258 section 4.3, read with gamma^(i-j) on W_ij as in section 6",
                  rows_agree("the printed decayed stream has the weight gamma^(t+j-2i) on i <= j <= t", true,
                             "stream against sum", printed_stream, second_weight),
                  also(rows_agree("S <- gamma^2 S + k k^T, F <- gamma F + (S q) v^T, o = q^T F has it", true,
                                  "stream against sum", second_stream, second_weight)),
                  nullptr,
                  {{"the other weight", rows_agree("", true, "stream against sum", second_stream, masked)}}});
}

void algorithm_1(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 Algorithm 1";
  const std::string text =
      "exclusive scan prefixes, then the local update of the token, ridge and normaliser";
  list.push_back(
      {"hla.alg1.undecayed",
       source,
       rows_agree(text + " = stream, without decay", false, "Algorithm 1 against stream",
                  scan_of<Hla2Rule::printed>(1), printed_stream, true),
       nullptr,
       nullptr,
       {{"cross term dropped", rows_agree("", false, "Algorithm 1 against stream",
                                          scan_of<Hla2Rule::no_cross_term>(1), printed_stream, true)}}});
  list.push_back({"hla.alg1.decay",
                  source,
                  rows_agree(text + " = printed stream, with decay", true, "Algorithm 1 against stream",
                             scan_of<Hla2Rule::printed>(1), printed_stream, true),
                  also(rows_agree("with the corrected (+) and the corrected update = the corrected stream",
                                  true, "Algorithm 1 against stream", scan_of<Hla2Rule::corrected>(2),
                                  corrected_stream, true)),
                  nullptr,
                  {{"printed update after the corrected scan",
                    rows_agree("", true, "Algorithm 1 against stream", scan_of<Hla2Rule::corrected>(1),
                               corrected_stream, true)}}});
  const auto ridge_sum = []<class S>(const Head<S>& in) {
    Rows<S> rows = hla2_masked(in);
    for (Index t = 0; t < in.tokens(); ++t)
      for (Index j = 0; j <= t; ++j) {
        const S weight = in.ridge * power(in.decay, t - j) * dot(in.q.row(t), in.q.row(j));
        rows.o.row(t) += weight * in.v.row(j);
        rows.normaliser(t, 0) += weight;
      }
    return rows;
  };
  list.push_back(
      {"hla.ridge",
       source,
       rows_agree("S + lambda I at read-out adds lambda q_t^T C_t, to the normaliser lambda q_t^T m_t", false,
                  "stream against sum", printed_stream, ridge_sum, true),
       nullptr,
       nullptr,
       {{"no ridge", rows_agree("", false, "stream against sum", printed_stream, masked, true)}}});
}

// Every chunk width up to one that exceeds the sequence.
Statement figure_1c(const std::string& text, bool with_cross_term) {
  return state(text, all_shapes(), plain_fields(false),
               [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
                 const Head<S> in = inputs.head(shape);
                 const Rows<S> sum = hla2_masked(in);
                 Comparisons<S> list;
                 for (Index width = 1; width <= in.tokens() + 1; ++width)
                   compare_rows(list, "chunk " + std::to_string(width) + " against sum",
                                hla2_chunk(in, width, with_cross_term), sum);
                 return list;
               });
}
void figures(std::vector<Claim>& list) {
  const auto lost = [](bool printed_only) {
    return state(
        "Figure 1C as printed = the masked sum without the pairs whose i lies before the chunk of j and t, j "
        "inside it",
        all_shapes(), plain_fields(false), [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
          const Head<S> in = inputs.head(shape);
          Comparisons<S> list;
          for (Index width = 1; width <= in.tokens() + 1; ++width)
            compare_rows(list, "chunk " + std::to_string(width) + " against sum",
                         hla2_chunk(in, width, !printed_only), hla2_sum(in, [&](Index t, Index i, Index j) {
                           const Index start = t / width * width;
                           return S(i <= j && !(i < start && j >= start) ? 1 : 0);
                         }));
          return list;
        });
  };
  list.push_back(
      {"hla.fig1c",
       "arXiv 2510.27258 Figure 1C",
       figure_1c(
           "q_t^T (S_A C_A - G_A) + [((W_loc W_loc^T) o L) V_loc]_t = the masked sum, at every chunk width",
           false),
       also(figure_1c("with + q_t^T S_A C_loc,t (local C up to t), normaliser + q_t^T S_A m_loc,t, it is",
                      true)),
       also(lost(true)),
       {{"the corrected chunk against the lossy sum", lost(false)}}});

  const auto identity_metric = []<class S>(const Head<S>& in) {  // q_t^T I C_t
    Rows<S> rows = empty_rows(in);
    auto x = hla2_zero<S>(in.dims());
    for (Index t = 0; t < in.tokens(); ++t) {
      x = hla2_step(x, in, t);
      rows.o.row(t) = product(in.q.row(t), x.C), rows.normaliser.row(t) = product(in.q.row(t), x.m);
    }
    return rows;
  };
  const auto linear = [](bool keys) {
    return [keys]<class S>(const Head<S>& in) {
      Rows<S> rows = empty_rows(in);
      for (Index t = 0; t < in.tokens(); ++t)
        for (Index j = 0; j <= t; ++j) {
          const S weight = dot(in.q.row(t), keys ? in.k.row(j) : in.q.row(j));
          rows.o.row(t) += weight * in.v.row(j), rows.normaliser(t, 0) += weight;
        }
      return rows;
    };
  };
  const auto tied = [](auto route) {
    return [route]<class S>(Head<S> in) {
      in.q = in.k;
      return route(in);
    };
  };
  list.push_back(
      {"hla.eq3.2.metric",
       "arXiv 2510.27258 equation 3.2",
       rows_agree("S := I gives linear attention with the queries as keys, sum_j (q_t.q_j) v_j", false,
                  "S = I against sum", identity_metric, linear(false)),
       nullptr,
       nullptr,
       {{"keys as keys", rows_agree("", false, "S = I against sum", identity_metric, linear(true))}}});
  list.push_back(
      {"hla.eq3.2.tied",
       "arXiv 2510.27258 equation 3.2",
       rows_agree(
           "S := I and q = k gives linear attention with the identity feature map, sum_j (q_t.k_j) v_j",
           false, "S = I against sum", tied(identity_metric), tied(linear(true))),
       nullptr,
       nullptr,
       {{"q free", rows_agree("", false, "S = I against sum", identity_metric, tied(linear(true)))}}});
}

// The stream with S kept as its upper triangle; `broken` reads the lower half as zero.
template <class S>
Rows<S> packed_stream(const Head<S>& in, bool broken) {
  Rows<S> rows = empty_rows(in);
  const Index d = in.q.cols();
  std::vector<S> packed(static_cast<std::size_t>(d * (d + 1) / 2), S(0));
  auto at = [d](Index a, Index b) {
    return static_cast<std::size_t>(a * d - a * (a - 1) / 2 + b - a);
  };  // a <= b
  auto x = hla2_zero<S>(in.dims());
  for (Index t = 0; t < in.tokens(); ++t) {
    for (Index a = 0; a < d; ++a)
      for (Index b = a; b < d; ++b) packed[at(a, b)] = in.decay * packed[at(a, b)] + in.k(t, a) * in.k(t, b);
    x = hla2_step(x, in, t);
    auto unpacked = x;
    for (Index a = 0; a < d; ++a)
      for (Index b = 0; b < d; ++b)
        unpacked.S_(a, b) = a <= b ? packed[at(a, b)] : broken ? S(0) : packed[at(b, a)];
    hla2_read(rows, unpacked, in, t);
  }
  return rows;
}

// Two query heads over one k, v: S kept once, C, m, G, h per head.
Statement multi_query(bool shared_c) {
  auto fields = [](const Shape& shape) {
    Fields all = plain_fields(false)(shape);
    all.push_back({"q2", shape.tokens, shape.key_dim});
    return all;
  };
  return state(
      "multi-query heads that share k and v may keep one S: every head's output is the one it has alone",
      all_shapes(), fields, [shared_c]<class S>(const Shape& shape, const Inputs<S>& inputs) {
        const Head<S> first = inputs.head(shape);
        Head<S> second = first;
        second.q = inputs["q2"];
        Rows<S> rows = empty_rows(first), rows2 = empty_rows(second);
        auto x = hla2_zero<S>(first.dims()), y = x;
        Matrix<S> shared = x.S_;
        for (Index t = 0; t < first.tokens(); ++t) {
          shared += outer(first.k.row(t), first.k.row(t));
          x = hla2_step(x, first, t), y = hla2_step(y, second, t);
          auto read_x = x, read_y = y;
          read_x.S_ = read_y.S_ = shared;
          if (shared_c) read_y.C = x.C;
          hla2_read(rows, read_x, first, t), hla2_read(rows2, read_y, second, t);
        }
        Comparisons<S> list;
        compare_rows(list, "head 0", rows, hla2_stream(first));
        compare_rows(list, "head 1", rows2, hla2_stream(second));
        return list;
      });
}

// Entries of a state after packing: S upper triangle, C and G (key_dim, value_dim), m and h (key_dim).
Statement state_size(bool full_s) {
  return state(
      "a masked state holds d(d+1)/2 + 2 d dv + 2 d numbers, S packed", all_shapes(0),
      [](const Shape&) { return Fields{}; },
      [full_s]<class S>(const Shape& shape, const Inputs<S>&) {
        const auto x = hla2_zero<S>({shape.key_dim, shape.value_dim});
        const Index d = shape.key_dim, dv = shape.value_dim;
        Index kept = x.C.size() + x.m.size() + x.G.size() + x.h.size();
        for (Index a = 0; a < d; ++a)
          for (Index b = full_s ? 0 : a; b < d; ++b) ++kept;
        return Comparisons<S>{{"numbers kept against formula", as_matrix(S(static_cast<int>(kept))),
                               as_matrix(S(static_cast<int>(d * (d + 1) / 2 + 2 * d * dv + 2 * d)))}};
      });
}
void section_5_2(std::vector<Claim>& list) {
  const std::string source = "arXiv 2510.27258 section 5.2";
  const auto packed = [](bool broken) {
    return [broken]<class S>(const Head<S>& in) { return packed_stream(in, broken); };
  };
  list.push_back({"hla.sec5.2.packed",
                  source,
                  rows_agree("S kept as its upper triangle changes no value, with decay or without", true,
                             "packed against full", packed(false), printed_stream),
                  nullptr,
                  nullptr,
                  {{"lower half read as zero",
                    rows_agree("", true, "packed against full", packed(true), printed_stream)}}});
  list.push_back({"hla.sec5.2.multi_query",
                  source,
                  multi_query(false),
                  nullptr,
                  nullptr,
                  {{"C shared too", multi_query(true)}}});
  list.push_back({"hla.sec5.2.state_size",
                  source,
                  state_size(false),
                  nullptr,
                  nullptr,
                  {{"S kept in full", state_size(true)}}});
}

}  // namespace

void append_hla2_claims(std::vector<Claim>& list) {
  theorem_3_1(list);
  operators_4(list);
  theorem_4_1(list);
  algorithm_1(list);
  figures(list);
  section_5_2(list);
}

}  // namespace attest
