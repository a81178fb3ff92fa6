#include "reference/operators/common/error_units.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

bool holds(const Format& wide, const Format& narrow) {
  return wide.precision >= narrow.precision && wide.emax >= narrow.emax &&
         wide.emin - wide.precision <= narrow.emin - narrow.precision;
}

// The cost of storing a value of format `from` in `to`, and what it is then.
double store(Format& from, const Format& to) {
  if (holds(to, from)) return 0;
  from = to;
  return to.unit_roundoff();
}

double gamma_of(double u, Index terms) {
  const double ku = u * static_cast<double>(terms);
  return ku < 1 ? ku / (1 - ku) : std::numeric_limits<double>::infinity();
}

}  // namespace

Units::Units(const Contract& c, bool scaled) : contract(c) {
  const Format scalar = c.accumulate.precision > fp32.precision ? fp64 : fp32;  // what registers hold
  Format format = scalar;
  operand = store(format, c.intermediate);
  operand += store(format, c.product);
  format = scalar;
  carry = store(format, c.state);
  carried_state = store(format, c.intermediate);
  carried_state += store(format, c.product);
  format = scalar;
  output = store(format, c.output);
  format = c.input;
  input = store(format, c.product);
  step = c.accumulate.unit_roundoff();
  if (scaled) {
    query = 2 * step / (1 - 2 * step);  // the scale in `accumulate`, and the product with it
    format = scalar;
    const double stored = store(format, c.product);
    input = std::max(input, stored) + query * (1 + stored);
  }
  sum = c.truncates ? 2 * step : step;
  eta = c.accumulate.smallest_subnormal();
}

double Units::gamma(Index terms) const { return gamma_of(sum, terms); }
double Units::gamma_step(Index terms) const { return gamma_of(step, terms); }

namespace {

double conversion(const Units& units, double value) {
  return round_to(units.contract.accumulate, value) == value ? 0 : units.step;
}

// The exponential of a sum of log-gates: 1 ulp is up to 2 u.
double exponential_error(const Units& units, double exponent_error) {
  const double u = units.contract.gate_sum.unit_roundoff();
  const double store =
      units.contract.gate_sum.precision > units.contract.accumulate.precision ? units.step : 0;
  return std::expm1(exponent_error) + 2 * units.contract.exp_ulp * u + store;
}

double log_gate(const Gates<double>& gates, Index t) {
  return (*gates.log_gate)[static_cast<std::size_t>(t)];
}

// Prefix sums of the sizes of the gates of tokens from .. last-1. A gate of -infinity is left out: a kernel may carry its
// sum across it, or start anew, which costs less.
std::vector<double> prefix_sums(const Gates<double>& gates, Index from, Index last) {
  std::vector<double> sums{0};
  for (Index t = from; t < last; ++t)
    sums.push_back(sums.back() + (std::isinf(log_gate(gates, t)) ? 0 : std::abs(log_gate(gates, t))));
  return sums;
}

Array log_gate_error(const Units& units, const Gates<double>& gates, Index first, Index last) {
  const Index from = units.contract.gate_scope == GateScope::global ? 0 : first, size = last - first + 1;
  const double u = units.contract.gate_sum.unit_roundoff();
  const auto sums = prefix_sums(gates, from, last);
  Array error = Array::Zero(size, size);
  for (Index t = 1; t < size; ++t)
    for (Index s = 0; s < t; ++s) {
      const Index terms = first - from + t;
      const double late = sums[static_cast<std::size_t>(terms)],
                   early = sums[static_cast<std::size_t>(first - from + s)];
      error(t, s) =
          exponential_error(units, gamma_of(u, terms) * (late + early) + 2 * u * std::abs(late - early));
    }
  return error;
}

}  // namespace

Array gate_error(const Units& units, const Gates<double>& gates, Index first, Index last) {
  const Index size = last - first + 1;
  if (gates.log_gate) return log_gate_error(units, gates, first, last);
  Array error = Array::Zero(size, size);
  if (!gates.alpha && gates.gamma == 1) return error;
  for (Index t = 1; t < size; ++t)
    for (Index s = 0; s < t; ++s) {
      const Index factors = gates.alpha ? t - s : (t - s) * gates.power;
      double stored = gates.alpha ? 0 : static_cast<double>(factors) * conversion(units, gates.gamma);
      if (gates.alpha)
        for (Index r = s; r < t; ++r)
          stored += conversion(units, (*gates.alpha)[static_cast<std::size_t>(first + r)]);
      error(t, s) = units.gamma_step(factors) + stored / (1 - stored);
    }
  return error;
}

double single_gate_error(const Units& units, const Gates<double>& gates, Index t) {
  if (gates.log_gate) return std::isinf(log_gate(gates, t)) ? 0 : exponential_error(units, 0) + units.step;
  if (gates.alpha) return conversion(units, (*gates.alpha)[static_cast<std::size_t>(t)]);
  return conversion(units, gates.gamma) * gates.power;
}

ErrorSum::ErrorSum(const Units& units, Index tokens, Index columns)
    : units_(units),
      rounded_(Array::Zero(tokens, columns)),
      arithmetic_(Array::Zero(tokens, columns)),
      variance_(Array::Zero(tokens, columns)) {}

void ErrorSum::rounded(const std::string& label, double unit, const Contribution& contribution) {
  if (unit > 0) rounded(label, unit, contribution(Norm::absolute), contribution(Norm::square));
}

void ErrorSum::rounded(const std::string& label, double unit, const Array& absolute, const Array& square) {
  if (unit == 0) return;
  const Array share = unit * absolute;
  rounded_ += share;
  variance_ += unit * unit * square;
  auto& total = shares_.try_emplace(label, Array::Zero(share.rows(), share.cols())).first->second;
  total += share;
  ++stages_;
}

void ErrorSum::arithmetic(const Array& contribution) { arithmetic_ += contribution; }

void ErrorSum::absorb(const ErrorSum& bounded) {
  arithmetic_ += bounded.rounded_ + bounded.arithmetic_;
  shares_.insert(bounded.shares_.begin(), bounded.shares_.end());
  if (!bounded.undecided_.empty()) undecide(bounded.undecided_);
}

void ErrorSum::undecide(const std::string& reason) {
  if (undecided_.empty()) undecided_ = reason;
}

void ErrorSum::range(const std::string& label, const Format& format, const Array& tensor) {
  if (tensor.size() > 0) range(label, format, tensor.cwiseAbs().maxCoeff());
}

// One exponent of room: the kernel's own value is not the exact one.
void ErrorSum::range(const std::string& label, const Format& format, double largest) {
  if (!(largest <= format.max_finite() / 2))
    undecide(fmt::format("range: {} reaches {:.3g} in {}", label, largest, format.name));
}

void ErrorSum::gates(const Array& relative_error) {
  if (relative_error.size() > 0 && !(relative_error.maxCoeff() <= 0.5))
    undecide("gates: the relative error of a weight may exceed one half");
}

ErrorModel ErrorSum::finish() const {
  ErrorModel model;
  model.deterministic = to_matrix(rounded_ + arithmetic_);
  model.accumulation = to_matrix(arithmetic_);
  model.variance = to_matrix(variance_);
  for (const auto& [label, share] : shares_) model.shares[label] = to_matrix(share);
  model.stages = stages_, model.sharp = true;
  model.undecided = !undecided_.empty(), model.reason = undecided_;
  if (!model.undecided && !(rounded_ + arithmetic_).allFinite())
    model.undecided = true, model.reason = "sums: K u reaches 1 in the accumulator";
  return model;
}

}  // namespace attest
