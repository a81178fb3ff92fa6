// Gated DeltaNet: S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t.
// Domain: log-gate g <= 0, alpha = exp(g); beta in [0, 1]. Source: Yang et al. 2024, arXiv 2412.06464, eq. 10.
#pragma once
#include "reference/operators/common/delta_operator.hpp"

namespace attest {

struct GatedDelta : DeltaOperator<Gate::alpha> {
  static Declaration declaration() {
    return {.name = "gated_delta",
            .variant = "masked",
            .formula = "S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t",
            .source = "arXiv 2412.06464 eq. 10",
            .gates = true,
            .beta = true,
            .degree_k = -1,
            .moments = {{"S", true, ""}}};
  }
};
using gated_delta_operators = Variants<Variant<GatedDelta>>;

}  // namespace attest
