// Linear attention, o_t = sum_{s <= t} (scale q_t . k_s) v_s, one token at a time: S <- S + k v^T, o = scale S^T q.
// q, k [B, T, H, d], v, o [B, T, H, dv]; S [d, dv] is a state of one head.
#pragma once
#include <cstddef>
#include <span>

struct LinearAttention {
  std::size_t batch, tokens, heads, key_dim, value_dim;
  float scale = 1;
  bool forgets_itself = false;  // a fault to be found: o_t without its own token
  void operator()(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                  std::span<float> o) const;
};
