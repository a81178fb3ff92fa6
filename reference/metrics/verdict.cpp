#include "reference/metrics/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest_radius = power_of_two(-10), power_margin = 0.25;

// a / b with 0/0 = 0 and NaN as infinity: the size of an error in units of a bound.
double ratio(double error, double unit) {
  if (error == 0 && !std::isnan(unit)) return 0;
  const double result = error / unit;
  return std::isnan(result) ? infinity : result;
}

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
    std::nth_element(values.begin(), place, values.end());
    return *place;
  };
  return {at(0.5), at(0.99), at(1)};
}

double entry(const Matrix<double>& matrix, Index i) { return matrix.size() == 0 ? 0.0 : matrix.data()[i]; }

struct Tally {
  std::vector<double> ratios, ulps;
  Index powerful = 0, unresolved = 0, misplaced = 0;
};

void count_element(double got, double high, double low, double radius, double bound, double passing,
                   double unit, Index index, Tally& tally, Judgement& result) {
  if (!std::isfinite(high)) {
    if (std::isfinite(got)) ++result.violations, ++tally.misplaced;
    return;
  }
  ++result.compared;
  const double error = std::abs((got - high) - low);
  const double in_bounds = ratio(error, bound);
  tally.ratios.push_back(in_bounds);
  tally.ulps.push_back(ratio(error, unit * std::abs(high)));
  if (bound < power_margin * std::abs(high)) ++tally.powerful;
  result.radius_over_bound = std::max(result.radius_over_bound, ratio(radius, passing));
  const bool resolved = radius <= largest_radius * passing;
  if (!resolved) ++tally.unresolved;
  if (!std::isfinite(got) || (resolved ? !(error <= bound) : error > bound + radius))
    ++result.violations;
  else if (!(error <= passing))
    ++result.suspicious;
  if (result.worst < 0 || in_bounds > result.worst_ratio)
    result.worst = index, result.worst_ratio = in_bounds;
}

void decide(const Tally& tally, Judgement& result) {
  const auto say = [&](Verdict verdict, std::string reason) {
    result.verdict = verdict, result.reason = std::move(reason);
  };
  if (tally.misplaced > 0)
    return say(Verdict::fail,
               fmt::format("{} finite values where infinity or NaN is expected", tally.misplaced));
  if (result.compared == 0) return say(Verdict::undecided, "nothing compared");
  if (result.violations > 0)
    return say(Verdict::fail, fmt::format("{} of {} elements exceed the bound, the worst {:.3g} times",
                                          result.violations, result.compared, result.worst_ratio));
  if (tally.unresolved > 0)
    return say(Verdict::undecided, fmt::format("oracle radius: {} of {} elements above 2^-10 of the bound",
                                               tally.unresolved, result.compared));
  if (result.grade.power < 0.5)
    return say(Verdict::undecided,
               fmt::format("no power: the bound is below a quarter of the value on {:.0f} % of the "
                           "elements",
                           100 * result.grade.power));
  if (result.suspicious > 0)
    return say(Verdict::suspect, fmt::format("{} of {} elements exceed the statistical bound",
                                             result.suspicious, result.compared));
  say(Verdict::pass, "");
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view names[] = {"pass", "suspect", "fail", "undecided", "not_run"};
  return names[static_cast<int>(verdict)];
}

Verdict worse(Verdict a, Verdict b) {
  constexpr int rank[] = {1, 2, 4, 3, 0};
  return rank[static_cast<int>(a)] >= rank[static_cast<int>(b)] ? a : b;
}

Judgement judge(const Matrix<double>& got, const Expected& expected, const ErrorModel& model,
                const Contract& contract, const Judging& how) {
  Judgement result;
  if (got.rows() != expected.high.rows() || got.cols() != expected.high.cols()) {
    result.verdict = Verdict::fail;
    result.reason = fmt::format("shape: {}x{} where {}x{} is expected", got.rows(), got.cols(),
                                expected.high.rows(), expected.high.cols());
    return result;
  }
  if (model.undecided) {
    result.reason = model.reason;
    return result;
  }
  const Matrix<double> passing =
      passing_bound(model, contract, std::max(how.outputs, got.size()), how.statistical);
  Tally tally;
  for (Index i = 0; i < got.size(); ++i)
    count_element(got.data()[i], expected.high.data()[i], entry(expected.low, i), entry(expected.radius, i),
                  model.deterministic.data()[i], passing.data()[i], contract.output.unit_roundoff(), i, tally,
                  result);
  result.grade.ratio = quantiles(tally.ratios), result.grade.ulp = quantiles(tally.ulps);
  result.grade.power =
      result.compared ? static_cast<double>(tally.powerful) / static_cast<double>(result.compared) : 0;
  decide(tally, result);
  return result;
}

}  // namespace attest
