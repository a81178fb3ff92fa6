#include "reference/forms/certified_delta.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#include "reference/forms/certified_delta_error.hpp"
#include "reference/forms/certified_delta_recurrence.hpp"
#include "reference/forms/certified_error.hpp"

namespace attest {
namespace {

std::vector<double> absolute(const double* x, Index count, double sign) {
  std::vector<double> result(x, x + count);
  for (double& e : result) e = sign * std::abs(e);
  return result;
}

// The sums of the absolute values of the terms: the same recurrence of |q|, |k|, -|v|, |a|, -|b| and |initial state|,
// whose every sum is one of non-negative numbers, so that its relative error counts its roundings.
std::vector<double> magnitude_of(const CertifiedDelta& input, DeltaOptions options) {
  CertifiedDelta sizes = input;
  const std::vector<double> q = absolute(input.q, input.tokens * input.key_dim, 1),
                            k = absolute(input.k, input.tokens * input.key_dim, 1),
                            v = absolute(input.v, input.tokens * input.value_dim, -1),
                            beta = absolute(input.beta, input.tokens, -1);
  std::vector<double> scales;
  if (input.level_scales) scales = absolute(input.level_scales, input.tokens * input.levels, 1);
  std::vector<std::vector<double>> initial;
  for (const double* matrix : input.initial)
    initial.push_back(matrix ? absolute(matrix, input.key_dim * input.value_dim, 1) : std::vector<double>());
  for (std::size_t i = 0; i < initial.size(); ++i)
    sizes.initial[i] = initial[i].empty() ? nullptr : initial[i].data();
  sizes.q = q.data(), sizes.k = k.data(), sizes.v = v.data(), sizes.beta = beta.data();
  if (input.level_scales) sizes.level_scales = scales.data();
  for (std::size_t t = 0; t < sizes.gates.high.size(); ++t)
    sizes.gates.high[t] =
        (std::abs(sizes.gates.high[t]) + std::abs(sizes.gates.low[t]) + sizes.gates.error[t]) * kDeltaUp;
  sizes.scale = (std::abs(input.scale) + std::abs(input.scale_low) + input.scale_error) * kDeltaUp;
  sizes.scale_low = sizes.scale_error = 0;
  options.precision = DeltaPrecision::plain;
  CertifiedRows rows = delta_recurrence(sizes, options);
  const double roundings = static_cast<double>(input.tokens + 1) * static_cast<double>(input.key_dim + 64);
  for (std::size_t i = 0; i < rows.high.size(); ++i)
    rows.high[i] = std::isinf(rows.radius[i]) ? INFINITY : rows.high[i] * (1 + roundings * 0x1p-51) + kFloor;
  return std::move(rows.high);
}

// A block of value columns and the first tokens of a problem, as a problem of its own.
struct Part {
  CertifiedDelta input;
  Index first;
  std::vector<double> v;
  std::vector<std::vector<double>> initial;

  Part(const CertifiedDelta& all, Index tokens, Index first_column, Index columns)
      : input(all), first(first_column) {
    input.tokens = tokens, input.value_dim = columns;
    v = cut(all.v, tokens, all.value_dim);
    input.v = v.data();
    for (const double* matrix : all.initial)
      initial.push_back(matrix ? cut(matrix, all.key_dim, all.value_dim) : std::vector<double>());
    for (std::size_t i = 0; i < initial.size(); ++i)
      input.initial[i] = initial[i].empty() ? nullptr : initial[i].data();
  }
  std::vector<double> cut(const double* from, Index rows, Index width) const {
    std::vector<double> kept;
    for (Index r = 0; r < rows; ++r)
      kept.insert(kept.end(), from + r * width + first, from + r * width + first + input.value_dim);
    return kept;
  }
};

void compare(const CertifiedRows& engine, const Part& part, DeltaOptions options, DeltaPrecision precision) {
  options.precision = precision;
  const CertifiedRows own = delta_recurrence(part.input, options);
  for (Index t = 0; t < own.rows; ++t)
    for (Index c = 0; c < own.columns; ++c) {
      const auto here = static_cast<std::size_t>(t * own.columns + c),
                 there = static_cast<std::size_t>(t * engine.columns + part.first + c);
      const double apart =
          std::abs((engine.high[there] - own.high[here]) + (engine.low[there] - own.low[here]));
      if (apart <= (engine.radius[there] + own.radius[here]) * kDeltaUp) continue;
      throw std::runtime_error("the GPU's oracle and the processor's contradict each other at token " +
                               std::to_string(t) + ", column " + std::to_string(part.first + c) +
                               " of a delta rule: nothing can be judged with this device");
    }
}

// Which columns are compared depends on the values, so that no block of columns is never looked at.
void check_engine(const CertifiedDelta& input, const DeltaOptions& options, CertifiedRows& rows) {
  std::uint64_t bits = 0;
  for (Index i = 0; i < input.tokens * input.value_dim; ++i) {
    const auto at = static_cast<std::size_t>(i);
    put_delta_entry(rows, i, rows.high[at], rows.low[at], rows.radius[at]);
    bits = bits * 31 + std::bit_cast<std::uint64_t>(input.v[i]);
  }
  if (rows.high.empty()) return;
  const Index blocks = (input.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  const Index first = static_cast<Index>((bits >> 20) % static_cast<std::uint64_t>(blocks)) * kDeltaColumns;
  const Index columns = std::min(kDeltaColumns, input.value_dim - first),
              start = std::min<Index>(input.tokens, 1024);
  compare(rows, Part(input, input.tokens, first, columns), options, DeltaPrecision::plain);
  compare(rows, Part(input, start, first, columns), options, DeltaPrecision::pair);
}

}  // namespace

CertifiedRows certified_delta(const CertifiedDelta& input, const DeltaOptions& options) {
  CertifiedRows rows = empty_delta_rows(input);
  rows.by_engine = options.engine && options.engine->delta_rule(input, rows);
  if (rows.by_engine)
    check_engine(input, options, rows);
  else
    rows = delta_recurrence(input, options);
  if (options.magnitude) rows.magnitude = magnitude_of(input, options);
  return rows;
}

}  // namespace attest
