#include "reference/metrics/bound.hpp"

#include <algorithm>
#include <cmath>

namespace attest {

ErrorModel error_model(const Operator&, const Head<double>& head, const Evaluation&, const Contract&,
                       const Normaliser&) {
  ErrorModel model;
  model.deterministic = model.accumulation = model.variance = zeros<double>(head.tokens(), head.v.cols());
  model.undecided = true, model.reason = "no error model";
  return model;
}

namespace {
double coarsest_unit(const Contract& c) {
  return std::max({c.product.unit_roundoff(), c.intermediate.unit_roundoff(), c.state.unit_roundoff(),
                   c.output.unit_roundoff()});
}
}  // namespace

Matrix<double> passing_bound(const ErrorModel& model, const Contract& contract, Index compared, bool statistical) {
  Matrix<double> bound = model.deterministic;
  if (!statistical || model.stages == 0) return bound;
  const double events = 2.0 * static_cast<double>(std::max<Index>(compared, 1)) * static_cast<double>(model.stages);
  const double lambda = std::sqrt(2 * std::log(events / 1e-9)) / (1 - coarsest_unit(contract));
  for (Index i = 0; i < bound.size(); ++i) {
    const double likely = model.accumulation.data()[i] + lambda * std::sqrt(model.variance.data()[i]);
    if (likely < bound.data()[i]) bound.data()[i] = likely;
  }
  return bound;
}

}  // namespace attest
