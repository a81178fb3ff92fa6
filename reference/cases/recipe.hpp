// Recipes: named distributions of q, k, v ("gaussian", "cancellation" ...) and of gates, beta and level scales
// ("published", "extreme" ...). A recipe and a seed give the same bits on every machine (random.hpp; exp and log by
// MPFR, rounded to double). Published gates: Mamba-2 (arXiv 2405.21060: A ~ U(1, 16), dt log-uniform in
// [1e-3, 1e-1], g = -A dt), Gated DeltaNet (arXiv 2412.06464: beta a sigmoid), RetNet (arXiv 2307.08621:
// decay 1 - 2^(-5-h)), log-linear attention (arXiv 2506.04761: level scales a softplus).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensor/problem.hpp"

namespace attest {

struct RecipeInfo {
  std::string name;
  std::string description;
  bool independent = true;  // continuous and independent entries: the statistical part of the bound holds
};

const std::vector<RecipeInfo>& recipes();       // of q, k, v
const std::vector<RecipeInfo>& gate_recipes();  // of g, beta, level_scales, decay
const RecipeInfo* find_recipe(std::string_view name);
const RecipeInfo* find_gate_recipe(std::string_view name);

// Values of q, k or v, `shape` [B, T, H, D].
Tensor draw(const RecipeInfo& recipe, std::string_view field, std::vector<Index> shape, std::uint64_t seed);
// Values of g [B,T,H], beta [B,T,H], level_scales [B,T,H,L] or decay [H].
Tensor draw_gate(const RecipeInfo& recipe, std::string_view field, std::vector<Index> shape,
                 std::uint64_t seed);
// Divides every row of the last dimension by its l2 norm (a zero row stays): + * / and square root only.
void normalise_rows(Tensor& tensor);

}  // namespace attest
