// The chunk forms of the log-linear operators. A chunk is an aligned dyadic interval of absolute positions (the last
// one may be cut short). Inside it the levels are exact; what lies before it is one pass per block of the cover of
// [0, start), and the level of such a block is one value for a whole aligned chunk:
//   scalar  O = ((Q K^T o Gamma) o Lambda) V + sum_blocks diag(lambda_block g) Q S_block
//   delta   O = ((P T) o Lambda) V + sum_blocks diag(lambda_block) (diag(g) Q - P W) S_block   (P, T, W: delta_operator.hpp)
// Carry: every block takes the chunk's transition; the chunk adds its own dyadic blocks. O(T log T) passes.
#pragma once
#include "reference/operators/common/delta_operator.hpp"
#include "reference/operators/common/log_linear_recurrence.hpp"

namespace attest {

// [first, first + size) in tokens: from an arbitrary position, the next chunk ends at a multiple of its own size.
inline Index aligned_chunk(Index position, Index width, Index remaining) {
  Index size = width;
  while (position % size != 0) size /= 2;
  return std::min(size, remaining);
}

template <class S>
Matrix<S> scale_rows_by_level(const Head<S>& head, Index first, Index source, Matrix<S> rows) {
  const Index base = head.initial.position;
  for (Index t = 0; t < rows.rows(); ++t)
    rows.row(t) *= head.level_scales(first + t, fenwick_level(base + first + t, source));
  return rows;
}

template <class S>
void scale_by_pair_level(const Head<S>& head, Index first, Matrix<S>& weights) {
  const Index base = head.initial.position + first;
  for (Index t = 0; t < weights.rows(); ++t)
    for (Index s = 0; s <= t; ++s)
      weights(t, s) *= head.level_scales(first + t, fenwick_level(base + t, base + s));
}

// Appends the dyadic blocks of the chunk, each the product of its columns of `gain` (key_dim, size) and its values.
template <class S>
void append_blocks(Arithmetic<S>& arithmetic, const Head<S>& head, Index first, const Matrix<S>& gain,
                   DyadicCover<S>& cover) {
  const Index base = head.initial.position + first;
  for (Index done = 0; done < gain.cols();) {
    Index size = std::bit_floor(static_cast<std::uint64_t>(gain.cols() - done));
    while ((base + done) % size != 0) size /= 2;
    const Matrix<S> state =
        arithmetic.product(gain.middle_columns(done, size), head.v.middle_rows(first + done, size));
    cover.push_back(
        {base + done, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 1, state});
    done += size;
  }
  merge_siblings(cover);
  for (auto& block : cover) block.state = arithmetic.carry("carry", std::move(block.state));
}

template <Gate gate>
struct LogLinearScalar : LogLinearRecurrence<ScalarTransition<gate>> {
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    DyadicCover<S> cover = initial_cover(head);
    Matrix<S> o = zeros<S>(head.tokens(), head.v.cols());
    for (Index first = 0, size; first < head.tokens(); first += size) {
      size = aligned_chunk(head.initial.position + first, width, head.tokens() - first);
      const Matrix<S> decay = arithmetic.decay(ScalarTransition<gate>::gates(head), first, first + size);
      const Matrix<S> q = head.q.middle_rows(first, size), k = head.k.middle_rows(first, size);
      Matrix<S> weights = arithmetic.product(q, k.transpose());
      Matrix<S> faded_keys = k;
      for (Index t = 0; t < size; ++t) {
        for (Index s = 0; s < size; ++s)
          weights(t, s) = s <= t ? S(decay(t + 1, s + 1) * weights(t, s)) : S(0);
        faded_keys.row(t) *= decay(size, t + 1);
      }
      scale_by_pair_level(head, first, weights);
      Matrix<S> rows =
          arithmetic.product(arithmetic.operand("weights", weights), head.v.middle_rows(first, size));
      for (const auto& block : cover) {
        Matrix<S> carried = arithmetic.product(q, arithmetic.operand("state", block.state));
        for (Index t = 0; t < size; ++t) carried.row(t) *= decay(t + 1, 0);
        rows += scale_rows_by_level(head, first, block.start, carried);
      }
      o.set_rows(first, rows);
      for (auto& block : cover) block.state *= decay(size, 0);
      append_blocks(arithmetic, head, first, Matrix<S>(arithmetic.operand("keys", faded_keys).transpose()),
                    cover);
    }
    return {arithmetic.output(o), cover_state(cover, head.initial.position + head.tokens(), head.dims())};
  }
};

template <Gate gate>
struct LogLinearDelta : LogLinearRecurrence<DeltaTransition<gate>> {
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    DyadicCover<S> cover = initial_cover(head);
    Matrix<S> o = zeros<S>(head.tokens(), head.v.cols());
    for (Index first = 0, size; first < head.tokens(); first += size) {
      size = aligned_chunk(head.initial.position + first, width, head.tokens() - first);
      const auto c = delta_chunk(arithmetic, head, ScalarTransition<gate>::gates(head), first, size);
      Matrix<S> weights = arithmetic.product(c.scores, c.inverse);
      scale_by_pair_level(head, first, weights);
      Matrix<S> rows = arithmetic.product(arithmetic.operand("weights", weights), c.v);
      const Matrix<S> queries =
          arithmetic.operand("queries", Matrix<S>(c.faded_queries() - arithmetic.product(c.scores, c.w)));
      const Matrix<S> keys = c.faded_keys.transpose();
      for (auto& block : cover) {
        const Matrix<S> before = arithmetic.operand("state", block.state);
        rows += scale_rows_by_level(head, first, block.start, arithmetic.product(queries, before));
        const Matrix<S> removed = arithmetic.operand("removed", arithmetic.product(c.w, before));
        block.state = c.decay(size, 0) * block.state - arithmetic.product(keys, removed);
      }
      o.set_rows(first, rows);
      append_blocks(arithmetic, head, first, arithmetic.operand("gain", arithmetic.product(keys, c.inverse)),
                    cover);
    }
    return {arithmetic.output(o), cover_state(cover, head.initial.position + head.tokens(), head.dims())};
  }
};

}  // namespace attest
