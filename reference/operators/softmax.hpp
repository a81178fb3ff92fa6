// Softmax attention: o_t = sum_{s<=t} softmax_s(q_t.k_s) v_s, causal; q carries the scale 1/sqrt(key_dim).
// direct: weights exp(score - max) over the row. stream: the online form (m, l, acc), rescaled when the maximum moves.
// Domain: any real q, k, v. Source: Vaswani et al. 2017, arXiv 1706.03762 eq. 1; online: Milakov and Gimelshein 2018,
// arXiv 1805.02867. The shift is the score that looks largest; which one is taken changes no exact value.
#pragma once
#include "reference/numeric/approximate.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/operators/common/variants.hpp"
#include "reference/tensor/arithmetic.hpp"

namespace attest {

struct Softmax {
  struct NeedsExponential {};
  static Declaration declaration() {
    return {.name = "softmax",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} softmax_s(q_t.k_s) v_s",
            .source = "arXiv 1706.03762 eq. 1",
            .unit_scale = false,
            .degree_q = -1,
            .degree_k = -1,
            .exact = false,
            .forms = {Form::direct, Form::stream}};
  }
  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    using std::exp;
    Solution<S> result{zeros<S>(head.tokens(), head.v.cols()), {}};
    for (Index t = 0; t < head.tokens(); ++t) {
      const Matrix<S> scores = product(head.q.row(t), head.k.middle_rows(0, t + 1).transpose());
      Index largest = 0;
      for (Index s = 1; s <= t; ++s)
        if (approximate(scores(0, s)) > approximate(scores(0, largest))) largest = s;
      S total(0);
      for (Index s = 0; s <= t; ++s) {
        const S weight = exp(S(scores(0, s) - scores(0, largest)));
        total += weight;
        result.o.row(t) += weight * head.v.row(s);
      }
      for (Index c = 0; c < head.v.cols(); ++c) result.o(t, c) /= total;
    }
    return result;
  }
  template <class S>
  static Solution<S> stream(Arithmetic<S>& arithmetic, const Head<S>& head) {
    using std::exp;
    Solution<S> result{zeros<S>(head.tokens(), head.v.cols()), {}};
    for (Index t = 0; t < head.tokens(); ++t) {
      S total(0), shift(0);
      Matrix<S> sum = zeros<S>(1, head.v.cols());
      for (Index s = 0; s <= t; ++s) {
        const S score = dot(head.q.row(t), head.k.row(s));
        if (s == 0 || approximate(score) > approximate(shift)) {
          if (s > 0) {
            const S fade = exp(S(shift - score));
            total *= fade;
            sum *= fade;
          }
          shift = score;
        }
        const S weight = exp(S(score - shift));
        total += weight;
        sum = arithmetic.carry("sum", Matrix<S>(sum + weight * head.v.row(s)));
      }
      for (Index c = 0; c < sum.cols(); ++c) result.o(t, c) = sum(0, c) / total;
    }
    result.o = arithmetic.output(result.o);
    return result;
  }
};
using softmax_operators = Variants<Variant<Softmax>>;

}  // namespace attest
