#include "reference/forms/certify.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

void put(OracleTensor& tensor, Index flat, const Enclosure& enclosure) {
  const auto i = static_cast<std::size_t>(flat);
  tensor.value[i] = enclosure.high;
  tensor.low[i] = enclosure.low;
  tensor.radius[i] = enclosure.radius;
}

bool is_data(const std::string& name) {
  return name == "q" || name == "k" || name == "v" || name == "do" || name.starts_with("dfinal_state.") ||
         (name.starts_with("initial_state.") && name != "initial_state.position");
}

Problem with_entries(Problem problem, double (*replace)(const std::string&, double)) {
  for (auto& [name, tensor] : problem.fields)
    for (double& entry : tensor.data) entry = replace(name, entry);
  return problem;
}

}  // namespace

OracleTensor empty_oracle_tensor(std::vector<Index> shape, bool magnitude, bool exact) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  OracleTensor tensor{std::move(shape), {}, {}, {}, {}, {}};
  tensor.value.assign(count, 0);
  tensor.low.assign(count, 0);
  tensor.radius.assign(count, 0);
  if (magnitude) tensor.magnitude.assign(count, 0);
  if (exact) tensor.exact.assign(count, "0");
  return tensor;
}

void store(OracleTensor& tensor, Index flat, const Interval& value) {
  put(tensor, flat, enclosure_of(value));
}
void store(OracleTensor& tensor, Index flat, const Rational& value) {
  put(tensor, flat, enclosure_of(value));
  if (!tensor.exact.empty()) tensor.exact[static_cast<std::size_t>(flat)] = to_text(value);
}
void store_nan(OracleTensor& tensor, Index flat) {
  put(tensor, flat, {nan_value, nan_value, infinity});
  if (!tensor.exact.empty()) tensor.exact[static_cast<std::size_t>(flat)] = "nan";
}

bool wants_more_bits(const OracleTensor& tensor, Index flat, int relative_bits) {
  const auto i = static_cast<std::size_t>(flat);
  if (std::isinf(tensor.value[i])) return false;  // beyond the range of double at any precision
  const double aim = std::max(std::ldexp(std::abs(tensor.value[i]), -relative_bits), std::ldexp(1.0, -1000));
  return !(tensor.radius[i] <= aim);
}

bool holds_non_finite_data(const Problem& problem) {
  return std::ranges::any_of(problem.fields, [](const auto& field) {
    return is_data(field.first) &&
           std::ranges::any_of(field.second.data, [](double x) { return !std::isfinite(x); });
  });
}

Problem finite_part(const Problem& problem) {
  return with_entries(
      problem, [](const std::string& name, double x) { return is_data(name) && !std::isfinite(x) ? 0 : x; });
}

Problem reach_of_non_finite(const Problem& problem) {
  Problem reach = with_entries(problem, [](const std::string& name, double x) {
    if (name == "initial_state.position") return x;
    return is_data(name) && !std::isfinite(x) ? nan_value : 0;
  });
  reach.options.epsilon = 1;  // keeps the denominators, sums of zeros here, away from 0/0
  return reach;
}

}  // namespace attest
