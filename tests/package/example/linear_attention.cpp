#include "linear_attention.hpp"

#include <vector>

namespace {

void add_token(std::vector<float>& state, std::span<const float> k, std::span<const float> v) {
  for (std::size_t i = 0; i < k.size(); ++i)
    for (std::size_t c = 0; c < v.size(); ++c) state[i * v.size() + c] += k[i] * v[c];
}

void read(const std::vector<float>& state, std::span<const float> q, float scale, std::span<float> o) {
  for (std::size_t c = 0; c < o.size(); ++c) {
    float sum = 0;
    for (std::size_t i = 0; i < q.size(); ++i) sum += scale * q[i] * state[i * o.size() + c];
    o[c] = sum;
  }
}

}  // namespace

void LinearAttention::operator()(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                 std::span<float> o) const {
  const std::size_t d = key_dim, dv = value_dim;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<float> state(d * dv);
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::size_t row = (b * tokens + t) * heads + h;
        if (forgets_itself) read(state, q.subspan(row * d, d), scale, o.subspan(row * dv, dv));
        add_token(state, k.subspan(row * d, d), v.subspan(row * dv, dv));
        if (!forgets_itself) read(state, q.subspan(row * d, d), scale, o.subspan(row * dv, dv));
      }
    }
}
