// Log-linear attention: o_t = sum_{s<=t} lambda_t^{level(t,s)} (q_t.k_s) v_s, level = bit_length(t xor s).
// Domain: level scales lambda_t^l any real, l = 0 .. bit_length(tokens - 1).
// Source: Guo et al. 2025, arXiv 2506.04761, eq. 5-7.
#pragma once
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {

struct LogLinear : LogLinearScalar<Gate::none> {
  static Declaration declaration() {
    return {.name = "log_linear",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} lambda_t^level(t,s) (q_t.k_s) v_s",
            .source = "arXiv 2506.04761 eq. 5-7",
            .level_scales = true,
            .normalize = true,
            .moments = {{"S", true, "z"}}};
  }
};
using log_linear_operators = Variants<Variant<LogLinear>>;

}  // namespace attest
