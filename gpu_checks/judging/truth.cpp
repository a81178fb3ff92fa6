#include "gpu_checks/judging/truth.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "gpu_checks/judging/bound.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"

namespace attest {

Truth truth_of(const KeptOracle& oracle, const Rows& rows, Index tokens) {
  const OracleTensor& o = oracle.result.tensors.at("o");
  return {{rows.gather(o.value, tokens), rows.gather(o.low, tokens), rows.gather(o.radius, tokens)},
          rows.gather(o.magnitude, tokens)};
}

namespace {

constexpr Index double_delta_tokens = 1024, compared_with_intervals = 32;

Contract double_contract() {
  Contract c;
  c.input = c.product = c.intermediate = c.state = c.accumulate = c.gate_sum = c.output = fp64;
  c.exp_ulp = 2;
  return c;
}

void compare_with_intervals(const Operator& op, const Problem& problem, const Slot& slot,
                            const Evaluation& form, const std::vector<double>& values) {
  Slot first = slot;
  first.last = std::min(slot.last, slot.first + compared_with_intervals);
  const ErrorModel model = error_model(op, head_of<double>(problem, op.declaration(), first), form,
                                       double_contract(), normaliser_of(op, problem));
  const PrecisionScope precision(first_bits);
  Solution<Interval> exact = static_cast<const Evaluator<Interval>&>(op).evaluate(
      head_of<Interval>(problem, op.declaration(), first), form);
  divide_out(problem, exact.o);
  for (Index t = 0; t < exact.o.rows(); ++t)
    for (Index c = 0; c < problem.value_dim; ++c) {
      const Index row = (slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head;
      const Enclosure at = enclosure_of(exact.o(t, c));
      const double value = values[static_cast<std::size_t>(row * problem.value_dim + c)];
      const double room = 4 * model.deterministic(t, c) + at.radius;
      if (!(std::abs((value - at.high) - at.low) <= room))
        throw std::runtime_error("double and interval arithmetic contradict each other at token " +
                                 std::to_string(slot.first + t) + " of head " + std::to_string(slot.head) +
                                 " of " + op.declaration().name);
    }
}

}  // namespace

std::optional<DoubleTruth> truth_in_double(const Operator& op, const Problem& problem, const Rows& rows,
                                           int threads) {
  if (!op.declaration().beta || problem.tokens < double_delta_tokens || problem.options.normalize)
    return std::nullopt;
  if (std::any_of(problem.fields.begin(), problem.fields.end(), [](const auto& field) {
        const auto& data = field.second.data;
        return std::any_of(data.begin(), data.end(), [](double x) { return std::isnan(x) || x == INFINITY; });
      }))
    return std::nullopt;
  const Evaluation form{Form::chunk, 64, 0};
  const ErrorModel model = model_of(op, form, double_contract(), problem, rows, threads);
  if (model.undecided) return std::nullopt;
  DoubleTruth found;
  found.values.resize(static_cast<std::size_t>(problem.batch * problem.tokens * problem.heads) *
                      static_cast<std::size_t>(problem.value_dim));
  for_each_parallel(static_cast<Index>(rows.list().size()), threads, [&](Index s) {
    const Slot& slot = rows.list()[static_cast<std::size_t>(s)];
    const Solution<double> solution = static_cast<const Evaluator<double>&>(op).evaluate(
        head_of<double>(problem, op.declaration(), slot), form);
    for (Index t = 0; t < solution.o.rows(); ++t)
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Index row = (slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head;
        found.values[static_cast<std::size_t>(row * problem.value_dim + c)] = solution.o(t, c);
      }
    compare_with_intervals(op, problem, slot, form, found.values);
  });
  found.truth.expected.high = rows.gather(found.values, problem.tokens);
  found.truth.expected.low = zeros<double>(rows.total(), problem.value_dim);
  found.truth.expected.radius = model.deterministic;
  for (Index i = 0; i < model.deterministic.size(); ++i) found.truth.expected.radius.data()[i] *= 4;
  return found;
}

}  // namespace attest
