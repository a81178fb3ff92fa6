// Log-linear attention as printed: literal transcriptions of arXiv 2506.04761 section 3. Level states S^(l), the Fenwick
// partition of [0, t], the mask M^H, the parallel forms (Q K^T o M^S o M^H) V and the weighted (gated) delta sum.
#pragma once
#include <bit>

#include "proofs/claim.hpp"

namespace attest::printed {

struct Bucket {
  Index first, last, level;  // [first, last)
};
// {t} at level 0, then the lowest set bits of what remains: [p - lowbit(p), p) at level log2(lowbit(p)) + 1.
inline std::vector<Bucket> fenwick_buckets(Index t) {
  std::vector<Bucket> buckets = {{t, t + 1, 0}};
  for (Index p = t; p > 0;) {
    const Index size = p & -p;
    buckets.push_back({p - size, p, static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(size)))});
    p -= size;
  }
  return buckets;
}
inline Index bit_length(Index x) { return static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(x))); }
inline Index popcount(Index x) { return static_cast<Index>(std::popcount(static_cast<std::uint64_t>(x))); }
inline Index pair_level(Index t, Index s) { return bit_length(t ^ s); }
inline Index levels_for(Index tokens) { return tokens > 0 ? bit_length(tokens - 1) + 1 : 1; }

// Phi_t y = alpha_t (y - beta_t k_t (k_t^T y)), or alpha_t y without beta.
template <class S>
Matrix<S> transition(const Head<S>& in, Index t, const Matrix<S>& y) {
  const S alpha = in.alpha.empty() ? S(1) : in.alpha[static_cast<std::size_t>(t)];
  if (in.beta.empty()) return alpha * y;
  const Matrix<S> k = in.k.row(t);
  return alpha * (y - in.beta[static_cast<std::size_t>(t)] * outer(k, product(k, y)));
}
template <class S>
Matrix<S> injection(const Head<S>& in, Index t) {
  const Matrix<S> kv = outer(in.k.row(t), in.v.row(t));
  return in.beta.empty() ? kv : in.beta[static_cast<std::size_t>(t)] * kv;
}

// o_t = sum_s lambda_t^{level(t,s)} q_t^T Phi_t ... Phi_{s+1} beta_s k_s v_s^T; `level` replaces pair_level in controls.
template <class S, class L>
Matrix<S> log_linear_parallel(const Head<S>& in, L level) {
  Matrix<S> o = zeros<S>(in.tokens(), in.v.cols());
  for (Index s = 0; s < in.tokens(); ++s) {
    Matrix<S> carried = injection(in, s);
    for (Index t = s; t < in.tokens(); ++t) {
      if (t > s) carried = transition(in, t, carried);
      o.row(t) += in.level_scales(t, level(t, s)) * product(in.q.row(t), carried);
    }
  }
  return o;
}
template <class S>
Matrix<S> log_linear_parallel(const Head<S>& in) {
  return log_linear_parallel(in, pair_level);
}

// Before token t >= 1, z its trailing zeros: S^(z+1) = sum_{l<=z} S^(l), levels 0..z empty; then the transition of t
// acts on every state; then S^(0) = beta_t k_t v_t^T. o_t = sum_l lambda_t^l q_t^T S^(l).
enum class MergeRule { printed, one_level_low, inject_first };
template <class S>
Matrix<S> log_linear_stream(const Head<S>& in, MergeRule rule = MergeRule::printed) {
  const auto [d, dv] = in.dims();
  const Index levels = levels_for(in.tokens()) + 1;
  std::vector<Matrix<S>> states(static_cast<std::size_t>(levels), zeros<S>(d, dv));
  Matrix<S> o = zeros<S>(in.tokens(), dv);
  for (Index t = 0; t < in.tokens(); ++t) {
    if (t > 0) {
      const auto z = static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(t)));
      Matrix<S> sum = zeros<S>(d, dv);
      for (std::size_t l = 0; l <= z; ++l) sum += states[l], states[l] = zeros<S>(d, dv);
      states[rule == MergeRule::one_level_low ? z : z + 1] += sum;
    }
    if (rule == MergeRule::inject_first) states[0] = injection(in, t);
    for (auto& state : states) state = transition(in, t, state);
    if (rule == MergeRule::printed || rule == MergeRule::one_level_low) states[0] = injection(in, t);
    for (Index l = 0; l + 1 < levels; ++l)
      o.row(t) += in.level_scales(t, l) * product(in.q.row(t), states[static_cast<std::size_t>(l)]);
  }
  return o;
}

// How many levels hold something after token t was inserted.
inline std::vector<Index> live_levels(Index tokens) {
  std::vector<bool> live(static_cast<std::size_t>(levels_for(tokens) + 1), false);
  std::vector<Index> counts;
  for (Index t = 0; t < tokens; ++t) {
    if (t > 0) {
      const auto z = static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(t)));
      for (std::size_t l = 0; l <= z; ++l) live[l] = false;
      live[z + 1] = true;
    }
    live[0] = true;
    counts.push_back(std::count(live.begin(), live.end(), true));
  }
  return counts;
}

template <class S>
Matrix<S> hierarchical_mask(const Matrix<S>& level_scales) {
  const Index n = level_scales.rows();
  Matrix<S> mask = zeros<S>(n, n);
  for (Index t = 0; t < n; ++t)
    for (Index s = 0; s <= t; ++s) mask(t, s) = level_scales(t, pair_level(t, s));
  return mask;
}

}  // namespace attest::printed
