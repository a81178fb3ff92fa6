// Lattice inputs of a backward kernel: small integers and cotangents for which every value and every cotangent, summed by
// absolute values, stays within the integers that each format of the contract holds. Every correct backward then gives the
// derivatives of <o, do> + <final states, their cotangents> themselves, bit for bit, in any order and chunking.
#pragma once
#include <optional>

#include "gpu_checks/battery/battery.hpp"
#include "reference/cases/random.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

struct GradientDraw {
  int attempt = 0;         // 0 to 7: ever fewer entries, until a certificate is found
  Index first_column = 0;  // of the four columns (modulo the width) that are not 0
};

// Everything but the decay, and the cotangent `do`, drawn in the place of what the problem has; the tokens before `start`
// become an initial state.
void draw_gradient_lattice(const BatteryContext& context, const GradientDraw& how, Index start,
                           Problem& problem, Random& random);
// The fields dfinal_state.X.
void draw_final_cotangents(const BatteryContext& context, const GradientDraw& how, Problem& problem,
                           Random& random);
// 1, 0, 1 ...; all 1 for a form that has no decay.
std::vector<double> decays_by_head(const BatteryContext& context, Index heads);

bool is_gradient_certified(const BatteryContext& context, const Problem& problem);
// The certified gradients by name; none where they are no integers.
std::optional<Tensors> lattice_gradients(const BatteryContext& context, const Problem& problem);

}  // namespace attest
