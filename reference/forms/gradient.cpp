#include "reference/forms/gradient.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/forms/certify.hpp"

namespace attest {
namespace {

// Makes every entry a variable of the active tape and remembers where it came from.
template <class S>
struct LeafReader {
  std::map<std::string, std::vector<std::pair<Index, std::int64_t>>> leaves;  // field: (flat index, node)

  template <class V>
  V read(const std::string& name, const Tensor& tensor, Index flat) {
    return variable<V>(name, flat, scalar_of<S>(tensor.data[static_cast<std::size_t>(flat)]));
  }
  template <class V>
  V decay(Index head, const Rational& option) {
    return variable<V>("decay", head, scalar_of<S>(option));
  }

 private:
  template <class V>
  V variable(const std::string& name, Index flat, const S& value) {
    V result = V::input(value);
    leaves[name].push_back({flat, result.node});
    return result;
  }
};

// What the ratios of one head came out as: the magnitude of their derivative needs the true values.
struct Ratios {
  Matrix<double> o;                  // (tokens, value_dim)
  std::vector<double> denominators;  // (tokens)
};

template <class S>
struct SlotGradient {
  std::map<std::string, std::vector<std::pair<Index, S>>> entries;
  bool undefined = false;  // some denominator is exactly zero
  Ratios ratios;
};

class Gradient {
 public:
  Gradient(const Operator& op, const Problem& problem, const OracleRequest& request)
      : op_(op),
        declaration_(op.declaration()),
        given_(problem),
        request_(request),
        disturbed_(holds_non_finite_data(problem)),
        problem_(disturbed_ ? finite_part(problem) : problem),
        slots_(slots(problem)),
        levels_(final_levels(problem, declaration_)) {
    result_.how = request.how.value_or(fastest_form(declaration_, problem));
    check_form(declaration_, problem, result_.how);
    if (request.exact) check_rational(declaration_, problem);
    const bool magnitude = request.magnitude && declaration_.exact;
    for (const auto& [name, tensor] : problem.fields)
      if (name != "do" && !name.starts_with("dfinal_state.") && name != "cu_seqlens" &&
          name != "initial_state.position")
        result_.tensors["d" + name] = empty_oracle_tensor(tensor.shape, magnitude, request.exact);
    if (declaration_.decay && problem.options.decay)
      result_.tensors["ddecay"] = empty_oracle_tensor({problem.heads}, magnitude, request.exact);
  }

  OracleResult evaluate() {
    if (request_.exact) {
      solve<Rational>(0);
    } else {
      int bits = request_.bits.value_or(first_bits);
      while (solve<Interval>(bits) && !request_.bits && bits < largest_bits) bits *= 2;
      result_.bits = bits;
    }
    result_.method = request_.exact ? "exact" : fmt::format("mpfi-{}", result_.bits);
    if (request_.magnitude && declaration_.exact) store_magnitudes();
    mark_nan();
    return std::move(result_);
  }

 private:
  template <class S>
  SlotGradient<S> differentiate(const Problem& problem, const Slot& slot, const Evaluation& how,
                                const Ratios* ratios = nullptr) const {
    SlotGradient<S> gradient;
    Tape<S> tape;
    LeafReader<S> reader;
    Solution<Var<S>> solution = static_cast<const Evaluator<Var<S>>&>(op_).evaluate(
        head_of<Var<S>>(problem, declaration_, slot, reader), how);
    if constexpr (std::is_same_v<S, Magnitude>)
      divide_magnitudes(solution.o, *ratios);
    else
      divide(problem, solution.o, gradient);
    std::vector<S> bar(tape.size(), S(0));
    visit_outputs(problem, declaration_, slot, solution, levels_,
                  [&](const std::string& name, Index flat, const Var<S>& value) {
                    const Tensor* cotangent = problem.field(name == "o" ? "do" : "d" + name);
                    if (cotangent && value.node >= 0)
                      bar[static_cast<std::size_t>(value.node)] +=
                          scalar_of<S>(cotangent->data[static_cast<std::size_t>(flat)]);
                  });
    const std::vector<S> adjoints = tape.adjoints(std::move(bar));
    for (const auto& [name, leaves] : reader.leaves)
      for (const auto& [flat, node] : leaves)
        gradient.entries[name].push_back({flat, adjoints[static_cast<std::size_t>(node)]});
    return gradient;
  }
  template <class S>
  void divide(const Problem& problem, Matrix<Var<S>>& o, SlotGradient<S>& gradient) const {
    if (!problem.options.normalize) return;
    for (Index t = 0; t < o.rows(); ++t)
      gradient.ratios.denominators.push_back(
          std::abs(approximate(S(o(t, o.cols() - 1).value + scalar_of<S>(problem.options.epsilon)))));
    const std::vector<bool> undefined = divide_out(problem, o);
    gradient.undefined = std::ranges::find(undefined, true) != undefined.end();
    gradient.ratios.o = zeros<double>(o.rows(), o.cols());
    for (Index i = 0; i < o.size(); ++i)
      gradient.ratios.o.data()[i] = std::abs(approximate(o.data()[i].value));
  }
  // d(N/D) = dN / D - o dD / D, by absolute values.
  static void divide_magnitudes(Matrix<Var<Magnitude>>& o, const Ratios& ratios) {
    if (ratios.denominators.empty()) return;
    Matrix<Var<Magnitude>> quotient(o.rows(), o.cols() - 1);
    for (Index t = 0; t < o.rows(); ++t) {
      const double inverse = 1 / ratios.denominators[static_cast<std::size_t>(t)];
      for (Index c = 0; c < quotient.cols(); ++c)
        quotient(t, c) = Var<Magnitude>::make(Magnitude(ratios.o(t, c)), o(t, c), Magnitude(inverse),
                                              o(t, quotient.cols()), Magnitude(ratios.o(t, c) * inverse));
    }
    o = std::move(quotient);
  }

  // Whether some entry wants more bits. Sums over heads in their order, so that the result does not depend on threads.
  template <class S>
  bool solve(int bits) {
    std::vector<SlotGradient<S>> gradients(slots_.size());
    for_each_parallel(static_cast<Index>(slots_.size()), request_.threads, [&](Index i) {
      std::optional<PrecisionScope> precision;
      if (bits > 0) precision.emplace(bits);
      gradients[static_cast<std::size_t>(i)] =
          differentiate<S>(problem_, slots_[static_cast<std::size_t>(i)], result_.how);
    });
    std::optional<PrecisionScope> precision;
    if (bits > 0) precision.emplace(bits);
    bool wanting = false;
    for (auto& [name, tensor] : result_.tensors) {
      const std::vector<S> sum = sum_of(gradients, name.substr(1), tensor.value.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        store(tensor, static_cast<Index>(i), sum[i]);
        wanting |= wants_more_bits(tensor, static_cast<Index>(i), request_.relative_bits);
      }
    }
    undefined_.clear();
    ratios_.clear();
    for (SlotGradient<S>& gradient : gradients) {
      undefined_.push_back(gradient.undefined);
      ratios_.push_back(std::move(gradient.ratios));
    }
    return wanting;
  }
  template <class S>
  static std::vector<S> sum_of(const std::vector<SlotGradient<S>>& gradients, const std::string& field,
                               std::size_t count) {
    std::vector<S> sum(count, S(0));
    for (const SlotGradient<S>& gradient : gradients)
      if (const auto found = gradient.entries.find(field); found != gradient.entries.end())
        for (const auto& [flat, value] : found->second) sum[static_cast<std::size_t>(flat)] += value;
    return sum;
  }

  void store_magnitudes() {
    std::vector<SlotGradient<Magnitude>> gradients(slots_.size());
    for_each_parallel(static_cast<Index>(slots_.size()), request_.threads, [&](Index i) {
      const auto at = static_cast<std::size_t>(i);
      gradients[at] = differentiate<Magnitude>(problem_, slots_[at], {}, &ratios_[at]);
    });
    for (auto& [name, tensor] : result_.tensors) {
      const std::vector<Magnitude> sum = sum_of(gradients, name.substr(1), tensor.value.size());
      for (std::size_t i = 0; i < sum.size(); ++i) tensor.magnitude[i] = sum[i].value();
    }
  }

  // Every gradient of a head with a denominator of zero, and what NaN or an infinity of the data reaches.
  void mark_nan() {
    const Problem reach = disturbed_ ? reach_of_non_finite(given_) : Problem();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!disturbed_ && !undefined_[i]) continue;
      const auto gradient =
          differentiate<double>(disturbed_ ? reach : problem_, slots_[i], {.form = Form::stream});
      for (const auto& [name, entries] : gradient.entries)
        for (const auto& [flat, value] : entries)
          if (undefined_[i] || std::isnan(value)) mark(result_.tensors.at("d" + name), flat);
    }
  }
  static void mark(OracleTensor& tensor, Index flat) {
    store_nan(tensor, flat);
    if (!tensor.magnitude.empty()) tensor.magnitude[static_cast<std::size_t>(flat)] = std::nan("");
  }

  const Operator& op_;
  const Declaration& declaration_;
  const Problem& given_;
  const OracleRequest& request_;
  const bool disturbed_;
  const Problem problem_;
  const std::vector<Slot> slots_;
  const Index levels_;
  std::vector<bool> undefined_;
  std::vector<Ratios> ratios_;
  OracleResult result_;
};

}  // namespace

OracleResult evaluate_gradient(const Operator& op, const Problem& problem, const OracleRequest& request) {
  return Gradient(op, problem, request).evaluate();
}

}  // namespace attest
