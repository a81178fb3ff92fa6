#include "reference/forms/certified_route.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/forms/batch.hpp"

namespace attest {
namespace {

const CertifiedEngine* engine_in_use = nullptr;
Index engine_tokens = 0;

using Sum = CertifiedRows (*)(const CertifiedInput&, const CertifiedOptions&);

Sum sum_of(const Declaration& declaration) {
  const std::string& name = declaration.name;
  const bool masked = declaration.variant == "masked", unmasked = declaration.variant == "unmasked";
  for (const char* first_order : {"linear", "retention", "mamba2", "log_linear", "log_linear_mamba2"})
    if (name == first_order && masked) return certified_linear;
  if (name == "hla2") return masked ? certified_hla2 : unmasked ? certified_hla2_unmasked : nullptr;
  if (name == "hla3") return masked ? certified_hla3 : unmasked ? certified_hla3_unmasked : nullptr;
  if (name == "ahla" && masked) return certified_ahla;
  return nullptr;
}

// |x - (high + low)| <= error |x| + 2^-1074; the factor pays for rounding this quotient, and |x| for |high|.
CertifiedScalar scalar_from(const Enclosure& enclosure) {
  CertifiedScalar scalar{enclosure.high, enclosure.low, 0};
  if (enclosure.radius > std::ldexp(1.0, -1074))
    scalar.error =
        enclosure.high == 0 ? 1 : enclosure.radius / std::abs(enclosure.high) * (1 + std::ldexp(1.0, -40));
  return scalar;
}

struct Gate {
  std::vector<double> high, low;
  double error = 0;
};

Gate gates_of(const Problem& problem, const Slot& slot, ReadExact& reader) {
  if (problem.field("alpha")) return {read_scalars<double>(problem, slot, "alpha", reader), {}, 0};
  Gate gate;
  const PrecisionScope precision(192);
  for (const double g : read_scalars<double>(problem, slot, "g", reader)) {
    const CertifiedScalar alpha =
        scalar_from(enclosure_of(linear_gate(Interval(std::isinf(g) ? 0.0 : g), g)));
    gate.high.push_back(alpha.high);
    gate.low.push_back(alpha.low);
    gate.error = std::max(gate.error, alpha.error);
  }
  return gate;
}

CertifiedScalar decay_of(const Problem& problem, const Slot& slot) {
  if (const Tensor* decay = problem.field("decay"))
    return {decay->data[static_cast<std::size_t>(slot.head)], 0, 0};
  return scalar_from(enclosure_of(problem.options.decay.value_or(1)));
}

bool is_close(const CertifiedRows& rows) {
  for (std::size_t i = 0; i < rows.radius.size(); ++i)
    if (!(rows.radius[i] <= std::ldexp(rows.magnitude[i], -60) + std::ldexp(1.0, -1000))) return false;
  return true;
}

}  // namespace

void use_certified_engine(const CertifiedEngine* engine, Index least_tokens) {
  engine_in_use = engine, engine_tokens = least_tokens;
}

const CertifiedEngine* certified_engine_for(Index tokens) {
  return tokens >= engine_tokens ? engine_in_use : nullptr;
}

std::optional<CertifiedRows> certified_rows(const Declaration& declaration, const Problem& problem,
                                            const Slot& slot, int threads) {
  const Sum sum = sum_of(declaration);
  const bool stateful = std::ranges::any_of(
      problem.fields, [](const auto& field) { return field.first.starts_with("initial_state."); });
  if (!sum || stateful || problem.options.ridge != 0) return std::nullopt;
  ReadExact reader;
  const Matrix<double> q = read_rows<double>(problem, slot, "q", reader),
                       k = read_rows<double>(problem, slot, "k", reader),
                       v = read_rows<double>(problem, slot, "v", reader, problem.options.normalize ? 1 : 0);
  CertifiedInput input{.tokens = q.rows(),
                       .key_dim = q.cols(),
                       .value_dim = v.cols(),
                       .q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .weights = {},
                       .scale = scalar_from(enclosure_of(problem.options.scale.value_or(1)))};
  Gate gate;
  Matrix<double> level_scales;
  if (declaration.gates) {
    gate = gates_of(problem, slot, reader);
    input.weights.gate_high = gate.high.data();
    if (!gate.low.empty()) input.weights.gate_low = gate.low.data();
    input.weights.gate_error = gate.error;
  }
  if (declaration.level_scales) {
    level_scales = read_rows<double>(problem, slot, "level_scales", reader);
    input.weights.level_scales = level_scales.data();
    input.weights.levels = level_scales.cols();
  }
  if (declaration.decay) input.weights.decay = decay_of(problem, slot);
  CertifiedOptions options;
  options.threads = threads;
  options.engine = certified_engine_for(input.tokens);
  CertifiedRows rows = sum(input, options);
  rows.by_engine = options.engine != nullptr;
  if (!is_close(rows)) return std::nullopt;
  return rows;
}

}  // namespace attest
