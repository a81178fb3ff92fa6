// DeltaNet: S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t.
// Domain: beta in [0, 1] (any real is accepted). Source: Yang et al. 2024, arXiv 2406.06484, eq. 3.
#pragma once
#include "reference/operators/common/delta_operator.hpp"

namespace attest {

struct Delta : DeltaOperator<Gate::none> {
  static Declaration declaration() {
    return {.name = "delta",
            .variant = "masked",
            .formula = "S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t",
            .source = "arXiv 2406.06484 eq. 3",
            .beta = true,
            .degree_k = -1,
            .moments = {{"S", true, ""}}};
  }
};
using delta_operators = Variants<Variant<Delta>>;

}  // namespace attest
