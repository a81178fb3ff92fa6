#include "reference/metrics/running_bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/forms/forms.hpp"
#include "reference/metrics/running_stream.hpp"
#include "reference/numeric/parallel.hpp"
#include "reference/operators/hla2.hpp"

namespace attest {
namespace {

// Every rounding error multiplied by `scale`, and no underflow where it is not 1: as scale goes to 0 the error per
// scale becomes the part of first order.
class RunningArithmetic : public Arithmetic<Running> {
 public:
  RunningArithmetic(const Units& units, const Head<double>& head, bool round_output, double scale,
                    bool states)
      : units_(units),
        head_(head),
        round_output_(round_output),
        states_(states),
        scale_(scale),
        underflow_(scale == 1 ? 1 : 0) {
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
    const Array a_size = a_value.cwiseAbs(), b_size = b_value.cwiseAbs(), value = a_value * b_value;
    // What is exact adds nothing.
    Array error = b_error.isZero(0) ? Array(Array::Zero(a.rows(), b.cols())) : Array(a_size * b_error);
    if (!a_error.isZero(0)) error.noalias() += a_error * (b_size + b_error);
    error += scale_ * units_.gamma(a.cols()) * ((a_size + a_error) * (b_size + b_error));
    Matrix<Running> result(a.rows(), b.cols());
    const double lost = underflow_ * static_cast<double>(a.cols()) * units_.eta;
    for (Index i = 0; i < result.size(); ++i) result.data()[i] = {value.data()[i], error.data()[i] + lost};
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
    WorkingScope scope({scale_ * units_.sum, underflow_ * units_.eta, Running::working().exp_units, true});
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
    const double lost = underflow_ * static_cast<double>(weights.rows()) *
                        std::max(units_.eta, units_.contract.gate_sum.smallest_subnormal());
    for (Index t = 0; t < weights.rows(); ++t)
      for (Index s = 0; s <= t; ++s) {
        const double weight = weights(t, s);
        result(t, s) = {weight, scale_ * weight * relative(t, s) + (s < t && relative(t, s) > 0 ? lost : 0)};
      }
    return result;
  }
  bool wants_states() const override { return states_; }
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
      const double unit = exact ? 0 : std::max(read_, units_.input),
                   size = std::abs(entry.value) + entry.error;
      result.data()[i] = entry.error + scale_ * unit * size + lost(unit, size, format);
    }
    return result;
  }
  Matrix<Running> round(std::string_view label, const Format& format, double unit, Matrix<Running> x) {
    for (Index i = 0; i < x.size(); ++i) {
      Running& entry = x.data()[i];
      const double size = std::abs(entry.value) + entry.error;
      if (!(size <= format.max_finite() / 2) && undecided.empty())
        undecided = fmt::format("range: {} reaches {:.3g} in {}", label, size, format.name);
      entry.widen(scale_ * unit * size + lost(unit, size, format));
    }
    return x;
  }
  double lost(double unit, double size, const Format& format) const {
    return unit > 0 && size < 2 * format.smallest_normal() ? underflow_ * format.smallest_subnormal() : 0;
  }
  const Units& units_;
  const Head<double>& head_;
  bool round_output_, states_;
  double scale_, underflow_;
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

// Gates, decay and ridge with their errors, and the initial state.
Head<Running> running_scalars(const Head<double>& head, const Units& units, double scale) {
  Head<Running> result{{},
                       {},
                       {},
                       exact(head.alpha),
                       exact(head.log_gate),
                       exact(head.beta),
                       exact(head.level_scales),
                       Running(head.decay),
                       Running(head.ridge),
                       {}};
  const Gates<double> gates{&head.alpha, head.log_gate.empty() ? nullptr : &head.log_gate, 1, 1};
  const double eta = std::max(units.eta, units.contract.gate_sum.smallest_subnormal());
  const double underflow = scale == 1 ? eta : 0;
  const auto changes = [&](double x) { return round_to(units.contract.accumulate, x) != x; };
  for (std::size_t t = 0; t < head.alpha.size(); ++t) {
    Running& alpha = result.alpha[t];
    alpha.widen(scale * alpha.value * single_gate_error(units, gates, static_cast<Index>(t)));
    // exp(-800) is small, not 0; exp(-inf) and a gate given as 0 are
    const bool tiny = alpha.value == 0 && gates.log_gate && std::isfinite(head.log_gate[t]);
    if (tiny || changes(alpha.value)) alpha.widen(underflow);
  }
  for (Running* x : {&result.decay, &result.ridge})
    if (changes(x->value)) x->widen(scale * units.step * std::abs(x->value) + underflow);
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const auto& moment : moments) result.initial.moments[name].push_back(exact(moment));
  return result;
}

Head<Running> running_head(const Head<double>& head, const Units& units, double scale) {
  Head<Running> result = running_scalars(head, units, scale);
  result.q = exact(head.q), result.k = exact(head.k), result.v = exact(head.v);
  if (units.query > 0)
    for (Index i = 0; i < result.q.size(); ++i)
      if (Running& x = result.q.data()[i]; x.value != 0)
        x.widen(scale * units.query * std::abs(x.value) + (scale == 1 ? units.eta : 0));
  return result;
}

// Sums of absolute terms with every gate and decay but 0 taken as 1: (tokens, value_dim).
Matrix<double> ungated_sizes(const Operator& op, const Head<double>& head) {
  const auto sizes = [](const Matrix<double>& x) {
    Matrix<Magnitude> result(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) result.data()[i] = Magnitude(x.data()[i]);
    return result;
  };
  Head<Magnitude> result{sizes(head.q),
                         sizes(head.k),
                         sizes(head.v),
                         {},
                         {},
                         {},
                         sizes(head.level_scales),
                         Magnitude(head.decay == 0 ? 0 : 1),
                         Magnitude(head.ridge),
                         {}};
  for (std::size_t t = 0; t < head.alpha.size(); ++t) {
    const bool tiny = !head.log_gate.empty() && std::isfinite(head.log_gate[t]);
    result.alpha.emplace_back(head.alpha[t] == 0 && !tiny ? 0 : 1);
  }
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const auto& moment : moments) result.initial.moments[name].push_back(sizes(moment));
  const Evaluator<Magnitude>& evaluator = op;
  const Solution<Magnitude> solution = evaluator.evaluate(result, {Form::stream});
  Matrix<double> o(solution.o.rows(), solution.o.cols());
  for (Index i = 0; i < o.size(); ++i) o.data()[i] = solution.o.data()[i].value();
  return o;
}

// A form of sums over all tokens may make the weight of a pair first, exp(g_t - g_s) or gamma^(t - s), which underflows
// where the product of the operands one after another does not; up to three weights a term. Delta rules make none.
void add_underflow_of_weights(const Operator& op, const Head<double>& head, const Units& units,
                              Matrix<double>& error) {
  const Declaration& d = op.declaration();
  if (d.beta || (head.alpha.empty() && head.decay == 1)) return;
  const double eta = std::max(units.eta, units.contract.gate_sum.smallest_subnormal());
  const Matrix<double> sizes = ungated_sizes(op, head);
  for (Index i = 0; i < error.size(); ++i) error.data()[i] += 4 * eta * sizes.data()[i];
}

struct RunningResult {
  Matrix<double> error;
  std::string undecided;
};

RunningResult finished(RunningResult result) {
  for (Index i = 0; i < result.error.size(); ++i)
    if (!std::isfinite(result.error.data()[i]) && result.undecided.empty())
      result.undecided = "the running error has no finite bound";
  return result;
}

RunningResult of_solution(const Solution<Running>& solution, const RunningArithmetic& arithmetic) {
  RunningResult result{zeros<double>(solution.o.rows(), solution.o.cols()), arithmetic.undecided};
  for (Index i = 0; i < solution.o.size(); ++i) result.error.data()[i] = solution.o.data()[i].error;
  return result;
}

RunningResult run_form(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Units& units, bool round_output, double scale, bool states) {
  const double u = std::max(units.step, units.sum);
  const double exponential = 2 * units.contract.exp_ulp * units.contract.gate_sum.unit_roundoff() / u + 1;
  WorkingScope scope({scale * u, scale == 1 ? units.eta : 0, exponential, true});
  const auto lost = [&](const Format& format) { return scale == 1 ? format.smallest_subnormal() : 0; };
  const Contract& c = units.contract;
  if (how.form == Form::stream)
    if (const auto rows =
            running_stream(op.declaration(), how.algebra, head, running_scalars(head, units, scale),
                           {{c.state, scale * units.carry, lost(c.state)},
                            {c.output, scale * units.output, lost(c.output)},
                            scale * units.query,
                            round_output}))
      return finished({to_matrix(rows->error), rows->undecided});
  RunningArithmetic arithmetic(units, head, round_output, scale, states);
  const Evaluator<Running>& evaluator = op;
  const Solution<Running> solution = evaluator.evaluate(running_head(head, units, scale), how, arithmetic);
  RunningResult result = of_solution(solution, arithmetic);
  if (how.form == Form::direct && scale == 1) add_underflow_of_weights(op, head, units, result.error);
  return finished(std::move(result));
}

RunningResult run(const Operator& op, const Head<double>& head, const Evaluation& how, const Units& units,
                  bool round_output, double scale, bool states = true) {
  RunningResult result = run_form(op, head, how, units, round_output, scale, states);
  if (!may_be_outer(op.declaration(), how) || scale != 1) return result;
  const WorkingScope scope({std::max(units.step, units.sum), units.eta, 0, true});
  RunningArithmetic arithmetic(units, head, round_output, scale, states);
  const RunningResult outer =
      of_solution(stream<Hla2MaskedOuter>(arithmetic, running_head(head, units, scale)), arithmetic);
  for (Index i = 0; i < result.error.size(); ++i)
    result.error.data()[i] = std::max(result.error.data()[i], outer.error.data()[i]);
  if (result.undecided.empty()) result.undecided = outer.undecided;
  return finished(std::move(result));
}

}  // namespace

ErrorModel running_error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                               const Units& units, bool round_output) {
  const RunningResult result = run(op, head, how, units, round_output, 1);
  ErrorModel model;
  model.deterministic = model.accumulation = result.error;
  model.variance = zeros<double>(result.error.rows(), result.error.cols());
  model.undecided = !result.undecided.empty(), model.reason = result.undecided;
  return model;
}

// E(u) has no negative coefficient. E(s u) / s is its linear part, s E_2 too large; 2^-40 covers the rounding of the sums
// of non-negative numbers that both are.
Matrix<double> running_remainder(const Operator& op, const Head<double>& head, const Evaluation& how,
                                 const Units& units, bool round_output, int threads) {
  constexpr double scale = 0x1p-30, sums = 0x1p-40;
  RunningResult all, linear;
  for_each_parallel(2, threads, [&](Index i) {
    (i == 0 ? all : linear) = run(op, head, how, units, round_output, i == 0 ? 1 : scale, false);
  });
  Matrix<double> rest = all.error;
  for (Index i = 0; i < rest.size(); ++i) {
    const double first = linear.error.data()[i] / scale;
    rest.data()[i] = (1 + 2 * scale) * std::max(0.0, all.error.data()[i] - first) + sums * first;
    if (!(all.error.data()[i] < std::numeric_limits<double>::infinity()))
      rest.data()[i] = all.error.data()[i];
  }
  return rest;
}

}  // namespace attest
