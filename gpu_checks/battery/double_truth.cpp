#include "gpu_checks/battery/double_truth.hpp"

#include <cmath>
#include <limits>

#include "reference/forms/batch.hpp"
#include "reference/forms/certify.hpp"
#include "reference/numeric/running.hpp"

namespace attest {
namespace {

// Eight times the unit roundoff of double: an operation is right to one of them, and what computes the errors itself rounds
// a few times. Underflow costs no more than the smallest normal number.
constexpr double unit = 0x1p-50, least = std::numeric_limits<double>::min();

// A number that head_of<double>() has rounded, or taken an exponential of.
Running rounded(double x) { return {x, unit * std::abs(x) + least}; }

Matrix<Running> running(const Matrix<double>& x, bool exact = true) {
  Matrix<Running> result(x.rows(), x.cols());
  for (Index i = 0; i < x.size(); ++i) result.data()[i] = exact ? Running(x.data()[i]) : rounded(x.data()[i]);
  return result;
}

std::vector<Running> running(const std::vector<double>& x, bool exact) {
  std::vector<Running> result;
  for (const double entry : x) result.push_back(exact ? Running(entry) : rounded(entry));
  return result;
}

Running running(double x, const Rational& exact) {
  return std::isfinite(x) && rational_from(x) == exact ? Running(x) : rounded(x);
}

// q times the scale: 0 stays 0.
Matrix<Running> scaled_queries(const Head<double>& head, const Problem& problem, const Slot& slot) {
  ReadExact exact;
  const Matrix<double> given = read_rows<double>(problem, slot, "q", exact);
  Matrix<Running> q = running(head.q, false);
  for (Index i = 0; i < q.size(); ++i)
    if (given.data()[i] == 0) q.data()[i] = Running(0);
  return q;
}

// Only the fields are exact: scale, decay and ridge come from fractions, alpha may come from g. exp(-inf) is 0, exp(0) 1.
Head<Running> running(const Head<double>& head, const Problem& problem, const Declaration& declaration,
                      const Slot& slot) {
  const bool scaled = problem.options.scale.value_or(declaration.unit_scale ? 1 : 0) != 1;
  Head<Running> result{
      scaled ? scaled_queries(head, problem, slot) : running(head.q),
      running(head.k),
      running(head.v),
      running(head.alpha, head.log_gate.empty()),
      running(head.log_gate, true),
      running(head.beta, true),
      running(head.level_scales),
      problem.options.decay ? running(head.decay, *problem.options.decay) : Running(head.decay),
      running(head.ridge, problem.options.ridge),
      {}};
  for (std::size_t t = 0; t < head.log_gate.size(); ++t)
    if (std::isinf(head.log_gate[t]) || head.log_gate[t] == 0) result.alpha[t] = Running(head.alpha[t]);
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const Matrix<double>& moment : moments) result.initial.moments[name].push_back(running(moment));
  return result;
}

// By the last column plus epsilon; 0/0 has no value, and its radius is infinite.
Matrix<Running> divided(const Matrix<Running>& o, const Rational& epsilon) {
  const Running more = epsilon == 0 ? Running(0) : rounded(nearest_double(epsilon));
  Matrix<Running> quotient(o.rows(), o.cols() - 1);
  for (Index t = 0; t < o.rows(); ++t) {
    const Running denominator = o(t, quotient.cols()) + more;
    for (Index c = 0; c < quotient.cols(); ++c) quotient(t, c) = o(t, c) / denominator;
  }
  return quotient;
}

}  // namespace

std::map<std::string, OracleTensor> double_truth(const Operator& op, const Problem& problem, int algebra) {
  const Declaration& declaration = op.declaration();
  std::map<std::string, OracleTensor> tensors;
  for (const auto& [name, shape] : output_shapes(problem, declaration))
    tensors[name] = empty_oracle_tensor(shape, false, false);
  const WorkingScope scope({unit, least, 1});
  const Evaluator<Running>& evaluator = op;
  const Index levels = final_levels(problem, declaration);
  for (const Slot& slot : slots(problem)) {
    const Head<double> head = head_of<double>(problem, declaration, slot);
    Solution<Running> solution =
        evaluator.evaluate(running(head, problem, declaration, slot), {Form::stream, 0, algebra});
    if (problem.options.normalize) solution.o = divided(solution.o, problem.options.epsilon);
    std::string last;  // an output's entries come one after another
    OracleTensor* of_last = nullptr;
    visit_outputs(problem, declaration, slot, solution, levels,
                  [&](const std::string& name, Index flat, const Running& x) {
                    if (!of_last || name != last) last = name, of_last = &tensors.at(name);
                    OracleTensor& tensor = *of_last;
                    const auto at = static_cast<std::size_t>(flat);
                    tensor.value[at] = x.value;
                    tensor.radius[at] = std::isfinite(x.value) && std::isfinite(x.error)
                                            ? x.error
                                            : std::numeric_limits<double>::infinity();
                  });
  }
  return tensors;
}

}  // namespace attest
