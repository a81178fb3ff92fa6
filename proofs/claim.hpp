// A claim of the ledger: two sides, computed from the same inputs over any exact scalar, that are to be equal for
// every input of every shape. Nothing here knows whether they are; engine.hpp decides.
// A refuted claim may name a corrected statement and what the printed formula computes instead, decided alike; its
// controls are deliberately broken twins, which must be refuted.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proofs/degree.hpp"
#include "reference/numeric/prime_field.hpp"
#include "reference/numeric/rational.hpp"
#include "reference/tensor/head.hpp"

namespace attest {

struct Shape {
  Index tokens = 0, key_dim = 1, value_dim = 1;
  Index position = 0;  // tokens consumed before the first one (log-linear states depend on it)
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The values an input takes when it is drawn from Q: any integer, or a gate in (0, 1].
enum class Domain { real, gate };

struct Field {
  std::string name;
  Index rows = 1, cols = 1;
  Domain domain = Domain::real;
};
using Fields = std::vector<Field>;

template <class S>
class Inputs {
 public:
  Inputs() = default;
  Matrix<S>& put(const std::string& name) { return values_[name]; }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  const Matrix<S>& operator[](const std::string& name) const { return values_.at(name); }
  const S& scalar(const std::string& name) const { return values_.at(name)(0, 0); }
  const std::map<std::string, Matrix<S>>& all() const { return values_; }

  // The fields under their public names; "initial.X" and "initial.X.level" are moments, decay and ridge scalars.
  Head<S> head(const Shape& shape) const {
    Head<S> head;
    head.q = matrix("q"), head.k = matrix("k"), head.v = matrix("v"),
    head.level_scales = matrix("level_scales");
    head.alpha = column("alpha"), head.beta = column("beta");
    if (has("decay")) head.decay = scalar("decay");
    if (has("ridge")) head.ridge = scalar("ridge");
    head.initial.position = shape.position;
    for (const auto& [name, value] : values_)
      if (name.starts_with("initial.")) put_moment(head, name.substr(8), value);
    return head;
  }

 private:
  Matrix<S> matrix(const std::string& name) const { return has(name) ? (*this)[name] : Matrix<S>(); }
  std::vector<S> column(const std::string& name) const {
    const Matrix<S> values = matrix(name);
    return {values.data(), values.data() + values.size()};
  }
  static void put_moment(Head<S>& head, const std::string& name, const Matrix<S>& value) {
    const auto dot = name.find('.');
    auto& levels = head.initial.moments[name.substr(0, dot)];
    const std::size_t level = dot == std::string::npos ? 0 : std::stoul(name.substr(dot + 1));
    if (levels.size() <= level) levels.resize(level + 1, zeros<S>(value.rows(), value.cols()));
    levels[level] = value;
  }
  std::map<std::string, Matrix<S>> values_;
};

template <class S>
struct Comparison {
  std::string what;  // the quantity, and by which routes
  Matrix<S> left, right;
};
template <class S>
using Comparisons = std::vector<Comparison<S>>;

template <class S>
using Sides = std::function<Comparisons<S>(const Shape&, const Inputs<S>&)>;

struct Statement {
  std::string text;
  std::vector<Shape> shapes;  // from small to large
  std::function<Fields(const Shape&)> fields;
  Sides<PrimeField> over_field;
  Sides<Rational> over_rational;
  std::function<Index(const Shape&)> degree;  // a bound on the total degree of both sides
};

Inputs<Degree> degree_inputs(const Fields& fields);
Index largest_degree(const Comparisons<Degree>& comparisons);

// sides: a generic callable (const Shape&, const Inputs<S>&) -> Comparisons<S>.
template <class F>
Statement state(std::string text, std::vector<Shape> shapes, std::function<Fields(const Shape&)> fields,
                F sides) {
  return {std::move(text), std::move(shapes), fields, sides, sides, [fields, sides](const Shape& shape) {
            return largest_degree(sides(shape, degree_inputs(fields(shape))));
          }};
}

// The same with a degree bound of its own, for sides that do not evaluate over Degree.
template <class F>
Statement state(std::string text, std::vector<Shape> shapes, std::function<Fields(const Shape&)> fields,
                F sides, std::function<Index(const Shape&)> degree) {
  return {std::move(text), std::move(shapes), std::move(fields), sides, sides, std::move(degree)};
}

struct Control {
  std::string name;  // what is broken
  Statement statement;
};

struct Claim {
  std::string id, source;
  Statement statement;
  std::shared_ptr<const Statement> corrected;  // decided when the statement is refuted
  std::shared_ptr<const Statement> instead;    // what the refuted formula computes, where that can be said
  std::vector<Control> controls = {};
};

// Every shape with tokens in [0, max_tokens], key_dim and value_dim in [1, max_dim].
std::vector<Shape> all_shapes(Index max_tokens = 16, Index max_dim = 4);
// The same, each at position 0 and at one other position.
std::vector<Shape> positioned_shapes(Index max_tokens = 16, Index max_dim = 4);
// tokens in [0, max_tokens] alone.
std::vector<Shape> token_shapes(Index max_tokens);

}  // namespace attest
