// Which rows of a delta rule's state keys have touched since a gate closed (alpha <= 2^-8). The others only fade, so that
// their errors stay as small as they are: a row of 10^-50 does not carry the error of one that a key has just filled. And a
// row that no key has touched is exactly zero. Matters for keys with zeros alone; tests/forms/certified_delta.md "Layers".
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "reference/forms/certified_delta_error.hpp"

namespace attest {

inline constexpr int kLayers =
    6;  // rows untouched since the last closed gate, the one before, ...; the last for all older
inline constexpr double kClosed = 0x1p-8;

inline bool keys_have_zeros(const CertifiedDelta& input) {
  return std::any_of(input.k, input.k + input.tokens * input.key_dim, [](double x) { return x == 0; });
}

class RowLayers {
 public:
  static constexpr int untouched = kLayers + 1;  // beyond all layers

  explicit RowLayers(Index key_dim = 0, bool all = false)
      : layer_(static_cast<std::size_t>(key_dim), all ? 0 : untouched) {}
  void close() {
    for (int& layer : layer_)
      if (layer != untouched) layer = std::min(layer + 1, kLayers);
  }
  // With a value the key fills its rows; without, only where it meets some that are not zero.
  void touch(const double* k, bool value) {
    bool meets = value;
    for (std::size_t i = 0; i < layer_.size(); ++i) meets = meets || (k[i] != 0 && layer_[i] != untouched);
    for (std::size_t i = 0; meets && i < layer_.size(); ++i)
      if (k[i] != 0) layer_[i] = 0;
  }
  void add(const RowLayers& other) {
    for (std::size_t i = 0; i < layer_.size(); ++i) layer_[i] = std::min(layer_[i], other.layer_[i]);
  }
  // At least the norms of q on the rows of each layer; 0 where it meets none.
  std::array<double, kLayers + 1> queries(const double* q) const {
    std::array<double, untouched + 1> squares{};
    std::array<bool, untouched + 1> meets{};
    for (std::size_t i = 0; i < layer_.size(); ++i) {
      const auto layer = static_cast<std::size_t>(layer_[i]);
      squares[layer] += q[i] * q[i], meets[layer] = meets[layer] || q[i] != 0;
    }
    const double inflation = norm_inflation(static_cast<Index>(layer_.size()));
    std::array<double, kLayers + 1> norms{};
    for (std::size_t layer = 0; layer < norms.size(); ++layer)
      if (meets[layer]) norms[layer] = norm_from(squares[layer], inflation) * kDeltaUp;
    return norms;
  }

 private:
  std::vector<int> layer_;
};

}  // namespace attest
