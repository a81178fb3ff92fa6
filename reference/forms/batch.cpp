#include "reference/forms/batch.hpp"

#include <algorithm>
#include <bit>

namespace attest {

PrimeField prime_residue(const Rational& value) {
  using Integer = std::remove_cvref_t<decltype(numerator(value))>;
  const Integer modulus(PrimeField::modulus);
  const auto residue = [&](Integer part) {
    part %= modulus;
    if (part < 0) part += modulus;
    return PrimeField::from_residue(part.template convert_to<std::uint64_t>());
  };
  return residue(numerator(value)) / residue(denominator(value));
}

bool contains_only_zero(const Interval& value) { return mpfi_is_zero(value.backend().data()) != 0; }

Index final_levels(const Problem& problem, const Declaration& declaration) {
  Index levels = 1;
  if (!declaration.level_scales) return levels;
  for (Index position : final_positions(problem))
    levels = std::max<Index>(levels, std::bit_width(static_cast<std::uint64_t>(position)) + 1);
  return levels;
}

std::map<std::string, std::vector<Index>> output_shapes(const Problem& problem,
                                                        const Declaration& declaration) {
  std::map<std::string, std::vector<Index>> shapes;
  shapes["o"] = {problem.batch, problem.tokens, problem.heads, problem.value_dim};
  if (!problem.wants_states) return shapes;
  for (const Moment& moment : declaration.moments) {
    std::vector<Index> shape{problem.sequences(), problem.heads};
    if (declaration.level_scales) shape.push_back(final_levels(problem, declaration));
    shape.push_back(problem.key_dim);
    if (carries_normaliser(problem, moment)) shapes["final_state." + moment.normaliser] = shape;
    shape.push_back(moment.value_columns ? problem.value_dim : problem.key_dim);
    shapes["final_state." + moment.name] = shape;
  }
  return shapes;
}

}  // namespace attest
