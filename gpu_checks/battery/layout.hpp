// Problems cut, joined and rearranged, and their outputs with them: what relations between calls are stated with.
#pragma once
#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

// Tokens [first, last) of every batch entry; not packed. An initial state stays only where first = 0.
Problem token_range(const Problem& problem, Index first, Index last);
Tensor token_range(const Tensor& per_token, Index first, Index last);  // [B, T, ...]
// The problem continued from final states ("final_state.X") after `consumed` tokens (per sequence).
Problem continued_from(Problem problem, const Tensors& outputs, const Declaration& declaration,
                       const std::vector<Index>& consumed);
// Batch entry b alone, B = 1.
Problem batch_entry(const Problem& problem, Index b);
Tensor batch_entry(const Tensor& tensor, Index b);  // the first axis
// A packed sequence, or a batch entry, by itself: not packed, with its initial state.
Problem sequence_alone(const Problem& problem, Index sequence);
// Problems of B = 1 and equal heads and widths, one after another with cu_seqlens; their states beside one another.
Problem packed(const std::vector<Problem>& sequences, const Declaration& declaration);
// Batch entries and heads in another order: entry b, head h of the result is batch_order[b], head_order[h] of the
// problem, of which there may be more or fewer then. Every field has to have all heads.
Problem rearranged(const Problem& problem, const std::vector<Index>& batch_order,
                   const std::vector<Index>& head_order);
Tensor rearranged(const Tensor& tensor, bool per_token, const std::vector<Index>& batch_order,
                  const std::vector<Index>& head_order);
// Every field with the operator's heads: shared ones are repeated.
Problem ungrouped(const Problem& problem);

// The same problem with alpha = exp(g) in the place of g; 0 where exp(g) is 0 in every format.
Problem with_linear_gates(Problem problem);

}  // namespace attest
