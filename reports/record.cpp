#include "reports/record.hpp"

#include <algorithm>
#include <cmath>

namespace attest {

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "pass";
    case Verdict::suspect:
      return "suspect";
    case Verdict::fail:
      return "fail";
    case Verdict::undecided:
      return "undecided";
    case Verdict::not_run:
      return "not_run";
  }
  return "?";
}

std::string_view to_string(Rule rule) {
  switch (rule) {
    case Rule::bound:
      return "bound";
    case Rule::bitwise:
      return "bitwise";
    case Rule::structural:
      return "structural";
  }
  return "?";
}

namespace {
template <typename E>
auto& counter(E& end, Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return end.pass;
    case Verdict::suspect:
      return end.suspect;
    case Verdict::fail:
      return end.fail;
    case Verdict::undecided:
      return end.undecided;
    case Verdict::not_run:
      break;
  }
  return end.not_run;
}

// NaN counts as the worst.
bool worse(const CurvePoint& a, const CurvePoint& b) {
  if (std::isnan(b.ratio_max)) return false;
  return std::isnan(a.ratio_max) || a.ratio_max > b.ratio_max;
}
}  // namespace

void End::count(Verdict verdict) {
  ++cases;
  ++counter(*this, verdict);
}

std::int64_t End::of(Verdict verdict) const { return counter(*this, verdict); }

std::vector<CurvePoint> thin_curve(const std::vector<CurvePoint>& curve, std::size_t limit) {
  std::map<std::string, std::vector<CurvePoint>> by_tensor;
  for (const auto& point : curve) by_tensor[point.tensor].push_back(point);
  std::vector<CurvePoint> thinned;
  for (auto& [tensor, points] : by_tensor) {
    std::stable_sort(points.begin(), points.end(),
                     [](const auto& a, const auto& b) { return a.position < b.position; });
    const std::size_t groups = std::min(limit, points.size());
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * points.size() / groups, last = (g + 1) * points.size() / groups;
      CurvePoint kept = points[first];
      for (std::size_t i = first + 1; i < last; ++i)
        if (worse(points[i], kept)) kept = points[i];
      thinned.push_back(kept);
    }
  }
  return thinned;
}

}  // namespace attest
