// Log-linear Gated DeltaNet: the gated delta sum, each term weighted by lambda_t^{level(t,s)}.
// Domain: level scales lambda_t^l any real, l = 0 .. bit_length(tokens - 1); g <= 0; beta in [0, 1].
// Source: Guo et al. 2025, arXiv 2506.04761, section 3.4.
#pragma once
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {

struct LogLinearGatedDelta : LogLinearDelta<Gate::alpha> {
  static Declaration declaration() {
    return {.name = "log_linear_gated_delta",
            .variant = "masked",
            .formula =
                "o_t = sum_{s<=t} lambda_t^level(t,s) q_t^T [prod_{r=t..s+1} alpha_r (I - beta_r k_r k_r^T)] "
                "beta_s k_s v_s^T",
            .source = "arXiv 2506.04761 section 3.4",
            .gates = true,
            .beta = true,
            .level_scales = true,
            .degree_k = -1,
            .moments = {{"S", true, ""}}};
  }
};
using log_linear_gated_delta_operators = Variants<Variant<LogLinearGatedDelta>>;

}  // namespace attest
