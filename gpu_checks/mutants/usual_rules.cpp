#include "gpu_checks/mutants/usual_rules.hpp"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

// torch compares what tensors hold: floats.
std::vector<double> as_floats(std::vector<double> x) {
  for (double& e : x) e = static_cast<float>(e);
  return x;
}

bool all_close(const std::vector<double>& x, const std::vector<double>& y, double relative, double absolute) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;
    if (!(std::abs(x[i] - y[i]) <= absolute + relative * std::abs(y[i])) || std::isinf(y[i])) return false;
  }
  return true;
}

bool small_ratio(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, base = 0, largest = 0;
  bool nan = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = got[i] - expected[i];
    nan = nan || std::isnan(e);
    error += e * e, base += expected[i] * expected[i], largest = std::max(largest, std::abs(e));
  }
  if (nan) return false;
  if (largest <= 1e-6 || got.empty()) return true;
  const auto count = static_cast<double>(got.size());
  return std::sqrt(error / count) / (std::sqrt(base / count) + 1e-8) < 5e-3;
}

bool no_element_off(const std::vector<double>& got, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return false;
    const double error = std::abs(got[i] - expected[i]);
    if (error > 1e-2 && error / (std::abs(expected[i]) + 1e-8) > 1e-2) return false;
  }
  return true;
}

}  // namespace

std::array<bool, 5> accepted_by(const std::vector<double>& got_exactly,
                                const std::vector<double>& expected_exactly, const Format& output) {
  const std::vector<double> got = as_floats(got_exactly), expected = as_floats(expected_exactly);
  const double tolerance = output.precision >= fp32.precision ? 1e-4 : 1e-2;
  return {all_close(got, expected, 1e-5, 1e-8), all_close(got, expected, 1e-2, 1e-2),
          small_ratio(got, expected), all_close(expected, got, tolerance, tolerance),
          no_element_off(got, expected)};
}

}  // namespace attest
