// Small problems of any operator with entries that stay exact: halves and small integers, drawn from a seed.
#pragma once
#include <bit>
#include <cstdint>
#include <string>

#include "reference/forms/batch.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 2 + 1) {}
  Index below(Index limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<Index>((state_ >> 33) % static_cast<std::uint64_t>(limit));
  }
  double half() { return static_cast<double>(below(7) - 3) / 2; }  // -3/2 .. 3/2
  double unit() { return static_cast<double>(below(5)) / 4; }      // 0 .. 1
  Tensor tensor(std::vector<Index> shape, double (Draw::*entry)()) {
    Tensor result{std::move(shape), {}};
    for (Index i = element_count(result.shape); i > 0; --i) result.data.push_back((this->*entry)());
    return result;
  }

 private:
  std::uint64_t state_;
};

struct SampleShape {
  Index batch = 1, tokens = 6, heads = 2, key_dim = 2, value_dim = 3, levels = 5;
};

inline Tensors sample_fields(const Declaration& d, const SampleShape& s, std::uint64_t seed) {
  Draw draw(seed);
  const Index b = s.batch, t = s.tokens, h = s.heads;
  Tensors fields{{"q", draw.tensor({b, t, h, s.key_dim}, &Draw::half)},
                 {"k", draw.tensor({b, t, h, s.key_dim}, &Draw::half)},
                 {"v", draw.tensor({b, t, h, s.value_dim}, &Draw::half)}};
  if (d.gates) fields["alpha"] = draw.tensor({b, t, h}, &Draw::unit);
  if (d.beta) fields["beta"] = draw.tensor({b, t, h}, &Draw::unit);
  if (d.level_scales) fields["level_scales"] = draw.tensor({b, t, h, s.levels}, &Draw::half);
  return fields;
}

inline Options sample_options(const Declaration& d, bool normalize = false) {
  Options options;
  if (d.decay) options.decay = Rational(1) / 2;
  if (d.ridge) options.ridge = Rational(3) / 4;
  if (d.normalize && normalize) options.normalize = true, options.epsilon = Rational(1) / 1024;
  return options;
}

// Tokens [first, last) of every per-token field.
inline Tensors token_range(const Tensors& fields, Index first, Index last) {
  Tensors part;
  for (const auto& [name, tensor] : fields) {
    Tensor& kept = part[name];
    kept.shape = tensor.shape;
    kept.shape[1] = last - first;
    const Index width = element_count(tensor.shape) / std::max<Index>(1, tensor.shape[0] * tensor.shape[1]);
    for (Index b = 0; b < tensor.shape[0]; ++b) {
      const auto row = tensor.data.begin() + b * tensor.shape[1] * width;
      kept.data.insert(kept.data.end(), row + first * width, row + last * width);
    }
  }
  return part;
}

}  // namespace attest
