#include "gpu_checks/judging/compared.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "gpu_checks/list_in_words.hpp"

namespace attest {

namespace {

Quantiles quantiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1)) - 1;
    std::nth_element(values.begin(), place, values.end());
    return *place;
  };
  return {at(0.5), at(0.99), at(1)};
}

}  // namespace

bool Comparison::violated(Index i) const {
  if (!std::isfinite(high.data()[i])) return std::isfinite(got.data()[i]);
  return !(error(i) <= bound(i));
}

double Comparison::ratio(Index i) const {
  if (!std::isfinite(high.data()[i])) return violated(i) ? INFINITY : 0;
  const double e = error(i);
  if (e == 0) return 0;
  const double r = e / bound(i);
  return std::isnan(r) ? INFINITY : r;
}

void describe(const Comparison& compared, const Rows& rows, const Problem& problem, const Evaluation& how,
              Checked& result) {
  const Index columns = problem.value_dim, count = compared.got.size();
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto top = order.begin() + static_cast<std::ptrdiff_t>(std::min<Index>(3, count));
  std::partial_sort(order.begin(), top, order.end(), [&](Index a, Index b) {
    const double ra = compared.ratio(a), rb = compared.ratio(b);
    return ra != rb ? ra > rb : a < b;
  });
  for (auto i = order.begin(); i != top; ++i) {
    const Slot& slot = rows.slot_of(*i / columns);
    result.worst.push_back({slot.batch, slot.first + rows.position_of(*i / columns), slot.head, *i % columns,
                            compared.high.data()[*i], compared.got.data()[*i], compared.bound(*i),
                            compared.ratio(*i)});
  }
  std::map<Index, PositionError> positions;
  std::set<Index> tokens, chunk_positions, heads, violated_columns;
  for (Index i = 0; i < count; ++i) {
    const Index row = i / columns, position = rows.position_of(row);
    const double ratio = compared.ratio(i);
    auto [at, fresh] = positions.try_emplace(position);
    if (fresh || ratio > at->second.ratio)
      at->second = {position, ratio, compared.error(i), compared.bound(i)};
    if (!compared.violated(i)) continue;
    tokens.insert(position), heads.insert(rows.slot_of(row).head), violated_columns.insert(i % columns);
    if (how.form == Form::chunk) chunk_positions.insert(position % how.chunk);
  }
  for (const auto& [position, error] : positions) result.positions.push_back(error);
  if (!tokens.empty())
    result.whereabouts =
        Whereabouts{list_in_words(tokens, problem.tokens), list_in_words(chunk_positions, how.chunk),
                    list_in_words(heads, problem.heads), list_in_words(violated_columns, columns)};
}

Quantiles ulps_of(const Matrix<double>& got, const Expected& expected, const Format& output) {
  std::vector<double> ulps;
  for (Index i = 0; i < got.size(); ++i) {
    const double high = expected.high.data()[i];
    if (!std::isfinite(high)) continue;
    const double error = std::abs((got.data()[i] - high) - expected.low.data()[i]);
    const double ratio = error == 0 ? 0 : error / (output.unit_roundoff() * std::abs(high));
    ulps.push_back(std::isnan(ratio) ? INFINITY : ratio);
  }
  return quantiles_of(std::move(ulps));
}

// Squares of what is divided by the largest entry cannot overflow.
std::optional<double> relative_norm(const Matrix<double>& got, const Expected& expected, const Rows& rows) {
  std::optional<double> worst;
  for (std::size_t s = 0; s < rows.list().size(); ++s) {
    const Index first = rows.first(s) * got.cols();
    const Index last = first + rows.count(s) * got.cols();
    std::vector<double> errors, values;
    for (Index i = first; i < last; ++i) {
      const double high = expected.high.data()[i];
      if (!std::isfinite(high)) continue;
      const double error = std::abs((got.data()[i] - high) - expected.low.data()[i]);
      errors.push_back(std::isnan(error) ? INFINITY : error), values.push_back(std::abs(high));
    }
    if (errors.empty()) continue;
    const auto scaled = [](const std::vector<double>& all, double scale) {
      double sum = 0;
      for (const double x : all) sum += (x / scale) * (x / scale);
      return std::sqrt(sum);
    };
    const double error = *std::max_element(errors.begin(), errors.end());
    const double value = *std::max_element(values.begin(), values.end());
    double norm = 0;
    if (error > 0)
      norm = value == 0 || std::isinf(error)
                 ? INFINITY
                 : error / value * (scaled(errors, error) / scaled(values, value));
    worst = std::max(worst.value_or(0), norm);
  }
  return worst;
}

Quantiles cancellation_of(const Matrix<double>& magnitude, const Matrix<double>& exact) {
  std::vector<double> ratios;
  for (Index i = 0; i < magnitude.size(); ++i)
    if (const double value = std::abs(exact.data()[i]); value > 0 && std::isfinite(value))
      ratios.push_back(magnitude.data()[i] / value);
  return quantiles_of(std::move(ratios));
}

std::string not_finite(const Matrix<double>& got, const Expected& expected, const Rows& rows) {
  Index nan = 0, infinite = 0, first = -1;
  for (Index i = 0; i < got.size(); ++i) {
    if (std::isfinite(got.data()[i]) || !std::isfinite(expected.high.data()[i])) continue;
    ++(std::isnan(got.data()[i]) ? nan : infinite);
    if (first < 0) first = i;
  }
  if (first < 0) return "";
  const Index row = first / got.cols();
  const Slot& slot = rows.slot_of(row);
  std::string text = "; ";
  if (nan > 0) text += std::to_string(nan) + (nan == 1 ? " is NaN" : " are NaN");
  if (infinite > 0)
    text += (nan > 0 ? ", " : "") + std::to_string(infinite) + (infinite == 1 ? " is" : " are") + " infinite";
  return text + ", the first o[" + std::to_string(slot.batch) + ',' +
         std::to_string(slot.first + rows.position_of(row)) + ',' + std::to_string(slot.head) + ',' +
         std::to_string(first % got.cols()) + ']';
}

Index not_finite_among_all(const std::vector<double>& got, const std::vector<double>& exact,
                           const Problem& problem, Index exact_tokens) {
  const Index width = problem.heads * problem.value_dim;
  Index count = 0;
  for (Index b = 0; b < problem.batch; ++b)
    for (Index i = 0; i < problem.tokens * width; ++i)
      count += !std::isfinite(got[static_cast<std::size_t>(b * problem.tokens * width + i)]) &&
               std::isfinite(exact[static_cast<std::size_t>(b * exact_tokens * width + i)]);
  return count;
}

}  // namespace attest
