// The chunks of the HLA family, as in reference/operators: compositions of decayed linear attention.
//   hla2   a = Lin(q, k, k), u = Lin(a, q, v), b = gamma Lin'(k, q, v) exclusive, g = Lin^2(q, k, b); o = u - g
//   ahla   r = Lin(q, k, v), o = Lin(q, k, r)
//   hla3   a = Lin(q, k, k), r = Lin(q, k, v), o = Lin^3(q, a, r)
#include "gpu_checks/mutants/production_run.hpp"

namespace attest {

Tile ProductionRun::chunk_of_hla2(const Chunk& c) {
  Tile &S = state_[0], &M = state_[1], &G = state_[2];
  const bool masked = !is(Edit::mask_missing_in_chunk);
  const Tile& q_key_side = is(Edit::query_key_swapped) ? c.k : c.q;
  const Tile a =
      operand(read(c.q, c.k, c.k, c.weights, S, is(Edit::inner_exclusive),
                   is(Edit::prefix_first_row) && c.first > 0, masked, !is(Edit::carried_inner_dropped)));
  Tile u = read(a, q_key_side, c.v, c.weights, M, false, is(Edit::mask_strict));
  Tile b = read(c.k, q_key_side, c.v, c.weights, M, !is(Edit::cross_inclusive), false, true,
                !is(Edit::cross_between_chunks));
  if (!is(Edit::decay_late)) b *= gamma_;
  b = operand(b);
  const Tile& g_weights = is(Edit::decay_as_printed) || is(Edit::decay_power_low) ? c.weights : c.squared;
  Tile g = read(c.q, c.k, b, g_weights, G);
  if (is(Edit::cross_swapped)) g = read(c.k, c.q, b, g_weights, G);
  if (is(Edit::round_before_subtraction)) u = rounded(u), g = rounded(g);
  Tile o = is(Edit::cross_dropped) ? u : is(Edit::cross_sign) ? Tile(u + g) : Tile(u - g);
  if (is(Edit::skip_when_keys_small)) {
    float largest = 0;
    for (Index i = 0; i < c.k.size(); ++i) largest = std::max(largest, std::abs(c.k.data()[i]));
    if (largest < 0x1p-10f) o = u;
  }
  if (is(Edit::split_correction_twice))
    for (Index t = 0; t < C; ++t)
      for (Index j = production_tile; j < columns_; ++j) o(t, j) -= g(t, j);
  if (ridge_ != 0 && !is(Edit::ridge_dropped)) o += ridge_ * read(c.q, c.q, c.v, c.weights, M);
  advance(S, c.k, c.k, c.weights, c.size);
  advance(M, q_key_side, c.v, c.weights, c.size);
  if (!is(Edit::second_prefix_exclusive) || c.size == C) advance(G, c.k, b, g_weights, c.size);
  return o;
}

Tile ProductionRun::chunk_of_ahla(const Chunk& c) {
  Tile &P = state_[0], &E = state_[1];
  const Tile& inner_keys = is(Edit::query_key_swapped) ? c.q : c.k;
  const Tile& inner_weights = is(Edit::inner_undecayed) ? Chunk().weights : c.weights;
  Tile flat;
  if (is(Edit::inner_undecayed)) {
    flat = Tile(C + 1, C + 1);
    for (Index t = 0; t <= C; ++t)
      for (Index s = 0; s <= t; ++s) flat(t, s) = 1;
  }
  const Tile& weights = is(Edit::inner_undecayed) ? flat : inner_weights;
  Tile r = read(c.q, inner_keys, c.v, weights, P, is(Edit::inner_exclusive) || is(Edit::cross_inclusive),
                is(Edit::prefix_first_row) && c.first > 0, !is(Edit::mask_missing_in_chunk),
                !is(Edit::cross_dropped) && !is(Edit::carried_inner_dropped));
  if (is(Edit::decay_late)) r *= gamma_;
  r = operand(r);
  const Tile& outer = is(Edit::decay_power_low) ? c.squared : c.weights;
  Tile o = read(is(Edit::cross_swapped) ? c.k : c.q, is(Edit::cross_swapped) ? c.q : c.k, r, outer, E, false,
                is(Edit::mask_strict), true, !is(Edit::cross_between_chunks));
  if (is(Edit::split_correction_twice)) {
    const Tile carried = multiply(c.q, operand(E));
    for (Index t = 0; t < C; ++t)
      for (Index j = production_tile; j < columns_; ++j) o(t, j) += carried(t, j);
  }
  advance(P, inner_keys, c.v, weights, c.size);
  if (!is(Edit::second_prefix_exclusive) || c.size == C) advance(E, c.k, r, outer, c.size);
  return o;
}

Tile ProductionRun::chunk_of_hla3(const Chunk& c) {
  Tile &S = state_[0], &P = state_[1], &F = state_[2];
  Tile a =
      read(c.q, c.k, c.k, c.weights, S, is(Edit::inner_exclusive), is(Edit::prefix_first_row) && c.first > 0,
           !is(Edit::mask_missing_in_chunk), !is(Edit::cross_between_chunks));
  Tile r = read(c.q, is(Edit::query_key_swapped) ? c.q : c.k, c.v, c.weights, P, is(Edit::cross_inclusive),
                false, true, !is(Edit::cross_dropped) && !is(Edit::carried_inner_dropped));
  if (is(Edit::decay_late)) r *= gamma_;
  a = operand(a), r = operand(r);
  const Tile& outer = is(Edit::decay_power_low)    ? c.squared
                      : is(Edit::decay_as_printed) ? c.weights
                                                   : c.cubed;
  Tile o = read(is(Edit::cross_swapped) ? a : c.q, is(Edit::cross_swapped) ? c.q : a, r, outer, F, false,
                is(Edit::mask_strict));
  if (is(Edit::split_correction_twice)) {
    const Tile carried = multiply(c.q, operand(F));
    for (Index t = 0; t < C; ++t)
      for (Index j = production_tile; j < columns_; ++j) o(t, j) += carried(t, j);
  }
  advance(S, c.k, c.k, c.weights, c.size);
  advance(P, is(Edit::query_key_swapped) ? c.q : c.k, c.v, c.weights, c.size);
  if (!is(Edit::second_prefix_exclusive) || c.size == C) advance(F, a, r, outer, c.size);
  return o;
}

}  // namespace attest
