#include "reference/metrics/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/metrics/remainder.hpp"
#include "reference/metrics/running_bound.hpp"
#include "reference/operators/common/error_forms.hpp"

namespace attest {
namespace {

bool is_composed(const std::string& name) { return name.starts_with("hla") || name == "ahla"; }

std::optional<ErrorModel> sharp_model(const FormError& form, Form kind) {
  const std::string& name = form.declaration.name;
  if (name == "softmax") return softmax_error(form);
  const bool composed = is_composed(name);
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

Matrix<double> chosen(const Matrix<double>& rows, const RowSet& wanted) {
  return wanted.all() ? rows : to_matrix(wanted.pick(to_array(rows)));
}

ErrorModel of_rows(ErrorModel model, const RowSet& wanted) {
  for (Matrix<double>* part : {&model.deterministic, &model.accumulation, &model.variance})
    *part = chosen(*part, wanted);
  return model;
}

// One exponent of room: the kernel's own value is not the exact one.
void check_range(const char* what, const Format& format, double size, ErrorModel& model) {
  if (!model.undecided && !(size <= format.max_finite() / 2))
    model.undecided = true,
    model.reason = fmt::format("range: {} reaches {:.3g} in {}", what, size, format.name);
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
      each([&, &share = share](Index t, Index c, double o, double room) {
        divided(t, c) = (share(t, c) + std::abs(o) * share(t, last())) / room;
      });
      share = divided;
    }
    if (output > 0) {
      Matrix<double> share = zeros<double>(values_.rows(), last());
      each([&](Index t, Index c, double o, double) { share(t, c) = output * std::abs(o); });
      result.shares["output"] = share, ++result.stages;
    }
    double most = 0, below = 0;
    each([&](Index t, Index, double o, double) {
      most = std::max(most, std::abs(o)), below = std::max(below, std::abs(denominator(t)));
    });
    if (!ill_conditioned_) {
      check_range("quotient", units_.contract.output, most, result);
      check_range("quotient", units_.contract.accumulate, most, result);
      check_range("denominator", units_.contract.accumulate, std::max(below, std::abs(epsilon_)), result);
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

double largest(const Matrix<double>& x) {
  double most = 1;
  for (Index i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x.data()[i]));
  return most;
}

// Sums of products of any order on the way, by the sizes of the inputs alone: coarse, and far from the range of fp32 on
// ordinary data. The delta rules, whose state may shrink, look at what a token writes and at their stages; softmax at its
// stages.
void check_partial_sums(const Declaration& d, const Head<double>& head, const Contract& c,
                        ErrorModel& model) {
  if (!d.exact) return;
  if (d.beta) return check_range("k v^T", c.accumulate, largest(head.k) * largest(head.v), model);
  const int degree_q = std::max(1, d.degree_q), degree_k = std::max(1, d.degree_k);
  double state = 1;
  for (const auto& [name, moments] : head.initial.moments)
    for (const Matrix<double>& moment : moments) state = std::max(state, 1 + largest(moment));
  const double extent = static_cast<double>(head.tokens() * std::max(head.q.cols(), head.v.cols()));
  const double sizes = std::pow(extent * largest(head.q) * state, degree_q) *
                       std::pow(largest(head.k), degree_k) * largest(head.v) * (1 + std::abs(head.ridge)) *
                       (d.level_scales ? largest(head.level_scales) : 1);
  check_range("partial sums", c.accumulate, sizes, model);
}

// Whether the scale costs anything: not where every scaled entry is in the formats that it meets.
bool is_inexact(const Matrix<double>& q, const Contract& c) {
  if (c.accumulate == fp64) return true;
  return std::any_of(q.data(), q.data() + q.size(),
                     [&](double x) { return round_to(c.product, x) != x || round_to(c.accumulate, x) != x; });
}

void add(ErrorModel& model, const Matrix<double>& remainder) {
  for (Index i = 0; i < remainder.size(); ++i) {
    if (!std::isfinite(remainder.data()[i]) && !model.undecided)
      model.undecided = true,
      model.reason = "second order: the products of rounding errors have no finite bound";
    model.deterministic.data()[i] += remainder.data()[i];
    model.accumulation.data()[i] += remainder.data()[i];
  }
}

double coarsest_unit(const Contract& c) {
  return std::max({c.product.unit_roundoff(), c.intermediate.unit_roundoff(), c.state.unit_roundoff(),
                   c.output.unit_roundoff()});
}

ErrorModel stages_of(const Operator& op, const Head<double>& head, const Evaluation& how,
                     const Contract& contract, bool rounds_output, bool scaled,
                     const std::vector<Index>* rows, int threads, bool any_association) {
  const bool finite = is_finite(head);
  const RowSet wanted(head.tokens(), rows);
  if (!finite || head.tokens() == 0) {
    ErrorModel model;
    model.deterministic = model.accumulation = model.variance = zeros<double>(wanted.count(), head.v.cols());
    model.undecided = !finite, model.reason = finite ? "" : "no error model: an input is not finite";
    return model;
  }
  const Units units(contract, scaled && is_inexact(head.q, contract));
  const FormError form{op.declaration(), head, units,   how.algebra,    how.chunk,
                       rounds_output,    rows, threads, any_association};
  std::optional<ErrorModel> sharp = sharp_model(form, how.form);
  ErrorModel model =
      sharp ? *std::move(sharp) : of_rows(running_error_model(op, head, how, units, rounds_output), wanted);
  check_partial_sums(op.declaration(), head, contract, model);
  if (scaled) check_range("scaled q", contract.product, largest(head.q), model);
  for (const auto& [name, field] : {std::pair("q", &head.q), {"k", &head.k}, {"v", &head.v}})
    if (contract.product.emax < contract.input.emax)
      check_range(name, contract.product, largest(*field), model);
  return model;
}

ErrorModel model_of_form(const Operator& op, const Head<double>& head, const Evaluation& how,
                         const Contract& contract, const Normaliser& normaliser,
                         const std::vector<Index>* rows, int threads) {
  const RowSet wanted(head.tokens(), rows);
  ErrorModel model =
      stages_of(op, head, how, contract, !normaliser.divide, normaliser.scaled, rows, threads, true);
  const Units units(contract, normaliser.scaled && is_inexact(head.q, contract));
  if (model.sharp && !model.undecided) {
    const FormError form{op.declaration(),   head,    units,  how.algebra, how.chunk,
                         !normaliser.divide, nullptr, threads};
    add(model, chosen(remainder_bound(op, form, how), wanted));
  }
  if (!normaliser.divide) return model;
  if (head.tokens() == 0 || !is_finite(head)) {
    model.deterministic = model.accumulation = model.variance =
        zeros<double>(wanted.count(), head.v.cols() - 1);
    return model;
  }
  const Evaluator<double>& evaluator = op;
  const Matrix<double> values = chosen(evaluator.evaluate(head, how).o, wanted);
  return Ratio(model, values, normaliser.epsilon, units).model();
}

// Whether anything is coarser than the sums, or weights come from sums of gates over the whole sequence.
bool rounds_between(const Contract& c) {
  return coarsest_unit(c) > c.accumulate.unit_roundoff() || c.gate_scope == GateScope::global;
}

ErrorModel larger(ErrorModel a, const ErrorModel& b) {
  if (b.undecided && !a.undecided) a.undecided = true, a.reason = b.reason;
  const auto take = [](Matrix<double>& x, const Matrix<double>& y) {
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = std::max(x.data()[i], y.data()[i]);
  };
  take(a.deterministic, b.deterministic), take(a.accumulation, b.accumulation), take(a.variance, b.variance);
  a.stages = std::max(a.stages, b.stages);
  return a;
}

}  // namespace

bool is_finite(const Head<double>& head) {
  const auto finite = [](const auto& entries) {
    return std::all_of(entries.data(), entries.data() + entries.size(),
                       [](double x) { return std::isfinite(x); });
  };
  for (const auto& [name, moments] : head.initial.moments)
    if (!std::ranges::all_of(moments, finite)) return false;
  return finite(head.q) && finite(head.k) && finite(head.v) && finite(head.alpha) && finite(head.beta) &&
         finite(head.level_scales);
}

ErrorModel first_order_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                             const Contract& contract, bool rounds_output, bool scaled,
                             const std::vector<Index>* rows, int threads) {
  return stages_of(op, head, how, contract, rounds_output, scaled, rows, threads, false);
}

ErrorModel error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Contract& contract, const Normaliser& normaliser, const std::vector<Index>* rows,
                       int threads) {
  ErrorModel model = model_of_form(op, head, how, contract, normaliser, rows, threads);
  const auto whole = single_chunk(op.declaration(), head, how, contract);
  return whole
             ? larger(std::move(model), model_of_form(op, head, *whole, contract, normaliser, rows, threads))
             : model;
}

std::optional<Evaluation> single_chunk(const Declaration& d, const Head<double>& head, const Evaluation& how,
                                       const Contract& contract) {
  const bool has_chunk = std::find(d.forms.begin(), d.forms.end(), Form::chunk) != d.forms.end() &&
                         (d.decayed_scan || head.decay == 1);
  if (how.form != Form::direct || !has_chunk || !rounds_between(contract)) return std::nullopt;
  return Evaluation{Form::chunk, std::max<Index>(1, head.tokens()), how.algebra};
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
