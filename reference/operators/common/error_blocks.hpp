// The dyadic blocks of a log-linear chunk form (log_linear_operator.hpp) as its error models carry them.
#pragma once
#include "reference/operators/common/error_units.hpp"
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest::log_linear {

struct Block {
  Index start;
  int log_size;
  std::vector<Array> parts;  // the state, and whatever travels with it
  bool changed = true;       // since it was last carried: rounding a second time is exact
  Array& state() { return parts[0]; }
};

inline void merge(std::vector<Block>& cover, double step, std::size_t error_part) {
  for (std::size_t i = 0; i + 1 < cover.size();) {
    Block &left = cover[i], &right = cover[i + 1];
    if (left.log_size != right.log_size || (left.start >> left.log_size) % 2 != 0) {
      ++i;
      continue;
    }
    for (std::size_t part = 0; part < left.parts.size(); ++part) left.parts[part] += right.parts[part];
    left.changed = true;
    if (error_part > 0) left.parts[error_part] += step * left.state().cwiseAbs();
    ++left.log_size;
    cover.erase(cover.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
}

inline std::vector<Block> initial_blocks(const Head<double>& head, std::size_t parts) {
  std::vector<Block> cover;
  for (const auto& block : initial_cover(head)) {
    const Array state = to_array(block.state);
    cover.push_back({block.start, block.log_size,
                     std::vector<Array>(parts, Array::Zero(state.rows(), state.cols())), true});
    cover.back().state() = state;
  }
  return cover;
}

// The dyadic blocks into which a chunk of positions falls, as (offset, size).
inline std::vector<std::pair<Index, Index>> pieces(Index position, Index size) {
  std::vector<std::pair<Index, Index>> result;
  for (Index done = 0; done < size;) {
    Index piece = std::bit_floor(static_cast<std::uint64_t>(size - done));
    while ((position + done) % piece != 0) piece /= 2;
    result.emplace_back(done, piece);
    done += piece;
  }
  return result;
}

inline int log2_of(Index size) { return std::bit_width(static_cast<std::uint64_t>(size)) - 1; }

inline double level_scale(const Head<double>& head, Index t, Index source_position) {
  return head.level_scales(t, fenwick_level(head.initial.position + t, source_position));
}

}  // namespace attest::log_linear
