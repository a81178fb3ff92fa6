#include "gpu_checks/battery/state_bound.hpp"

#include <algorithm>
#include <cmath>

#include "gpu_checks/battery/delta_state.hpp"
#include "reference/forms/forms.hpp"
#include "reference/metrics/bound.hpp"
#include "reference/metrics/running_bound.hpp"
#include "reference/operators/common/error_units.hpp"
#include "reference/operators/hla2.hpp"

namespace attest {
namespace {

class StateArithmetic : public Arithmetic<Running> {
 public:
  StateArithmetic(const Units& units, const Head<double>& head) : units_(units), head_(head) {}

  Matrix<Running> product(const Matrix<Running>& a, const Matrix<Running>& b) override {
    const Matrix<Running> left = stored(units_.contract.product, a),
                          right = stored(units_.contract.product, b);
    const double gamma = units_.gamma(a.cols() + residual_terms_);
    Matrix<Running> result(a.rows(), b.cols());
    for (Index i = 0; i < a.rows(); ++i)
      for (Index j = 0; j < b.cols(); ++j) {
        double value = 0, size = 0, error = static_cast<double>(a.cols()) * units_.eta;
        for (Index k = 0; k < a.cols(); ++k) {
          const Running &x = left(i, k), &y = right(k, j);
          value += x.value * y.value;
          size += (std::abs(x.value) + x.error) * (std::abs(y.value) + y.error);
          error += std::abs(x.value) * y.error + x.error * (std::abs(y.value) + y.error);
        }
        result(i, j) = {value, error + gamma * size};
        Running::working().note(size);
        if (!block_lost_.empty()) result(i, j).widen(block_lost_[static_cast<std::size_t>(i)]);
      }
    return result;
  }
  Matrix<Running> operand(std::string_view label, Matrix<Running> x) override {
    if ((label == "u" || label == "w") && static_cast<Index>(scaled_lost_.size()) == x.rows())
      for (Index t = 0; t < x.rows(); ++t)
        for (Index c = 0; c < x.cols(); ++c) x(t, c).widen(scaled_lost_[static_cast<std::size_t>(t)]);
    if (label == "keys") keys_ = x;
    if (label == "gain") block_lost_ = lost_of_keys();
    if (label == "ut") {  // T (V - F S) in the place of T V - W S: the residual is summed up and stored first
      residual_terms_ = head_.k.cols() + 1;
      x = stored(units_.contract.intermediate, x);
    }
    return stored(units_.contract.intermediate, x);
  }
  Matrix<Running> carry(std::string_view, Matrix<Running> x) override {
    residual_terms_ = 0;
    return stored(units_.contract.state, x);
  }
  Matrix<Running> inverse(std::string_view label, const Matrix<Running>& n) override {
    if (units_.contract.inverse == InverseMethod::powers) undecided = "no bound: inverse=powers";
    Running::Working working = Running::working();
    working.u = units_.sum;
    const WorkingScope scope(working);
    Matrix<Running> inverse = Arithmetic<Running>::inverse(label, n);
    const double lost = std::max({units_.eta, units_.contract.product.smallest_subnormal(),
                                  units_.contract.intermediate.smallest_subnormal()});
    scaled_lost_.assign(static_cast<std::size_t>(inverse.rows()), 0);
    for (Index t = 0; t < inverse.rows(); ++t)
      for (Index s = 0; s < inverse.cols(); ++s)
        scaled_lost_[static_cast<std::size_t>(t)] +=
            (std::abs(inverse(t, s).value) + inverse(t, s).error) * lost;
    return inverse;
  }
  Matrix<Running> decay(const Gates<Running>& gates, Index first, Index last) override {
    block_lost_.clear();  // a chunk begins
    const Gates<double> exact{gates.alpha ? &head_.alpha : nullptr,
                              gates.log_gate ? &head_.log_gate : nullptr, gates.gamma.value, gates.power};
    const Matrix<double> weights = Arithmetic<double>().decay(exact, first, last);
    const Array relative = gate_error(units_, exact, first, last);
    if (relative.size() > 0 && !(relative.maxCoeff() <= 0.5))
      undecided = "a gate's relative error may exceed one half";
    const double lost = static_cast<double>(weights.rows()) *
                        std::max(units_.eta, units_.contract.gate_sum.smallest_subnormal());
    Matrix<Running> result(weights.rows(), weights.cols());
    for (Index t = 0; t < weights.rows(); ++t)
      for (Index s = 0; s <= t; ++s)
        result(t, s) = {weights(t, s), weights(t, s) * relative(t, s) + (relative(t, s) > 0 ? lost : 0)};
    return result;
  }
  // Entries rounded once to the format; what it holds already and has no error stays exact.
  Matrix<Running> stored(const Format& format, Matrix<Running> x) {
    for (Index i = 0; i < x.size(); ++i) {
      Running& entry = x.data()[i];
      const double size = std::abs(entry.value) + entry.error;
      if (!(size <= format.max_finite() / 2))
        undecided = "range: a state or an operand may overflow its format";
      if (entry.error == 0 && round_to(format, entry.value) == entry.value) continue;
      if (entry.error == 0) entry.widen(units_.step * size);  // a scaled q, rounded once before
      entry.widen(format.unit_roundoff() * size + format.smallest_subnormal());
    }
    return x;
  }
  std::string undecided;

 private:
  // K'^T times what the rows of U lose.
  std::vector<double> lost_of_keys() const {
    std::vector<double> lost(static_cast<std::size_t>(keys_.cols()), 0);
    for (Index t = 0; t < keys_.rows(); ++t)
      for (Index a = 0; a < keys_.cols(); ++a)
        lost[static_cast<std::size_t>(a)] +=
            (std::abs(keys_(t, a).value) + keys_(t, a).error) * scaled_lost_[static_cast<std::size_t>(t)];
    return lost;
  }

  const Units& units_;
  const Head<double>& head_;
  // What the rows of U = N^-1 (diag(beta) V), in the place of (N^-1 diag(beta)) V, and of W likewise may lose where beta v
  // underflows; empty where nothing is inverted.
  std::vector<double> scaled_lost_;
  // Log-linear: of a block (K'^T N^-1) (diag(beta) V) likewise, between the operand gain and the next chunk, where only these
  // products are.
  Matrix<Running> keys_;
  std::vector<double> block_lost_;
  Index residual_terms_ = 0;  // from the inverse to the end of its chunk
};

Matrix<Running> running(const Matrix<double>& x) {
  Matrix<Running> result(x.rows(), x.cols());
  for (Index i = 0; i < x.size(); ++i) result.data()[i] = Running(x.data()[i]);
  return result;
}

std::vector<Running> running(const std::vector<double>& x) {
  std::vector<Running> result;
  for (const double entry : x) result.emplace_back(entry);
  return result;
}

Head<Running> running(const Head<double>& head, const Units& units) {
  Head<Running> result{running(head.q),
                       running(head.k),
                       running(head.v),
                       running(head.alpha),
                       running(head.log_gate),
                       running(head.beta),
                       running(head.level_scales),
                       Running(head.decay),
                       Running(head.ridge),
                       {}};
  // A query that the input format does not hold has been scaled, in `accumulate`.
  const double query = Units(units.contract, true).query;
  for (Index i = 0; i < head.q.size(); ++i)
    if (const double x = head.q.data()[i]; round_to(units.contract.input, x) != x)
      result.q.data()[i].widen(query * std::abs(x) + units.eta);
  const Gates<double> gates{&head.alpha, head.log_gate.empty() ? nullptr : &head.log_gate, 1, 1};
  const double eta = std::max(units.eta, units.contract.gate_sum.smallest_subnormal());
  const auto convert = [&](Running& x, double relative) {
    if (relative > 0 || round_to(units.contract.accumulate, x.value) != x.value)
      x.widen(std::max(relative, units.step) * std::abs(x.value) + eta);
  };
  for (std::size_t t = 0; t < head.alpha.size(); ++t)
    convert(result.alpha[t], single_gate_error(units, gates, static_cast<Index>(t)));
  convert(result.decay, 0), convert(result.ridge, 0);
  result.initial.position = head.initial.position;
  for (const auto& [name, moments] : head.initial.moments)
    for (const auto& moment : moments) result.initial.moments[name].push_back(running(moment));
  return result;
}

// Sums of k k^T or q q^T: either factor may be the one that fades and is stored, which matters where it underflows.
bool is_symmetric(const Declaration& d, const std::string& moment) {
  return (d.name == "hla2" && moment == "S") || (d.name == "hla3" && (moment == "SK" || moment == "SQ"));
}

Matrix<double> larger_of_both_sides(const Matrix<double>& error) {
  Matrix<double> result = error;
  for (Index i = 0; i < error.rows(); ++i)
    for (Index j = 0; j < error.cols(); ++j) result(i, j) = std::max(error(i, j), error(j, i));
  return result;
}

double largest(const Matrix<double>& x) {
  return x.size() > 0 ? Eigen::Map<const Eigen::ArrayXd>(x.data(), x.size()).abs().maxCoeff() : 0;
}

StateBound bound_of_form(const Operator& op, const Head<double>& head, const Evaluation& how,
                         const Contract& contract) {
  const Units units(contract);
  const double u = std::max(units.step, units.sum);
  const WorkingScope scope({u, units.eta, 2 * contract.exp_ulp * contract.gate_sum.unit_roundoff() / u + 1,
                            true, contract.accumulate.max_finite() / 2});
  StateArithmetic arithmetic(units, head);
  const Evaluator<Running>& evaluator = op;
  const bool any_step = op.declaration().beta && how.form == Form::stream;
  std::vector<Solution<Running>> solutions;
  if (any_step)
    solutions.push_back(delta_stream(op.declaration(), arithmetic, running(head, units)));
  else
    solutions.push_back(evaluator.evaluate(running(head, units), how, arithmetic));
  if (may_be_outer(op.declaration(), how))
    solutions.push_back(stream<Hla2MaskedOuter>(arithmetic, running(head, units)));
  StateBound bound;
  for (const auto& [name, levels] : solutions[0].final.moments)
    for (std::size_t level = 0; level < levels.size(); ++level) {
      Matrix<double>& error =
          bound.error[name].emplace_back(zeros<double>(levels[level].rows(), levels[level].cols()));
      for (const Solution<Running>& solution : solutions) {
        const Matrix<Running> kept =
            arithmetic.stored(contract.state, solution.final.moments.at(name).at(level));
        for (Index i = 0; i < kept.size(); ++i) {
          error.data()[i] = std::max(error.data()[i], kept.data()[i].error);
          if (!std::isfinite(kept.data()[i].error))
            arithmetic.undecided = "the running error has no finite bound";
        }
      }
      if (is_symmetric(op.declaration(), name)) error = larger_of_both_sides(error);
    }
  bound.undecided = arithmetic.undecided;
  // Between the products, where nothing is stored: what a token writes before beta or a gate makes it small.
  Running::working().note(largest(head.k) * largest(head.v));
  if (Running::working().exceeded) bound.undecided = "range: a product or sum on the way may overflow";
  if (!is_finite(head)) bound.undecided = "no error model: an input is not finite";
  return bound;
}

}  // namespace

StateBound state_bound(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Contract& contract) {
  StateBound bound = bound_of_form(op, head, how, contract);
  const auto whole = single_chunk(op.declaration(), head, how, contract);
  if (!whole) return bound;
  const StateBound other = bound_of_form(op, head, *whole, contract);
  if (bound.undecided.empty()) bound.undecided = other.undecided;
  for (auto& [name, levels] : bound.error)
    for (std::size_t level = 0; level < levels.size(); ++level)
      for (Index i = 0; i < levels[level].size(); ++i)
        levels[level].data()[i] = std::max(levels[level].data()[i], other.error.at(name).at(level).data()[i]);
  return bound;
}

}  // namespace attest
