// The chunks of gated_delta (UT transform) and of the log-linear operators, as in reference/operators/common:
//   N = I + stril(beta K K^T o W), T = N^-1 beta, w = T (g K), u = T V - w S, o = g Q S + (Q K^T o W) u,
//   S <- W(end) S + K'^T u; log-linear: the pair weights times the level scales, one pass per level of the state.
#include "gpu_checks/mutants/production_run.hpp"

namespace attest {

Tile ProductionRun::invert(const Tile& n) const {
  Tile result = identity_matrix<float>(n.rows());
  if (is(Edit::inverse_identity)) return result;
  const Tile strict = result - n;
  if (is(Edit::inverse_diagonal)) return result + strict;
  if (is(Edit::inverse_three_terms)) return result + strict + multiply(strict, strict);
  if (is(Edit::inverse_powers_bf16)) {
    Tile power = strict;
    result = result + strict;
    for (Index reached = 2; reached < n.rows(); reached *= 2) {
      power = rounded(multiply(power, power));
      result = rounded(Tile(result + multiply(result, power)));
    }
    return result;
  }
  for (Index i = 0; i < n.rows(); ++i)
    for (Index s = 0; s < i; ++s)
      for (Index j = 0; j <= s; ++j) result(i, j) -= n(i, s) * result(s, j);
  return result;
}

ProductionRun::DeltaTiles ProductionRun::delta_tiles(const Chunk& c) const {
  DeltaTiles tiles{scores(c.q, c.k), {}, c.k, {}, c.q};
  Tile n = multiply(c.k, c.k.transpose()), faded = c.k;
  const Index end = end_of(c);
  for (Index t = 0; t < C; ++t) {
    const float beta = c.beta[static_cast<std::size_t>(t)];
    for (Index s = 0; s < C; ++s) {
      const bool seen = is(Edit::mask_strict) ? s < t : is(Edit::mask_missing_in_chunk) ? s <= t + 1 : s <= t;
      tiles.scores(t, s) = seen ? (s <= t ? c.weights(t + 1, s + 1) : 1) * tiles.scores(t, s) : 0;
      const float inside = is(Edit::gate_inside_twice) ? c.weights(t + 1, s + 1) * c.weights(t + 1, s + 1)
                           : is(Edit::inner_undecayed) ? 1
                                                       : c.weights(t + 1, s + 1);
      const float key_beta = is(Edit::beta_key_side_missing) ? 1 : beta;
      n(t, s) = s < t ? key_beta * inside * n(t, s) : s == t ? 1 : 0;
      if (is(Edit::cross_sign) && s < t) n(t, s) = -n(t, s);
    }
    faded.row(t) *= c.weights(is(Edit::decay_late) ? t : t + 1, 0);
    tiles.faded_queries.row(t) *= c.weights(t + 1, 0);
    tiles.faded_keys.row(t) *= t < end ? c.weights(end, t + 1) : 1;
  }
  tiles.inverse = invert(n);
  for (Index t = 0; t < C; ++t)
    for (Index s = 0; s <= t; ++s) {
      const float beta = is(Edit::beta_missing) ? 1 : c.beta[static_cast<std::size_t>(s)];
      tiles.inverse(t, s) *= is(Edit::beta_twice) ? beta * beta : beta;
    }
  tiles.scores = operand(tiles.scores), tiles.inverse = operand(tiles.inverse);
  tiles.faded_keys = operand(tiles.faded_keys);
  tiles.w = operand(multiply(tiles.inverse, operand(faded)));
  if (is(Edit::skip_when_keys_small)) {
    float largest = 0;
    for (Index i = 0; i < c.v.size(); ++i) largest = std::max(largest, std::abs(c.v.data()[i]));
    if (largest < 0x1p-10f) tiles.w *= 0;
  }
  return tiles;
}

Tile ProductionRun::chunk_of_delta(const Chunk& c) {
  Tile& S = state_[0];
  const DeltaTiles x = delta_tiles(c);
  const Tile before = operand(S), values = multiply(x.inverse, c.v);
  Tile correction = multiply(x.w, before);
  if (is(Edit::cross_dropped)) correction *= 0;
  if (is(Edit::split_correction_twice))
    for (Index t = 0; t < C; ++t)
      for (Index j = production_tile; j < columns_; ++j) correction(t, j) *= 2;
  const Tile u = operand(Tile(values - correction));
  Tile carried = multiply(c.q, before);
  scale_rows(carried, c.weights, is(Edit::decay_power_low) ? 0 : 1);
  Tile o = carried + multiply(x.scores, is(Edit::correction_dropped) ? operand(values) : u);
  if (is(Edit::cross_between_chunks)) o = multiply(x.scores, u);
  if (is(Edit::prefix_first_row) && c.first > 0) o.row(0) = Tile(carried.row(0));
  const float whole = is(Edit::state_undecayed) ? 1 : c.weights(end_of(c), 0);
  S = whole * S + multiply(x.faded_keys.transpose(), is(Edit::state_inclusive) ? operand(values) : u);
  if (is(Edit::round_state_bf16)) S = rounded(S);
  return o;
}

Index ProductionRun::level_of(Index t, Index s) const {
  const auto a = static_cast<std::uint64_t>(t), b = static_cast<std::uint64_t>(s);
  if (is(Edit::level_of_distance)) return std::bit_width(a - b);
  if (is(Edit::level_float_log)) {
    const float x = static_cast<float>(a ^ b);
    return x == 0 ? 0 : static_cast<Index>(std::floor(std::log2(x) * (1 - 0x1p-22f))) + 1;
  }
  Index level = std::bit_width(a ^ b);
  if (is(Edit::level_off_at_powers) && std::has_single_bit(a)) level = std::max<Index>(level - 1, 0);
  return level;
}

float ProductionRun::level_scale(const Chunk& c, Index t, Index s) const {
  Index level = level_of(position_ + t, s);
  if (is(Edit::level_zero_is_one) && level == 0) level = 1;
  if (is(Edit::level_one_too_few)) level = std::min(level, c.lambda.cols() - 2);
  if (is(Edit::level_clamped)) level = std::min<Index>(level, 5);
  const Index row = is(Edit::level_scale_of_key) ? std::clamp<Index>(s - position_, 0, C - 1) : t;
  if (t >= c.size) return 0;
  return c.lambda(row, std::clamp<Index>(level, 0, c.lambda.cols() - 1));
}

// The dyadic blocks of the chunk join the levels, siblings merged: level b + 1 holds the block of 2^b tokens.
void ProductionRun::append_blocks(const Chunk& c, const Tile& gain) {
  for (Index done = 0; done < c.size;) {
    auto size = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(c.size - done)));
    while ((position_ + done) % size != 0) size /= 2;
    Tile block = multiply(gain.middle_columns(done, size), c.v.middle_rows(done, size));
    auto bit = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size)) - 1);
    const auto start = static_cast<std::uint64_t>(position_ + done);
    for (bool first = true; start >> bit & 1; ++bit, first = false) {
      if (is(Edit::level_merge_precedence) && (start & (2 > 0)) == 0 && bit > 4) break;
      if (state_.size() <= bit + 1) break;
      block += state_[bit + 1];
      if (!is(Edit::level_not_cleared) || !first) state_[bit + 1] *= 0;
    }
    if (is(Edit::level_merge_wrong_slot) && bit > 5) --bit;
    while (state_.size() < bit + 2) state_.emplace_back(key_dim_, columns_);
    state_[bit + 1] = std::move(block);
    done += size;
  }
}

Tile ProductionRun::chunk_of_levels(const Chunk& c, bool delta) {
  const Index end = end_of(c);
  DeltaTiles x;
  Tile pairs, queries = c.q, gain = c.k;
  if (delta) {
    x = delta_tiles(c);
    pairs = multiply(x.scores, x.inverse);
    queries = operand(Tile(x.faded_queries - multiply(x.scores, x.w)));
    if (is(Edit::correction_dropped)) queries = operand(x.faded_queries);
    gain = operand(multiply(x.faded_keys.transpose(), x.inverse));
  } else {
    pairs = scores(c.q, c.k);
    for (Index t = 0; t < C; ++t) {
      for (Index s = 0; s < C; ++s) {
        const bool seen = is(Edit::mask_strict)             ? s < t
                          : is(Edit::mask_missing_in_chunk) ? s <= t + 1
                                                            : s <= t;
        pairs(t, s) = seen ? (s <= t ? c.weights(t + 1, s + 1) : 1) * pairs(t, s) : 0;
      }
      gain.row(t) *= t < end ? c.weights(end, t + 1) : 1;
    }
    gain = operand(gain).transpose();
  }
  for (Index t = 0; t < C; ++t)
    for (Index s = 0; s < C; ++s) pairs(t, s) *= level_scale(c, t, position_ + std::min(s, t));
  Tile o = multiply(operand(pairs), c.v);
  if (is(Edit::prefix_first_row) && c.first > 0) o.row(0) *= 0;
  const Tile before_keys = x.faded_keys.transpose();
  for (std::size_t level = 1; level < state_.size(); ++level) {
    if (!(static_cast<std::uint64_t>(position_) >> (level - 1) & 1)) {
      if (!is(Edit::level_not_cleared)) continue;
    }
    const Index start = position_ >> level << level;
    const Tile before = operand(state_[level]);
    Tile carried = multiply(queries, before);
    for (Index t = 0; t < C; ++t) {
      if (!delta) carried.row(t) *= c.weights(is(Edit::decay_late) ? t : t + 1, 0);
      Index source = start;
      if (is(Edit::level_chunk_shift)) source = std::max<Index>(0, start - 1);
      carried.row(t) *= level_scale(c, t, source);
      if (is(Edit::split_correction_twice))
        for (Index j = production_tile; j < columns_; ++j) carried(t, j) *= 2;
    }
    if (!is(Edit::cross_between_chunks)) o += carried;
    const float whole =
        is(Edit::state_undecayed) || (is(Edit::level_idle_undecayed) && level > 5) ? 1 : c.weights(end, 0);
    Tile& state = state_[level];
    if (!delta)
      state *= whole;
    else {
      Tile removed = operand(multiply(x.w, before));
      if (is(Edit::cross_dropped)) removed *= 0;
      state = whole * state - multiply(before_keys, removed);
    }
    if (is(Edit::round_state_bf16)) state = rounded(state);
  }
  append_blocks(c, gain);
  return o;
}

}  // namespace attest
