#include "gpu_checks/battery/call.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <deque>

#include "gpu_checks/battery/coverage.hpp"
#include "gpu_checks/battery/double_truth.hpp"
#include "gpu_checks/battery/state_bound.hpp"
#include "reference/forms/batch.hpp"
#include "reference/metrics/bound.hpp"

namespace attest {
namespace {

thread_local Spent spent;

// Adds the time until the end of the scope.
class Timed {
 public:
  explicit Timed(std::int64_t& total) : total_(total) {}
  ~Timed() { total_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::int64_t& total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

KernelResult timed_call(const Kernel& kernel, const Problem& problem) {
  const Timed timed(spent.call_ns);
  return kernel.run(problem);
}

struct Bounds {
  std::map<std::string, std::vector<double>> deterministic, passing;  // by tensor, flat
  std::map<std::string, std::string> undecided;                       // by tensor
};

void state_bounds(const BatteryContext& context, const Problem& problem, Bounds& bounds) {
  const Declaration& declaration = context.declaration();
  const auto shapes = output_shapes(problem, declaration);
  for (const auto& [name, shape] : shapes)
    if (name != "o") bounds.deterministic[name].assign(static_cast<std::size_t>(element_count(shape)), 0.0);
  const Index levels = final_levels(problem, declaration);
  for (const Slot& slot : slots(problem)) {
    const StateBound bound = state_bound(context.op, head_of<double>(problem, declaration, slot),
                                         context.kernel.how, context.kernel.contract);
    Solution<double> errors;
    errors.final.moments = bound.error;
    visit_outputs(problem, declaration, slot, errors, levels,
                  [&](const std::string& name, Index flat, double error) {
                    bounds.deterministic.at(name)[static_cast<std::size_t>(flat)] = error;
                  });
    if (!bound.undecided.empty())
      for (const auto& [name, shape] : shapes)
        if (name != "o") bounds.undecided[name] = bound.undecided;
  }
}

Bounds bounds_of(const BatteryContext& context, const Problem& problem, bool statistical, bool states) {
  const Timed timed(spent.bound_ns);
  Bounds bounds;
  const Index count = problem.batch * problem.tokens * problem.heads * problem.value_dim;
  auto &all = bounds.deterministic["o"], &passing = bounds.passing["o"];
  all.assign(static_cast<std::size_t>(count), 0.0), passing = all;
  const bool scaled = problem.options.scale.value_or(context.declaration().unit_scale ? 1 : 0) != 1;
  const Normaliser normaliser{problem.options.normalize, nearest_double(problem.options.epsilon), scaled};
  for (const Slot& slot : slots(problem)) {
    if (slot.last == slot.first) continue;
    const Head<double> head = head_of<double>(problem, context.declaration(), slot);
    const ErrorModel model =
        error_model(context.op, head, context.kernel.how, context.kernel.contract, normaliser);
    if (model.undecided) bounds.undecided["o"] = model.reason;
    const Matrix<double> narrow = passing_bound(model, context.kernel.contract, count, statistical);
    for (Index t = 0; t < model.deterministic.rows(); ++t)
      for (Index c = 0; c < problem.value_dim; ++c) {
        const auto at = static_cast<std::size_t>(
            ((slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head) * problem.value_dim +
            c);
        all[at] = model.deterministic(t, c), passing[at] = narrow(t, c);
      }
  }
  if (states) state_bounds(context, problem, bounds);
  return bounds;
}

constexpr double power_margin = 0.25, largest_radius = power_of_two(-10);

void judge_tensor(const Problem& problem, const std::string& name, const Tensor& got,
                  const OracleTensor& truth, const std::vector<double>& bound,
                  const std::vector<double>& passing, Findings& findings) {
  std::vector<double> error(bound.size()), limit = bound;
  Index powerful = 0, unresolved = 0, count = 0, beyond = 0;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (!std::isfinite(truth.value[i])) {
      error[i] = 0;  // NaN containment is another check
      continue;
    }
    const bool zero = truth.value[i] == 0;  // judged, but a quarter of nothing is no power
    if (!zero) ++count;
    error[i] = std::abs((got.data[i] - truth.value[i]) - truth.low[i]);
    if (!zero && bound[i] < power_margin * std::abs(truth.value[i])) ++powerful;
    if (!(truth.radius[i] <= largest_radius * passing[i]) && truth.radius[i] > 0) {
      ++unresolved;
      limit[i] += truth.radius[i];
    }
    if (!(error[i] <= limit[i])) ++beyond;
  }
  const bool claims = unresolved == 0 && 2 * powerful >= count && count > 0;
  if (beyond == 0 && !claims)
    return findings.leave_out(unresolved > 0
                                  ? "the oracle's radius is not far below the bound"
                                  : "no power: the bound is below a quarter of the value on " +
                                        std::to_string(100 * powerful / std::max<Index>(count, 1)) +
                                        " % of the elements of " + name);
  findings.within(problem, name, got, truth.value, error, limit, passing);
}

void judge_or_leave_out(const Problem& problem, const std::string& name, const Tensor& got,
                        const OracleTensor& truth, const Bounds& bounds, Findings& findings) {
  if (const auto why = bounds.undecided.find(name); why != bounds.undecided.end())
    return findings.leave_out(why->second);
  const std::vector<double>& bound = bounds.deterministic.at(name);
  judge_tensor(problem, name, got, truth, bound, name == "o" ? bounds.passing.at("o") : bound, findings);
}

// Whether every radius is far below the bound.
bool is_sharp(const OracleTensor& truth, const std::vector<double>& bound) {
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (!(truth.radius[i] <= largest_radius * bound[i]) && truth.radius[i] > 0) return false;
  return true;
}

std::shared_ptr<const KeptOracle> timed_truth(const Operator& op, const Problem& problem,
                                              const OracleRequest& request) {
  const Timed timed(spent.oracle_ns);
  return oracle_cache().get(op, problem, request);
}

}  // namespace

std::string short_text(const Case& shape) {
  const std::string text = to_text(shape);
  return text.substr(text.find("T="));
}

bool has_no_decay(const BatteryContext& context) {
  const Form form = context.kernel.how.form;
  return !context.declaration().decayed_scan && (form == Form::scan || form == Form::chunk);
}

Case fitted(const BatteryContext& context, Case shape) {
  shape.op = context.declaration().name, shape.variant = context.declaration().variant;
  if (!context.has("grouped")) shape.heads_q = shape.heads_k = shape.heads_v = 0;
  if (!context.has("varlen")) shape.packed.clear();
  if (has_no_decay(context)) shape.options.decay = Rational(1);
  if (context.kernel.without_decay && context.declaration().decay) shape.options.decay = Rational(1);
  shape.key_dim = drawn_within(context.kernel.limits, "d", shape.key_dim);
  shape.value_dim = drawn_within(context.kernel.limits, "dv", shape.value_dim);
  return shape;
}

Problem drawn(const BatteryContext& context, Case shape) {
  return round_inputs(context.kernel.contract,
                      draw_problem(fitted(context, std::move(shape)), context.declaration()));
}

std::optional<Tensors> call(const BatteryContext& context, const Problem& problem, Findings& findings) {
  KernelResult result = timed_call(context.kernel, problem);
  spent.kernel_ns += result.nanoseconds;
  if (result.status == KernelStatus::unsupported) return findings.refuse(result.message), std::nullopt;
  if (result.status == KernelStatus::failed)
    return findings.fault("the kernel failed: " + result.message), std::nullopt;
  spent.ran_with |= beyond_defaults(problem);
  Tensors outputs;
  auto shapes = output_shapes(problem, context.declaration());
  if (gives_gradients(context.kernel, problem)) shapes.merge(gradient_shapes(problem));
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with("final_state.") && !context.has("final_state")) continue;
    const auto found = result.outputs.find(name);
    if (found == result.outputs.end())
      return findings.fault("the output " + name + " is missing"), std::nullopt;
    if (found->second.shape != shape || element_count(shape) != static_cast<Index>(found->second.data.size()))
      return findings.fault("the output " + name + " has another shape than the operator's"), std::nullopt;
    outputs[name] = std::move(found->second);
  }
  return outputs;
}

std::shared_ptr<const KeptOracle> truth_of(const Operator& op, const Problem& problem) {
  OracleRequest request;
  request.magnitude = false, request.threads = 1;
  return timed_truth(op, problem, request);
}

Spent& spent_on_this_thread() { return spent; }

void judge_outputs(const BatteryContext& context, const Problem& problem, const Tensors& outputs,
                   bool statistical, Findings& findings) {
  const auto truth = truth_of(context.op, problem);
  const Bounds bounds = bounds_of(context, problem, statistical, outputs.size() > 1);
  for (const auto& [name, got] : outputs) {
    if (got.data.empty()) continue;
    if (const auto found = truth->result.tensors.find(name); found != truth->result.tensors.end())
      judge_or_leave_out(problem, name, got, found->second, bounds, findings);
  }
}

namespace {

// In double by one algebra after another, each when it is first asked for: the last one, which of HLA subtracts nothing, is
// sharp where the others cancel.
class DoubleTruth {
 public:
  DoubleTruth(const Operator& op, const Problem& problem) : op_(op), problem_(problem) {}
  // None: by no algebra the radius is far below the bound.
  const OracleTensor* sharp(const std::string& name, const std::vector<double>& bound) {
    const std::size_t algebras = op_.declaration().algebras.size();
    for (std::size_t i = 0; i < algebras; ++i) {
      if (i == by_algebra_.size()) {
        const Timed timed(spent.oracle_ns);
        by_algebra_.push_back(double_truth(op_, problem_, static_cast<int>(algebras - 1 - i)));
      }
      if (const auto found = by_algebra_[i].find(name);
          found != by_algebra_[i].end() && is_sharp(found->second, bound))
        return &found->second;
    }
    return nullptr;
  }

 private:
  const Operator& op_;
  const Problem& problem_;
  std::deque<std::map<std::string, OracleTensor>> by_algebra_;
};

// From the fastest evaluation to the sharpest, until the radius is far below the bound.
void judge_o_quickly(const BatteryContext& context, const Problem& problem, const Tensor& o,
                     DoubleTruth& in_double, const Bounds& bounds, Findings& findings) {
  const std::vector<double>& bound = bounds.deterministic.at("o");
  const auto judge = [&](const OracleTensor& truth) {
    judge_tensor(problem, "o", o, truth, bound, bound, findings);
  };
  if (const OracleTensor* quick = in_double.sharp("o", bound)) return judge(*quick);
  OracleRequest request;
  request.rows = {0, problem.tokens}, request.double_double = true, request.magnitude = false,
  request.threads = 1;
  auto truth = timed_truth(context.op, problem, request);
  if (!is_sharp(truth->result.tensors.at("o"), bound)) truth = truth_of(context.op, problem);
  judge(truth->result.tensors.at("o"));
}

}  // namespace

void judge_output_quickly(const BatteryContext& context, const Problem& problem, const Tensor& o,
                          Findings& findings) {
  if (o.data.empty()) return;
  const Bounds bounds = bounds_of(context, problem, false, false);
  if (const auto why = bounds.undecided.find("o"); why != bounds.undecided.end())
    return findings.leave_out(why->second);
  DoubleTruth truth(context.op, problem);
  judge_o_quickly(context, problem, o, truth, bounds, findings);
}

void judge_outputs_quickly(const BatteryContext& context, const Problem& problem, const Tensors& outputs,
                           Findings& findings) {
  const Bounds bounds = bounds_of(context, problem, false, true);
  DoubleTruth truth(context.op, problem);
  for (const auto& [name, got] : outputs) {
    if (got.data.empty()) continue;
    if (const auto why = bounds.undecided.find(name); why != bounds.undecided.end())
      findings.leave_out(why->second);
    else if (name == "o")
      judge_o_quickly(context, problem, got, truth, bounds, findings);
    else if (const auto& bound = bounds.deterministic.at(name); const auto* sharp = truth.sharp(name, bound))
      judge_tensor(problem, name, got, *sharp, bound, bound, findings);
    else
      judge_tensor(problem, name, got, truth_of(context.op, problem)->result.tensors.at(name), bound, bound,
                   findings);
  }
}

void judge_pair(const BatteryContext& context, const Problem& problem, const Tensor& first,
                const Tensor& second, Findings& findings) {
  const Bounds bounds = bounds_of(context, problem, false, false);
  if (bounds.undecided.contains("o")) return findings.leave_out(bounds.undecided.at("o"));
  std::vector<double> error, bound = bounds.deterministic.at("o");
  for (double& x : bound) x *= 2;
  for (std::size_t i = 0; i < bound.size(); ++i) error.push_back(std::abs(first.data[i] - second.data[i]));
  findings.within(problem, "o", first, second.data, error, bound, bound);
}

void judge_call(const BatteryContext& context, const Problem& problem, bool statistical, Findings& findings) {
  if (const auto outputs = call(context, problem, findings))
    judge_outputs(context, problem, *outputs, statistical, findings);
}

}  // namespace attest
