// Derivatives of one head by the reverse tape (reference/numeric/autodiff.hpp) over any of the scalars that it has, without
// the certificates of reference/forms/gradient.hpp: over Magnitude the size of every cotangent that a backward kernel
// meets, over double what a plain one computes. Cotangents are the fields `do` and `dfinal_state.X` of the problem.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/forms/batch.hpp"

namespace attest {

// Makes every entry of a field a variable and remembers where it came from; decay is a constant.
template <class S>
struct TapeLeaves {
  struct Leaf {
    std::string field;
    Index flat;
    std::int64_t node;
  };
  std::vector<Leaf> leaves;

  template <class V>
  V read(const std::string& name, const Tensor& tensor, Index flat) {
    V variable = V::input(scalar_of<S>(tensor.data[static_cast<std::size_t>(flat)]));
    leaves.push_back({name, flat, variable.node});
    return variable;
  }
  template <class V>
  V decay(Index, const Rational& option) {
    return V(scalar_of<S>(option));
  }
};

// Calls visit(field, flat index, derivative) for every entry that the head reads (several heads may share it) and returns
// the cotangents of all intermediate values.
template <class S, class Visit>
std::vector<S> reverse(const Operator& op, const Problem& problem, const Slot& slot, const Evaluation& how,
                       Visit&& visit) {
  const Declaration& declaration = op.declaration();
  Tape<S> tape;
  TapeLeaves<S> reader;
  Solution<Var<S>> solution = static_cast<const Evaluator<Var<S>>&>(op).evaluate(
      head_of<Var<S>>(problem, declaration, slot, reader), how);
  divide_out(problem, solution.o);
  std::vector<S> bar(tape.size(), S(0));
  visit_outputs(problem, declaration, slot, solution, final_levels(problem, declaration),
                [&](const std::string& name, Index flat, const Var<S>& value) {
                  const Tensor* cotangent = problem.field(name == "o" ? "do" : "d" + name);
                  if (cotangent && value.node >= 0)
                    bar[static_cast<std::size_t>(value.node)] +=
                        scalar_of<S>(cotangent->data[static_cast<std::size_t>(flat)]);
                });
  std::vector<S> adjoints = tape.adjoints(std::move(bar));
  for (const auto& leaf : reader.leaves)
    visit(leaf.field, leaf.flat, adjoints[static_cast<std::size_t>(leaf.node)]);
  return adjoints;
}

}  // namespace attest
