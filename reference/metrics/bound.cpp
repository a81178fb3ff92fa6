#include "reference/metrics/bound.hpp"

#include <algorithm>
#include <cmath>

#include "reference/metrics/running_bound.hpp"
#include "reference/operators/common/error_forms.hpp"

namespace attest {
namespace {

std::optional<ErrorModel> sharp_model(const FormError& form, Form kind) {
  const std::string& name = form.declaration.name;
  if (name == "softmax") return softmax_error(form);
  const bool composed = name.starts_with("hla") || name == "ahla";
  if (kind == Form::stream && !composed) return recurrence_stream_error(form);
  if (kind == Form::scan && !composed) return recurrence_scan_error(form);
  if (kind != Form::chunk) return std::nullopt;
  if (composed) return hla_chunk_error(form);
  if (name == "linear" || name == "retention" || name == "mamba2") return first_order_chunk_error(form);
  if (name == "delta" || name == "gated_delta") return delta_chunk_error(form);
  if (name == "log_linear" || name == "log_linear_mamba2") return log_linear_chunk_error(form);
  if (name == "log_linear_gated_delta") return log_linear_delta_chunk_error(form);
  return std::nullopt;
}

bool is_finite(const Head<double>& head) {
  const auto finite = [](const auto& matrix) {
    return std::all_of(matrix.data(), matrix.data() + matrix.size(),
                       [](double x) { return std::isfinite(x); });
  };
  return finite(head.q) && finite(head.k) && finite(head.v) && finite(head.alpha) && finite(head.beta) &&
         finite(head.level_scales);
}

// The ratio of every column but the last to the last one plus epsilon.
class Ratio {
 public:
  Ratio(const ErrorModel& raw, const Matrix<double>& values, double epsilon, const Units& units)
      : raw_(raw), values_(values), epsilon_(epsilon), units_(units) {}

  ErrorModel model() {
    ErrorModel result = raw_;
    result.deterministic = result.accumulation = result.variance = zeros<double>(values_.rows(), last());
    const double step = units_.step, output = units_.output;
    each([&](Index t, Index c, double o, double room) {
      const double add = step * std::abs(denominator(t)) * (epsilon_ == 0 ? 0 : 1), size = std::abs(o);
      const auto share = [&](const Matrix<double>& error, double more) {
        return (error(t, c) + size * (error(t, last()) + more)) / room;
      };
      const double eta = units_.eta + units_.contract.output.smallest_subnormal();
      const double arithmetic = share(raw_.accumulation, add) + step * size + eta;
      result.deterministic(t, c) = share(raw_.deterministic, add) * (1 + step) * (1 + output) +
                                   (step + output + step * output) * size + eta;
      result.accumulation(t, c) = arithmetic * (1 + output) + output * step * size;
      const double spread =
          (std::sqrt(raw_.variance(t, c)) + size * std::sqrt(raw_.variance(t, last()))) / room;
      result.variance(t, c) = (spread * spread + output * output * size * size) * (1 + output) * (1 + output);
    });
    for (auto& [label, share] : result.shares) {
      Matrix<double> divided = zeros<double>(values_.rows(), last());
      each([&](Index t, Index c, double o, double room) {
        divided(t, c) = (share(t, c) + std::abs(o) * share(t, last())) / room;
      });
      share = divided;
    }
    if (output > 0) {
      Matrix<double> share = zeros<double>(values_.rows(), last());
      each([&](Index t, Index c, double o, double) { share(t, c) = output * std::abs(o); });
      result.shares["output"] = share, ++result.stages;
    }
    if (!result.undecided && ill_conditioned_)
      result.undecided = true, result.reason = "conditioning: the error of a denominator reaches its size";
    return result;
  }

 private:
  Index last() const { return values_.cols() - 1; }
  double denominator(Index t) const { return values_(t, last()) + epsilon_; }
  template <class F>
  void each(F&& f) {
    for (Index t = 0; t < values_.rows(); ++t) {
      const double error =
          raw_.deterministic(t, last()) + units_.step * std::abs(denominator(t)) * (epsilon_ == 0 ? 0 : 1);
      const double room = std::abs(denominator(t)) - error;
      if (!(room > 0)) ill_conditioned_ = true;
      for (Index c = 0; c < last(); ++c) f(t, c, values_(t, c) / denominator(t), room > 0 ? room : 0);
    }
  }
  const ErrorModel& raw_;
  const Matrix<double>& values_;
  double epsilon_;
  const Units& units_;
  bool ill_conditioned_ = false;
};

// The largest absolute value, at least 1.
template <class Range>
double largest(const Range& entries, Index count) {
  double most = 1;
  for (Index i = 0; i < count; ++i) most = std::max(most, std::abs(entries.data()[i]));
  return most;
}

// Underflow, a priori: every stage entry and product may be off by a few subnormals eta, seen through at most n d
// factors of the largest inputs. Of no weight on ordinary data; where it reaches the result, nothing can be claimed.
// Formats with a narrow range (fp16, fp8) are charged stage by stage instead (size_of).
// NOT PROVED: the factor 8 and the exponent of n d are an estimate of order, to be replaced by a derivation. The term
// can only widen a bound: it may cost power, and it may still be too small for a correct kernel.
double underflow_term(const Declaration& d, const Head<double>& head, const Contract& c) {
  double eta = 0;
  for (const Format* format : {&c.product, &c.accumulate, &c.intermediate, &c.state, &c.gate_sum})
    if (format->emin <= fp32.emin) eta = std::max(eta, format->smallest_subnormal());
  const double extent = static_cast<double>(head.tokens() * std::max(head.q.cols(), head.v.cols()));
  const int degree_q = std::max(1, d.degree_q), degree_k = d.beta ? 2 : std::max(1, d.degree_k);
  return 8 * eta * extent * extent * std::pow(largest(head.q, head.q.size()), degree_q) *
         std::pow(largest(head.k, head.k.size()), degree_k) * largest(head.v, head.v.size()) *
         (d.level_scales ? largest(head.level_scales, head.level_scales.size()) : 1) *
         (d.beta ? largest(head.beta, head.tokens()) : 1);
}

// Second order of the delta rules: a state that a key annihilates leaves no first-order trace, but the product of
// two roundings of it stays. (8 u)^2 sum_a |q_ta| max_{s<=t} |S_s| by columns, S the state so far (values included).
// NOT PROVED: the 8 stands for the roundings on a path and the largest entry for the sum over tokens; an estimate of
// order, to be replaced by a derivation. It can only widen a bound.
void add_second_order(const Declaration& d, const Head<double>& head, const Contract& c, ErrorModel& model) {
  if (!d.beta) return;
  const double u = 8 * std::max({c.product.unit_roundoff(), c.intermediate.unit_roundoff(), c.state.unit_roundoff(),
                                 c.accumulate.unit_roundoff()});
  const double scale = d.level_scales ? largest(head.level_scales, head.level_scales.size()) : 1;
  Matrix<double> state = initial_moment(head, "S", head.q.cols(), head.v.cols());
  std::vector<double> peak(static_cast<std::size_t>(head.v.cols()), 0);
  for (Index t = 0; t < head.tokens(); ++t) {
    const double alpha = d.gates ? head.alpha[static_cast<std::size_t>(t)] : 1, beta = head.beta[static_cast<std::size_t>(t)];
    double reach = 0;
    for (Index a = 0; a < head.q.cols(); ++a) reach += std::abs(head.q(t, a));
    for (Index col = 0; col < head.v.cols(); ++col) {
      double read = 0;
      for (Index a = 0; a < head.k.cols(); ++a) read += head.k(t, a) * state(a, col);
      double& most = peak[static_cast<std::size_t>(col)];
      most = std::max(most, std::abs(beta * head.v(t, col)));
      for (Index a = 0; a < head.k.cols(); ++a) {
        most = std::max(most, std::abs(state(a, col)));
        state(a, col) = alpha * (state(a, col) - beta * head.k(t, a) * read) + beta * head.k(t, a) * head.v(t, col);
        most = std::max(most, std::abs(state(a, col)));
      }
      const double term = u * u * scale * reach * most;
      model.deterministic(t, col) += term;
      model.accumulation(t, col) += term;
    }
  }
}

void add_beyond_first_order(const Declaration& d, const Head<double>& head, const Contract& c, ErrorModel& model) {
  const double underflow = underflow_term(d, head, c);
  for (Index i = 0; i < model.deterministic.size(); ++i) {
    model.deterministic.data()[i] += underflow;
    model.accumulation.data()[i] += underflow;
  }
  add_second_order(d, head, c, model);
}

double coarsest_unit(const Contract& c) {
  return std::max({c.product.unit_roundoff(), c.intermediate.unit_roundoff(), c.state.unit_roundoff(),
                   c.output.unit_roundoff()});
}

}  // namespace

ErrorModel first_order_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                             const Contract& contract, bool rounds_output) {
  const Units units(contract);
  const bool finite = is_finite(head);
  if (!finite || head.tokens() == 0) {
    ErrorModel model;
    model.deterministic = model.accumulation = model.variance = zeros<double>(head.tokens(), head.v.cols());
    model.undecided = !finite, model.reason = finite ? "" : "no error model: an input is not finite";
    return model;
  }
  const UnderflowScope narrow(contract);
  const FormError form{op.declaration(), head, units, how.algebra, how.chunk, rounds_output};
  std::optional<ErrorModel> model = sharp_model(form, how.form);
  return model ? *model : running_error_model(op, head, how, units, rounds_output);
}

ErrorModel error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Contract& contract, const Normaliser& normaliser) {
  ErrorModel model = first_order_model(op, head, how, contract, !normaliser.divide);
  const bool estimated = head.tokens() > 0 && is_finite(head);
  if (estimated) add_beyond_first_order(op.declaration(), head, contract, model);
  if (!normaliser.divide) return model;
  if (!estimated) {
    model.deterministic = model.accumulation = model.variance = zeros<double>(head.tokens(), head.v.cols() - 1);
    return model;
  }
  const Units units(contract);
  const Evaluator<double>& evaluator = op;
  return Ratio(model, evaluator.evaluate(head, how).o, normaliser.epsilon, units).model();
}

Matrix<double> passing_bound(const ErrorModel& model, const Contract& contract, Index compared,
                             bool statistical) {
  Matrix<double> bound = model.deterministic;
  if (!statistical || model.stages == 0) return bound;
  const double events =
      2.0 * static_cast<double>(std::max<Index>(compared, 1)) * static_cast<double>(model.stages);
  const double lambda = std::sqrt(2 * std::log(events / 1e-9)) / (1 - coarsest_unit(contract));
  for (Index i = 0; i < bound.size(); ++i) {
    const double likely = model.accumulation.data()[i] + lambda * std::sqrt(model.variance.data()[i]);
    if (likely < bound.data()[i]) bound.data()[i] = likely;
  }
  return bound;
}

}  // namespace attest
