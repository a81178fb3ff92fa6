// Log-linear Mamba-2: o_t = sum_{s<=t} lambda_t^{level(t,s)} (prod_{r=s+1..t} alpha_r) (q_t.k_s) v_s.
// Domain: level scales lambda_t^l any real, l = 0 .. bit_length(tokens - 1); log-gate g <= 0.
// Source: Guo et al. 2025, arXiv 2506.04761, section 3.4.
#pragma once
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {

struct LogLinearMamba2 : LogLinearScalar<Gate::alpha> {
  static Declaration declaration() {
    return {.name = "log_linear_mamba2",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} lambda_t^level(t,s) (prod_{r=s+1..t} alpha_r) (q_t.k_s) v_s",
            .source = "arXiv 2506.04761 section 3.4",
            .gates = true,
            .level_scales = true,
            .normalize = true,
            .moments = {{"S", true, "z"}}};
  }
};
using log_linear_mamba2_operators = Variants<Variant<LogLinearMamba2>>;

}  // namespace attest
