// A whole call of an operator: named tensors in the layout [B, T, H, D] of SPEC names, options with exact values.
// q, k, v may carry fewer heads than the output, their count dividing it; level_scales is [B, T, H, L], g, alpha and
// beta [B, T, H], decay [H], cu_seqlens [N+1] on a B = 1 packed tensor, initial_state.X [N, H, ...] (log-linear:
// [N, H, L, d, dv] with initial_state.position [N]). Values are doubles and exact: files hold nothing wider.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/numeric/rational.hpp"
#include "reference/tensor/matrix.hpp"

namespace attest {

struct Tensor {
  std::vector<Index> shape;
  std::vector<double> data;  // row-major
};
using Tensors = std::map<std::string, Tensor>;

Index element_count(const std::vector<Index>& shape);

struct Options {
  bool normalize = false;
  Rational epsilon{0}, ridge{0};
  std::optional<Rational> scale, decay;  // none: the operator's default, or the field decay
};

// "decay=3/4 normalize=true": what differs from the defaults, in a fixed order.
std::string to_text(const Options& options);

struct Problem {
  Tensors fields;
  Options options;
  Index batch = 0, tokens = 0, heads = 0, key_dim = 0, value_dim = 0, levels = 0;
  std::vector<Index> cu_seqlens;     // empty: not packed
  bool wants_states = true;          // whether a kernel is asked for the final states
  std::vector<std::string> ignored;  // fields given that this operator does not take

  const Tensor* field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  }
  Index sequences() const { return cu_seqlens.empty() ? batch : static_cast<Index>(cu_seqlens.size()) - 1; }
};

// One head of one sequence of a problem: rows [first, last) of batch entry `batch`; `sequence` counts states.
struct Slot {
  Index batch, sequence, head, first, last;
};
std::vector<Slot> slots(const Problem& problem);

// Tokens consumed before and after this call, per sequence (the initial state's position is 0 unless given).
std::vector<Index> initial_positions(const Problem& problem);
std::vector<Index> final_positions(const Problem& problem);

}  // namespace attest
