#include "reference/forms/certified_delta_route.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/forms/batch.hpp"

namespace attest {
namespace {

// |exp(g) - (high + low)| <= error, or alpha as it is.
DeltaGates gates_of(const Problem& problem, const Slot& slot, ReadExact& reader) {
  DeltaGates gates;
  if (problem.field("alpha")) {
    gates.high = read_scalars<double>(problem, slot, "alpha", reader);
    gates.low.assign(gates.high.size(), 0), gates.error.assign(gates.high.size(), 0);
    return gates;
  }
  const PrecisionScope precision(128);
  for (const double g : read_scalars<double>(problem, slot, "g", reader)) {
    const Enclosure alpha = enclosure_of(linear_gate(Interval(std::isinf(g) ? 0.0 : g), g));
    gates.high.push_back(alpha.high), gates.low.push_back(alpha.low), gates.error.push_back(alpha.radius);
  }
  return gates;
}

}  // namespace

std::optional<CertifiedRows> certified_delta_rows(const Declaration& declaration, const Problem& problem,
                                                  const Slot& slot, const DeltaOptions& options) {
  if (!declaration.beta || problem.options.normalize) return std::nullopt;
  ReadExact reader;
  const Matrix<double> q = read_rows<double>(problem, slot, "q", reader),
                       k = read_rows<double>(problem, slot, "k", reader),
                       v = read_rows<double>(problem, slot, "v", reader);
  const std::vector<double> beta = read_scalars<double>(problem, slot, "beta", reader);
  Matrix<double> level_scales;
  if (declaration.level_scales) level_scales = read_rows<double>(problem, slot, "level_scales", reader);
  const State<double> initial = read_state<double>(problem, declaration, slot, reader);
  const Enclosure scale = enclosure_of(problem.options.scale.value_or(1));
  CertifiedDelta input{.tokens = q.rows(),
                       .key_dim = q.cols(),
                       .value_dim = v.cols(),
                       .q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .beta = beta.data(),
                       .gates = declaration.gates ? gates_of(problem, slot, reader) : DeltaGates(),
                       .scale = scale.high,
                       .scale_low = scale.low,
                       .scale_error = scale.radius,
                       .level_scales = declaration.level_scales ? level_scales.data() : nullptr,
                       .levels = level_scales.cols(),
                       .initial = {},
                       .position = initial.position};
  if (const auto found = initial.moments.find("S"); found != initial.moments.end())
    for (std::size_t level = 0; level < found->second.size(); ++level) {
      const auto position = static_cast<std::uint64_t>(input.position);
      const bool holds =
          !declaration.level_scales || (level > 0 && level < 64 && (position >> (level - 1) & 1));
      input.initial.push_back(holds ? found->second[level].data() : nullptr);
    }
  return certified_delta(input, options);
}

bool is_close(const CertifiedRows& rows, bool magnitude) {
  double largest = 0;
  for (const double x : rows.high) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < rows.radius.size(); ++i) {
    const double size = magnitude && rows.magnitude[i] < largest ? rows.magnitude[i] : largest;
    if (!(rows.radius[i] <= std::ldexp(size, -60) + std::ldexp(1.0, -990))) return false;
  }
  return true;
}

}  // namespace attest
