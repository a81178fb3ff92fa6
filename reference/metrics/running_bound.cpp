#include "reference/metrics/running_bound.hpp"

#include <fmt/format.h>

#include <cmath>

namespace attest {
namespace {

// Holds the working precision of Running while it lives.
class WorkingScope {
 public:
  explicit WorkingScope(const Running::Working& working) : saved_(Running::working()) {
    Running::working() = working;
  }
  ~WorkingScope() { Running::working() = saved_; }
  WorkingScope(const WorkingScope&) = delete;
  WorkingScope& operator=(const WorkingScope&) = delete;

 private:
  Running::Working saved_;
};

class RunningArithmetic : public Arithmetic<Running> {
 public:
  RunningArithmetic(const Units& units, const Head<double>& head, bool round_output)
      : units_(units), head_(head), round_output_(round_output) {
    const Format& scalar = units.contract.accumulate.precision > fp32.precision ? fp64 : fp32;
    const Format& stored =
        units.contract.intermediate.precision < scalar.precision ? units.contract.intermediate : scalar;
    store_ = units.contract.intermediate == stored ? stored.unit_roundoff() : 0;
    if (units.contract.intermediate.precision >= scalar.precision) store_ = 0;
    if (units.contract.product.precision < stored.precision || units.contract.product.emax < stored.emax)
      read_ = units.contract.product.unit_roundoff();
  }

  Matrix<Running> product(const Matrix<Running>& a, const Matrix<Running>& b) override {
    const Array a_value = values(a), b_value = values(b), a_error = read_errors(a), b_error = read_errors(b);
    const Array a_size = a_value.cwiseAbs(), b_size = b_value.cwiseAbs();
    const Array value = a_value * b_value;
    Array error = a_size * b_error + a_error * (b_size + b_error);
    error += units_.gamma(a.cols()) * ((a_size + a_error) * (b_size + b_error));
    Matrix<Running> result(a.rows(), b.cols());
    for (Index i = 0; i < result.size(); ++i)
      result.data()[i] = {value.data()[i], error.data()[i] + static_cast<double>(a.cols()) * units_.eta};
    return result;
  }
  Matrix<Running> operand(std::string_view label, Matrix<Running> x) override {
    return round(label, units_.contract.intermediate, store_, std::move(x));
  }
  Matrix<Running> carry(std::string_view label, Matrix<Running> x) override {
    return round(label, units_.contract.state, units_.carry, std::move(x));
  }
  Matrix<Running> output(Matrix<Running> x) override {
    return round_output_ ? round("output", units_.contract.output, units_.output, std::move(x)) : x;
  }
  Matrix<Running> inverse(std::string_view label, const Matrix<Running>& n) override {
    WorkingScope scope({units_.sum, units_.eta, Running::working().exp_units});
    if (units_.contract.inverse == InverseMethod::powers) undecided = "no error model: inverse=powers";
    return Arithmetic<Running>::inverse(label, n);
  }
  Matrix<Running> decay(const Gates<Running>& gates, Index first, Index last) override {
    const Gates<double> exact{gates.alpha ? &head_.alpha : nullptr,
                              gates.log_gate ? &head_.log_gate : nullptr, gates.gamma.value, gates.power};
    const Matrix<double> weights = Arithmetic<double>().decay(exact, first, last);
    const Array relative = gate_error(units_, exact, first, last);
    if (relative.size() > 0 && !(relative.maxCoeff() <= 0.5))
      undecided = "gates: the relative error of a weight may exceed one half";
    Matrix<Running> result(weights.rows(), weights.cols());
    for (Index i = 0; i < weights.size(); ++i)
      result.data()[i] = {weights.data()[i], weights.data()[i] * relative.data()[i]};
    return result;
  }
  std::string undecided;

 private:
  static Array values(const Matrix<Running>& x) {
    Array result(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) result.data()[i] = x.data()[i].value;
    return result;
  }
  // The errors of operands as the product reads them. What has no error is an input: exact if the format
  // holds it.
  Array read_errors(const Matrix<Running>& x) const {
    const Format& format = units_.contract.product;
    Array result(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) {
      const Running& entry = x.data()[i];
      const bool exact =
          entry.error == 0 && (units_.input == 0 || round_to(format, entry.value) == entry.value);
      result.data()[i] =
          entry.error + (exact ? 0 : std::max(read_, units_.input) * (std::abs(entry.value) + entry.error));
    }
    return result;
  }
  Matrix<Running> round(std::string_view label, const Format& format, double unit, Matrix<Running> x) {
    for (Index i = 0; i < x.size(); ++i) {
      Running& entry = x.data()[i];
      const double size = std::abs(entry.value) + entry.error;
      if (!(size <= format.max_finite() / 2) && undecided.empty())
        undecided = fmt::format("range: {} reaches {:.3g} in {}", label, size, format.name);
      if (unit == 0 || size == 0) continue;
      entry.error += unit * size;
      if (size < 2 * format.smallest_normal()) entry.error += format.smallest_subnormal();
    }
    return x;
  }
  const Units& units_;
  const Head<double>& head_;
  bool round_output_;
  double store_ = 0, read_ = 0;
};

Matrix<Running> exact(const Matrix<double>& x) {
  Matrix<Running> result(x.rows(), x.cols());
  for (Index i = 0; i < x.size(); ++i) result.data()[i] = Running(x.data()[i]);
  return result;
}

std::vector<Running> exact(const std::vector<double>& x) {
  std::vector<Running> result;
  for (const double entry : x) result.emplace_back(entry);
  return result;
}

Head<Running> running_head(const Head<double>& head, const Units& units) {
  Head<Running> result{exact(head.q),
                       exact(head.k),
                       exact(head.v),
                       exact(head.alpha),
                       exact(head.log_gate),
                       exact(head.beta),
                       exact(head.level_scales),
                       Running(head.decay),
                       Running(head.ridge),
                       {}};
  const Gates<double> gates{&head.alpha, head.log_gate.empty() ? nullptr : &head.log_gate, 1, 1};
  for (std::size_t t = 0; t < head.alpha.size(); ++t)
    result.alpha[t].error = head.alpha[t] * single_gate_error(units, gates, static_cast<Index>(t));
  const auto conversion = [&](Running& x) {
    if (round_to(units.contract.accumulate, x.value) != x.value) x.error = units.step * std::abs(x.value);
  };
  conversion(result.decay), conversion(result.ridge);
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const auto& moment : moments) result.initial.moments[name].push_back(exact(moment));
  return result;
}

}  // namespace

ErrorModel running_error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                               const Units& units, bool round_output) {
  const double exponential =
      2 * units.contract.exp_ulp * units.contract.gate_sum.unit_roundoff() / units.step + 1;
  WorkingScope scope({units.step, units.eta, exponential});
  RunningArithmetic arithmetic(units, head, round_output);
  const Evaluator<Running>& evaluator = op;
  const Solution<Running> solution = evaluator.evaluate(running_head(head, units), how, arithmetic);
  ErrorModel model;
  model.deterministic = model.variance = zeros<double>(solution.o.rows(), solution.o.cols());
  bool finite = true;
  for (Index i = 0; i < solution.o.size(); ++i) {
    model.deterministic.data()[i] = solution.o.data()[i].error;
    finite = finite && std::isfinite(solution.o.data()[i].error);
  }
  model.accumulation = model.deterministic;
  model.undecided = !arithmetic.undecided.empty() || !finite;
  model.reason = !arithmetic.undecided.empty() ? arithmetic.undecided
                 : finite                      ? ""
                                               : "the running error has no finite bound";
  return model;
}

}  // namespace attest
