// One head of one sequence: what every form of every operator takes and gives. Batches, heads, grouped heads and
// packed sequences are loops around it (reference/forms/batch.hpp); scale, normalisation and exp(g) are applied
// there too, so an operator sees the linear-domain gate alpha and a q that is already scaled.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reference/tensor/matrix.hpp"

namespace attest {

struct Dims {
  Index key_dim = 0, value_dim = 0;
};

// The moments that a sequence hands to its continuation, by their names in the paper. An ordinary moment is one
// matrix; a log-linear one has a matrix per level. `position` counts the tokens consumed so far.
template <class S>
struct State {
  std::map<std::string, std::vector<Matrix<S>>> moments;
  Index position = 0;
};

template <class S>
struct Head {
  Matrix<S> q;              // (tokens, key_dim)
  Matrix<S> k;              // (tokens, key_dim)
  Matrix<S> v;              // (tokens, value_dim)
  std::vector<S> alpha;     // (tokens) linear-domain gate, where the operator has one
  std::vector<S> log_gate;  // (tokens) g as given, for kernels that exponentiate differences; may be empty
  std::vector<S> beta;      // (tokens)
  Matrix<S> level_scales;   // (tokens, levels)
  S decay{1}, ridge{0};
  State<S> initial;  // no moments: the zero state

  Index tokens() const { return q.rows(); }
  Dims dims() const { return {q.cols(), v.cols()}; }
};

template <class S>
struct Solution {
  Matrix<S> o;  // (tokens, value_dim)
  State<S> final;
};

// The moment `name` of the initial state, or zero.
template <class S>
Matrix<S> initial_moment(const Head<S>& head, const std::string& name, Index rows, Index columns) {
  const auto found = head.initial.moments.find(name);
  return found == head.initial.moments.end() ? zeros<S>(rows, columns) : found->second.at(0);
}

}  // namespace attest
