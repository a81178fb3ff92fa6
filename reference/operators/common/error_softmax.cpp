// Error model of softmax attention, online: with p the weights of row t and F the number of rescalings,
//   D = u_P sum_s p_s |v_s| + sum_s p_s |v_s - o| eps_s + gamma_{t+2+F} (sum_s p_s |v_s| + |o|) + u_state sum_s |A_s| + u |o|
// eps_s the relative error of exp(score_s - shift): gamma_d |q||k| + u |score - shift| + c_exp u, and for
// each later rescaling u |move| + c_exp u; A_s the partial sum after token s in units of the final
// denominator (carried). The shift is the kernel's own number: numerator and denominator share it, so its
// error costs nothing.
#include "reference/operators/common/error_forms.hpp"

namespace attest {

std::optional<ErrorModel> softmax_error(const FormError& form) {
  const Units& units = form.units;
  const Array q = to_array(form.head.q), k = to_array(form.head.k), v = to_array(form.head.v);
  const Index n = q.rows(), columns = v.cols();
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), columns);
  Array o = Array::Zero(n, columns), arithmetic = o, carried = o, carried_square = o, rounded = o,
        rounded_square = o;
  const double score = units.gamma_step(q.cols()) + 2 * units.input + units.query;
  const double exponential =
      2 * units.contract.exp_ulp * units.contract.gate_sum.unit_roundoff() + units.step;
  for (Index i = 0; i < rows.count(); ++i) {
    const Index t = rows.token(i);
    const Eigen::VectorXd scores = k.topRows(t + 1) * q.row(t).transpose();
    const Eigen::VectorXd sizes = k.topRows(t + 1).cwiseAbs() * q.row(t).cwiseAbs().transpose();
    const Eigen::VectorXd weights = (scores.array() - scores.maxCoeff()).exp();
    const double total = weights.sum();
    o.row(t) = weights.transpose() * v.topRows(t + 1) / total;
    Array partial = Array::Zero(1, columns);
    double maximum = scores(0);
    Index moves = 0;
    std::vector<double> relative(static_cast<std::size_t>(t + 1)),
        move_cost(static_cast<std::size_t>(t + 1), 0.0);
    for (Index s = 0; s <= t; ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (scores(s) > maximum) {
        move_cost[at] = units.step * (scores(s) - maximum) + exponential;
        maximum = scores(s), ++moves;
      }
      relative[at] = score * sizes(s) + units.step * std::abs(scores(s) - maximum) + exponential;
      partial += weights(s) / total * v.row(s);
      carried.row(t) += partial.cwiseAbs();
      carried_square.row(t) += partial.cwiseAbs2();
      const Array weighed = weights(s) / total * v.row(s);
      rounded.row(t) += weighed.cwiseAbs();
      rounded_square.row(t) += weighed.cwiseAbs2();
    }
    double later = 0;
    for (Index s = t; s >= 0; --s) {
      const auto at = static_cast<std::size_t>(s);
      const double p = weights(s) / total, error = relative[at] + later;
      if (!(error <= 0.5)) sum.undecide("scores: the relative error of a weight may exceed one half");
      arithmetic.row(t) += p * std::expm1(error) * (v.row(s) - o.row(t)).cwiseAbs();
      later += move_cost[at];
    }
    const double mean = units.gamma_step(t + 2 + moves);
    const Array magnitude = weights.transpose() * v.topRows(t + 1).cwiseAbs() / total;
    arithmetic.row(t) += mean * (magnitude + o.row(t).cwiseAbs()) + units.step * o.row(t).cwiseAbs();
  }
  if (n > 0) {
    const double most = static_cast<double>(n) * std::max(1.0, v.cwiseAbs().maxCoeff());
    sum.range("scores", units.contract.accumulate,
              static_cast<double>(q.cols()) * q.cwiseAbs().maxCoeff() * k.cwiseAbs().maxCoeff());
    sum.range("sum", units.contract.accumulate, most);
    sum.range("sum", units.contract.state, most);
  }
  sum.rounded("weights", units.operand + units.input, rows.pick(rounded),
              rows.pick(rounded_square));  // P as a product reads it, and V
  sum.rounded("sum", units.carry, rows.pick(carried), rows.pick(carried_square));
  sum.arithmetic(rows.pick(arithmetic));
  return finish_output(form, sum, o);
}

}  // namespace attest
