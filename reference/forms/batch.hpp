// Everything around a head, in one place: batches, heads, grouped heads, packed sequences, scale, exp(g) and the
// normaliser. head_of() cuts a head out of a problem over any scalar; visit_outputs() puts its solution back:
//   q := scale q;  alpha := exp(g) (g = -inf: 0) or alpha as given;  grouped heads: head h reads h / (H / heads given)
//   normalize: v := [v, 1], every moment with value columns takes its normaliser (C: m, G: h, ...) as last column,
//   and o := o / (last column + epsilon)
// Fields are read through a Reader (name, tensor, flat index) -> S, so that a derivative can make each entry a variable.
#pragma once
#include <cmath>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/forms/operator.hpp"
#include "reference/numeric/approximate.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

PrimeField prime_residue(const Rational& value);
bool contains_only_zero(const Interval& value);

// The scalar S at an exact value: rounded once where S is a float, enclosed where S is an interval.
template <class S>
S scalar_of(const Rational& value) {
  if constexpr (std::is_same_v<S, Rational>)
    return value;
  else if constexpr (std::is_same_v<S, Interval>)
    return interval_from(value);
  else if constexpr (std::is_same_v<S, Magnitude>)
    return Magnitude(nearest_double(value));
  else if constexpr (std::is_floating_point_v<S>)
    return static_cast<S>(nearest_double(value));
  else if constexpr (std::is_same_v<S, PrimeField>)
    return prime_residue(value);
  else
    return S(scalar_of<std::remove_cvref_t<decltype(S::value)>>(value));
}
template <class S>
S scalar_of(double value) {
  if constexpr (std::is_floating_point_v<S>)
    return static_cast<S>(value);
  else if constexpr (std::is_same_v<S, Interval> || std::is_same_v<S, Magnitude>)
    return S(value);
  else
    return scalar_of<S>(rational_from(value));
}

template <class S>
inline constexpr bool has_exponential = std::is_same_v<S, Interval> || std::is_floating_point_v<S>;
template <class S>
inline constexpr bool has_exponential<Var<S>> = has_exponential<S>;

// alpha = exp(g); only g = -inf has a value without transcendental functions.
template <class S>
S linear_gate(const S& log_gate, double given) {
  using std::exp;
  if (std::isinf(given)) return S(0);
  const Magnitude magnitude(std::exp(given));  // a Magnitude itself forgot the sign of g
  if constexpr (std::is_same_v<S, Magnitude>)
    return magnitude;
  else if constexpr (std::is_same_v<S, Var<Magnitude>>)
    return S::make(magnitude, log_gate, magnitude, S(), Magnitude());
  else if constexpr (has_exponential<S>)
    return exp(log_gate);
  else
    throw BadInput(
        "field \"g\": its exponential is not a rational number, expected the linear gate in \"alpha\"");
}

// The factor on every q: as given, else 1 or 1/sqrt(key_dim).
template <class S>
S query_scale(const Problem& problem, const Declaration& declaration) {
  if (problem.options.scale) return scalar_of<S>(*problem.options.scale);
  if (declaration.unit_scale) return S(1);
  const auto root = static_cast<Index>(std::llround(std::sqrt(static_cast<double>(problem.key_dim))));
  if (root * root == problem.key_dim) return scalar_of<S>(Rational(1) / Rational(root));
  if constexpr (std::is_same_v<S, Interval>)
    return Interval(1) / sqrt(Interval(problem.key_dim));
  else if constexpr (std::is_floating_point_v<S>)
    return S(1) / std::sqrt(static_cast<S>(problem.key_dim));
  else if constexpr (has_exponential<S>) {
    using Value = std::remove_cvref_t<decltype(S::value)>;
    return S(query_scale<Value>(problem, declaration));
  } else
    throw BadInput(
        "option scale: the default 1/sqrt(key_dim) is not a rational number, expected scale=VALUE");
}

struct ReadExact {
  template <class S>
  S read(const std::string&, const Tensor& tensor, Index flat) {
    return scalar_of<S>(tensor.data[static_cast<std::size_t>(flat)]);
  }
  template <class S>
  S decay(Index, const Rational& option) {
    return scalar_of<S>(option);
  }
};

// The head that output head `head` reads of a tensor that carries `given` of `heads` heads.
inline Index grouped_head(Index head, Index heads, Index given) { return head / (heads / given); }

// Flat index of row t of slot's head in a field [B, T, H, width].
inline Index row_offset(const Tensor& tensor, const Slot& slot, Index heads, Index t, Index width) {
  const Index given = tensor.shape[2];
  return ((slot.batch * tensor.shape[1] + slot.first + t) * given + grouped_head(slot.head, heads, given)) *
         width;
}

template <class S, class Reader>
Matrix<S> read_rows(const Problem& problem, const Slot& slot, const std::string& name, Reader& reader,
                    Index extra = 0) {
  const Tensor& tensor = problem.fields.at(name);
  const Index width = tensor.shape.size() == 4 ? tensor.shape[3] : 1, tokens = slot.last - slot.first;
  Matrix<S> rows(tokens, width + extra);
  for (Index t = 0; t < tokens; ++t) {
    const Index offset = row_offset(tensor, slot, problem.heads, t, width);
    for (Index c = 0; c < width; ++c) rows(t, c) = reader.template read<S>(name, tensor, offset + c);
    for (Index c = width; c < width + extra; ++c) rows(t, c) = S(1);
  }
  return rows;
}

template <class S, class Reader>
std::vector<S> read_scalars(const Problem& problem, const Slot& slot, const std::string& name,
                            Reader& reader) {
  const Matrix<S> rows = read_rows<S>(problem, slot, name, reader);
  return std::vector<S>(rows.data(), rows.data() + rows.size());
}

// Whether the moment's normaliser travels as the last column of its matrices.
inline bool carries_normaliser(const Problem& problem, const Moment& moment) {
  return problem.options.normalize && moment.value_columns && !moment.normaliser.empty();
}

// [N, H, (levels,) key_dim, columns]
template <class S, class Reader>
State<S> read_state(const Problem& problem, const Declaration& declaration, const Slot& slot,
                    Reader& reader) {
  State<S> state;
  if (declaration.level_scales)
    state.position = initial_positions(problem)[static_cast<std::size_t>(slot.sequence)];
  for (const Moment& moment : declaration.moments) {
    const std::string name = "initial_state." + moment.name;
    const Tensor* tensor = problem.field(name);
    if (tensor == nullptr) continue;
    const Tensor* last =
        carries_normaliser(problem, moment) ? problem.field("initial_state." + moment.normaliser) : nullptr;
    const Index levels = declaration.level_scales ? tensor->shape[2] : 1, columns = tensor->shape.back();
    const Index block = slot.sequence * problem.heads + slot.head;
    for (Index level = 0; level < levels; ++level) {
      Matrix<S> matrix(problem.key_dim, columns + (carries_normaliser(problem, moment) ? 1 : 0));
      for (Index a = 0; a < problem.key_dim; ++a) {
        const Index row = (block * levels + level) * problem.key_dim + a;
        for (Index c = 0; c < columns; ++c)
          matrix(a, c) = reader.template read<S>(name, *tensor, row * columns + c);
        if (last)
          matrix(a, columns) = reader.template read<S>("initial_state." + moment.normaliser, *last, row);
      }
      state.moments[moment.name].push_back(std::move(matrix));
    }
  }
  return state;
}

template <class S, class Reader>
Head<S> head_of(const Problem& problem, const Declaration& declaration, const Slot& slot, Reader& reader) {
  Head<S> head;
  head.q = read_rows<S>(problem, slot, "q", reader);
  if (problem.options.scale.value_or(declaration.unit_scale ? 1 : 0) != 1)
    head.q *= query_scale<S>(problem, declaration);
  head.k = read_rows<S>(problem, slot, "k", reader);
  head.v = read_rows<S>(problem, slot, "v", reader, problem.options.normalize ? 1 : 0);
  if (declaration.gates && problem.field("alpha"))
    head.alpha = read_scalars<S>(problem, slot, "alpha", reader);
  if (declaration.gates && problem.field("g")) {
    const Tensor& g = problem.fields.at("g");
    head.log_gate = read_scalars<S>(problem, slot, "g", reader);
    for (Index t = 0; t < head.tokens(); ++t)
      head.alpha.push_back(
          linear_gate(head.log_gate[static_cast<std::size_t>(t)],
                      g.data[static_cast<std::size_t>(row_offset(g, slot, problem.heads, t, 1))]));
  }
  if (declaration.beta) head.beta = read_scalars<S>(problem, slot, "beta", reader);
  if (declaration.level_scales) head.level_scales = read_rows<S>(problem, slot, "level_scales", reader);
  if (const Tensor* decay = declaration.decay ? problem.field("decay") : nullptr)
    head.decay = reader.template read<S>("decay", *decay, slot.head);
  else if (problem.options.decay)
    head.decay = reader.template decay<S>(slot.head, *problem.options.decay);
  head.ridge = scalar_of<S>(problem.options.ridge);
  head.initial = read_state<S>(problem, declaration, slot, reader);
  return head;
}
template <class S>
Head<S> head_of(const Problem& problem, const Declaration& declaration, const Slot& slot) {
  ReadExact exact;
  return head_of<S>(problem, declaration, slot, exact);
}

template <class S>
bool is_exactly_zero(const S& value) {  // an interval that merely contains zero is not
  if constexpr (std::is_same_v<S, Interval>)
    return contains_only_zero(value);
  else if constexpr (requires { value.value == value.value; })
    return is_exactly_zero(value.value);
  else
    return value == S(0);
}

// Divides the normaliser out of o. Entries of rows whose denominator is exactly zero have no value: they are left
// zero, and undefined_rows says which; over float and double the division itself gives what it gives.
template <class S>
std::vector<bool> divide_out(const Problem& problem, Matrix<S>& o) {
  std::vector<bool> undefined(static_cast<std::size_t>(o.rows()), false);
  if (!problem.options.normalize) return undefined;
  const S epsilon = scalar_of<S>(problem.options.epsilon);
  Matrix<S> quotient(o.rows(), o.cols() - 1);
  for (Index t = 0; t < o.rows(); ++t) {
    const S denominator = o(t, o.cols() - 1) + epsilon;
    if (!std::is_floating_point_v<S> && is_exactly_zero(denominator))
      undefined[static_cast<std::size_t>(t)] = true;
    else
      for (Index c = 0; c < quotient.cols(); ++c) quotient(t, c) = o(t, c) / denominator;
  }
  o = std::move(quotient);
  return undefined;
}

// The tensors that an operator gives for a problem and their shapes: o, and where they are wanted final_state.X (without
// position).
std::map<std::string, std::vector<Index>> output_shapes(const Problem& problem,
                                                        const Declaration& declaration);

// Calls visit(name, flat index, value) for every entry of the tensors of output_shapes that a slot's solution holds;
// o must be divided already. Levels that the state does not reach are not visited: they are zero.
template <class S, class Visit>
void visit_outputs(const Problem& problem, const Declaration& declaration, const Slot& slot,
                   const Solution<S>& solution, Index levels, Visit&& visit) {
  for (Index t = 0; t < solution.o.rows(); ++t)
    for (Index c = 0; c < problem.value_dim; ++c)
      visit("o",
            ((slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head) * problem.value_dim +
                c,
            solution.o(t, c));
  if (!problem.wants_states) return;
  const Index block = slot.sequence * problem.heads + slot.head;
  for (const Moment& moment : declaration.moments) {
    const auto found = solution.final.moments.find(moment.name);
    if (found == solution.final.moments.end()) continue;
    const Index columns = moment.value_columns ? problem.value_dim : problem.key_dim;
    for (std::size_t level = 0; level < found->second.size(); ++level) {
      const Matrix<S>& matrix = found->second[level];
      for (Index a = 0; a < matrix.rows(); ++a) {
        const Index row = (block * levels + static_cast<Index>(level)) * problem.key_dim + a;
        for (Index c = 0; c < columns; ++c)
          visit("final_state." + moment.name, row * columns + c, matrix(a, c));
        if (carries_normaliser(problem, moment))
          visit("final_state." + moment.normaliser, row, matrix(a, columns));
      }
    }
  }
}

// Levels of the final state: 1 for an ordinary operator, else what the longest sequence ends with.
Index final_levels(const Problem& problem, const Declaration& declaration);

// All slots one after another over a scalar that converts to double (float, double): what a kernel computes.
template <class S>
Tensors run(const Operator& op, const Problem& problem, const Evaluation& how, Arithmetic<S>& arithmetic) {
  const Declaration& declaration = op.declaration();
  Tensors outputs;
  for (const auto& [name, shape] : output_shapes(problem, declaration))
    outputs[name] = {shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0)};
  const Index levels = final_levels(problem, declaration);
  for (const Slot& slot : slots(problem)) {
    Solution<S> solution = op.evaluate(head_of<S>(problem, declaration, slot), how, arithmetic);
    divide_out(problem, solution.o);
    visit_outputs(problem, declaration, slot, solution, levels,
                  [&](const std::string& name, Index flat, const S& value) {
                    outputs.at(name).data[static_cast<std::size_t>(flat)] = static_cast<double>(value);
                  });
  }
  return outputs;
}

}  // namespace attest
