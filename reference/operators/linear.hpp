// Linear attention: o_t = sum_{s<=t} (q_t.k_s) v_s, S_t = S_{t-1} + k_t v_t^T (feature map: the identity).
// Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 8-12.
#pragma once
#include "reference/operators/common/scalar_operator.hpp"

namespace attest {

struct Linear : ScalarOperator<Gate::none> {
  static Declaration declaration() {
    return {.name = "linear",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} (q_t.k_s) v_s",
            .source = "arXiv 2006.16236 eq. 8-12",
            .normalize = true,
            .moments = {{"S", true, "z"}}};
  }
};
using linear_operators = Variants<Variant<Linear>>;

}  // namespace attest
