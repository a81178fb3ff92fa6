#include "gpu_checks/case_problem.hpp"

#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/numeric/format.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

namespace {

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return fp32;
    case Dtype::f16:
      return fp16;
    case Dtype::bf16:
      return bf16;
    case Dtype::f8_e4m3:
      return fp8_e4m3;
    case Dtype::f8_e5m2:
      return fp8_e5m2;
    default:
      return fp64;
  }
}

}  // namespace

Problem first_tokens(const Problem& problem, Index tokens) {
  if (tokens == problem.tokens) return problem;
  if (tokens > problem.tokens)
    throw BadInput("T=" + std::to_string(tokens) + ": expected at most the " +
                   std::to_string(problem.tokens) + " tokens of the input");
  if (!problem.cu_seqlens.empty())
    throw BadInput("T=" + std::to_string(tokens) + ": a packed input is checked as a whole");
  Problem cut = problem;
  cut.tokens = tokens;
  for (auto& [name, tensor] : cut.fields) {
    if (name == "decay" || name == "cu_seqlens" || name.starts_with("initial_state.")) continue;
    const Index inner = element_count({tensor.shape.begin() + 2, tensor.shape.end()});
    std::vector<double> kept;
    for (Index b = 0; b < problem.batch; ++b) {
      const auto from = tensor.data.begin() + b * problem.tokens * inner;
      kept.insert(kept.end(), from, from + tokens * inner);
    }
    tensor.data = std::move(kept);
    tensor.shape[1] = tokens;
  }
  return cut;
}

Problem problem_of(const Case& input, const Declaration& declaration) {
  if (input.drawn()) return draw_problem(input, declaration);
  const SafetensorsFile file(input.input);
  Problem problem = load_problem(file, declaration, input.options);
  for (const char* name : {"q", "k"}) {
    if (!input.unit_keys) break;
    Tensor& rows = problem.fields.at(name);
    normalise_rows(rows);
    const Format format = format_of(file.info(name).dtype);
    for (double& x : rows.data) x = round_to(format, x);
  }
  return first_tokens(problem, input.tokens.value_or(problem.tokens));
}

}  // namespace attest
