// Log-linear attention over a first-order recurrence: each term of its sum is weighted by the level of its pair,
//   o_t = sum_{s<=t} lambda_t^{level(t,s)} q_t^T [Phi_t ... Phi_{s+1}] beta_s k_s v_s^T,  level = bit_length(t xor s),
// positions absolute (a continued sequence starts at head.initial.position). Bit arithmetic only.
// Segment: ([a,b), Phi, {dyadic block -> its state carried to b}) on the maximal dyadic cover of [a,b);
// A then B: Phi = Phi_B Phi_A, blocks = Phi_B blocks_A and blocks_B, siblings merged by adding. Read-out takes the
// cover of [0,t) and the token itself: the cover of [0,t] is another partition.
// State: moments["S"][level], level b+1 for the block of size 2^b of the cover of [0, position).
// Source: Guo et al. 2025, arXiv 2506.04761, section 3.
#pragma once
#include <bit>

#include "reference/operators/common/linear_recurrence.hpp"

namespace attest {

inline int fenwick_level(Index t, Index s) {
  return std::bit_width(static_cast<std::uint64_t>(t) ^ static_cast<std::uint64_t>(s));
}

template <class S>
struct DyadicBlock {
  Index start;
  int log_size;
  Matrix<S> state;  // (key_dim, value_dim), carried to the end of its cover
};

template <class S>
using DyadicCover = std::vector<DyadicBlock<S>>;

// Adds up siblings until none are left: the cover is then the maximal one.
template <class S>
void merge_siblings(DyadicCover<S>& cover) {
  for (std::size_t i = 0; i + 1 < cover.size();) {
    DyadicBlock<S>&left = cover[i], &right = cover[i + 1];
    const bool siblings = left.log_size == right.log_size && (left.start >> left.log_size) % 2 == 0;
    if (!siblings) {
      ++i;
      continue;
    }
    left.state += right.state;
    ++left.log_size;
    cover.erase(cover.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
}

template <class S>
DyadicCover<S> initial_cover(const Head<S>& head) {
  DyadicCover<S> cover;
  const auto position = static_cast<std::uint64_t>(head.initial.position);
  const auto found = head.initial.moments.find("S");
  if (found == head.initial.moments.end()) return cover;
  for (int bit = std::bit_width(position); bit-- > 0;)
    if (position >> bit & 1)
      cover.push_back(
          {static_cast<Index>(position >> (bit + 1) << (bit + 1)), bit, found->second.at(bit + 1)});
  return cover;
}

template <class S>
State<S> cover_state(const DyadicCover<S>& cover, Index position, Dims dims) {
  State<S> state;
  state.position = position;
  const int levels = std::bit_width(static_cast<std::uint64_t>(position)) + 1;
  auto& moments = state.moments["S"];
  moments.assign(levels, zeros<S>(dims.key_dim, dims.value_dim));
  for (const auto& block : cover) moments[block.log_size + 1] = block.state;
  return state;
}

template <class Transition>
struct LogLinearRecurrence {
  static constexpr bool reads_before = true;

  template <class S>
  struct Segment {
    bool empty = true;
    typename Transition::template Phi<S> phi;
    DyadicCover<S> blocks;
    template <class F>
    void visit(F&& f) {
      for (auto& block : blocks) f("S", block.state);
    }
  };
  template <class S>
  static Segment<S> identity(Dims dims) {
    return {true, Transition::template identity<S>(dims), {}};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    return {false,
            Transition::transition(head, t),
            {{head.initial.position + t, 0, Transition::injection(head, t)}}};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    if (a.empty) return b;
    if (b.empty) return a;
    Segment<S> result{false, Transition::compose(b.phi, a.phi), {}};
    for (const auto& block : a.blocks)
      result.blocks.push_back({block.start, block.log_size, Transition::apply(b.phi, block.state)});
    result.blocks.insert(result.blocks.end(), b.blocks.begin(), b.blocks.end());
    merge_siblings(result.blocks);
    return result;
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& before, const Head<S>& head, Index t) {
    const Index now = head.initial.position + t;
    const Matrix<S> y = Transition::pull_back(Matrix<S>(head.q.row(t)), head, t);
    Matrix<S> o = head.level_scales(t, 0) * Transition::injected_weight(Matrix<S>(head.q.row(t)), head, t) *
                  head.v.row(t);
    for (const auto& block : before.blocks)
      o += head.level_scales(t, fenwick_level(now, block.start)) * product(y, block.state);
    return o;
  }
  template <class S>
  static Segment<S> import_state(const Head<S>& head) {
    const DyadicCover<S> cover = initial_cover(head);
    return {cover.empty(), Transition::template identity<S>(head.dims()), cover};
  }
  template <class S>
  static State<S> export_state(const Segment<S>& segment, const Head<S>& head) {
    return cover_state(segment.blocks, head.initial.position + head.tokens(), head.dims());
  }

  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const Index base = head.initial.position;
    const DyadicCover<S> initial = initial_cover(head);
    Solution<S> result{zeros<S>(head.tokens(), head.v.cols()), {}};
    for (Index t = 0; t < head.tokens(); ++t) {
      Matrix<S> y = head.q.row(t);
      for (Index s = t; s >= 0; --s) {
        const S& lambda = head.level_scales(t, fenwick_level(base + t, base + s));
        result.o.row(t) += lambda * Transition::injected_weight(y, head, s) * head.v.row(s);
        y = Transition::pull_back(y, head, s);
      }
      for (const auto& block : initial)
        result.o.row(t) +=
            head.level_scales(t, fenwick_level(base + t, block.start)) * product(y, block.state);
    }
    result.final = direct_state(head, initial);
    return result;
  }

 private:
  // The state of every block of the cover of [0, end) as a sum over the tokens and initial blocks inside it.
  template <class S>
  static State<S> direct_state(const Head<S>& head, const DyadicCover<S>& initial) {
    const Index base = head.initial.position, end = base + head.tokens(), key_dim = head.q.cols();
    State<S> state = cover_state<S>({}, end, head.dims());
    auto level_of = [&](Index s) {
      return fenwick_level(end, s);
    };  // the block of the cover of [0,end) that holds s
    const Matrix<S> unit = identity_matrix<S>(key_dim);
    for (Index a = 0; a < key_dim; ++a) {
      Matrix<S> y = unit.row(a);
      for (Index s = head.tokens() - 1; s >= 0; --s) {
        state.moments["S"][level_of(base + s)].row(a) +=
            Transition::injected_weight(y, head, s) * head.v.row(s);
        y = Transition::pull_back(y, head, s);
      }
      for (const auto& block : initial)
        state.moments["S"][level_of(block.start)].row(a) += product(y, block.state);
    }
    return state;
  }
};

}  // namespace attest
