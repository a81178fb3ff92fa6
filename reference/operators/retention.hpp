// Decayed linear attention (RetNet): o_t = sum_{s<=t} gamma^(t-s) (q_t.k_s) v_s, S_t = gamma S_{t-1} + k_t v_t^T.
// Domain: gamma in [0, 1], one per head. Source: Sun et al. 2023, arXiv 2307.08621, eq. 5-6.
#pragma once
#include "reference/operators/common/scalar_operator.hpp"

namespace attest {

struct Retention : ScalarOperator<Gate::decay> {
  static Declaration declaration() {
    return {.name = "retention",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} gamma^(t-s) (q_t.k_s) v_s",
            .source = "arXiv 2307.08621 eq. 5-6",
            .decay = true,
            .normalize = true,
            .moments = {{"S", true, "z"}}};
  }
};
using retention_operators = Variants<Variant<Retention>>;

}  // namespace attest
