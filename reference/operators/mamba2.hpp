// Mamba-2 / SSD: o_t = sum_{s<=t} (prod_{r=s+1..t} alpha_r) (q_t.k_s) v_s, S_t = alpha_t S_{t-1} + k_t v_t^T.
// Domain: log-gate g_t <= 0, alpha_t = exp(g_t) in [0, 1]. Source: Dao and Gu 2024, arXiv 2405.21060, section 3.
#pragma once
#include "reference/operators/common/scalar_operator.hpp"

namespace attest {

struct Mamba2 : ScalarOperator<Gate::alpha> {
  static Declaration declaration() {
    return {.name = "mamba2",
            .variant = "masked",
            .formula = "o_t = sum_{s<=t} (prod_{r=s+1..t} alpha_r) (q_t.k_s) v_s",
            .source = "arXiv 2405.21060 section 3",
            .gates = true,
            .normalize = true,
            .moments = {{"S", true, "z"}}};
  }
};
using mamba2_operators = Variants<Variant<Mamba2>>;

}  // namespace attest
