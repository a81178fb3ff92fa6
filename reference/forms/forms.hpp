// Stream and scan, derived from an operator's segment monoid.
//   stream: X <- X + token(t), o_t = read(X), one token at a time
//   scan:   exclusive Blelloch scan of the tokens' segments (up-sweep, down-sweep), then local inclusion
// The initial state is a segment that stands before the first token. reads_before: the read-out takes the prefix
// without its own token (log-linear). Source: Blelloch 1990; [HLA] Algorithm 1.
#pragma once
#include <bit>
#include <vector>

#include "reference/tensor/arithmetic.hpp"

namespace attest {

template <class D, class S>
auto import_state(const Head<S>& head) {
  if constexpr (requires { D::import_state(head); })
    return D::import_state(head);
  else {
    auto segment = D::template identity<S>(head.dims());
    segment.visit([&](const char* name, Matrix<S>& moment) {
      moment = initial_moment(head, name, moment.rows(), moment.cols());
    });
    return segment;
  }
}

template <class D, class S, class Segment>
State<S> export_state(Segment segment, const Head<S>& head) {
  if constexpr (requires { D::export_state(segment, head); })
    return D::export_state(segment, head);
  else {
    State<S> state;
    segment.visit([&](const char* name, Matrix<S>& moment) { state.moments[name] = {moment}; });
    return state;
  }
}

template <class D, class S, class Segment>
Segment append_token(const Segment& prefix, const Head<S>& head, Index t) {
  if constexpr (requires { D::append(prefix, head, t); })
    return D::append(prefix, head, t);
  else
    return D::combine(prefix, D::token(head, t));
}

template <class S, class Segment>
void round_carried(Arithmetic<S>& arithmetic, Segment& segment) {
  segment.visit([&](const char* name, auto& moment) { moment = arithmetic.carry(name, std::move(moment)); });
}

template <class D, class S>
Solution<S> stream(Arithmetic<S>& arithmetic, const Head<S>& head) {
  if constexpr (requires { D::stream(arithmetic, head); })
    return D::stream(arithmetic, head);
  else {
    Solution<S> result{zeros<S>(head.tokens(), head.v.cols()), {}};
    auto prefix = import_state<D>(head);
    for (Index t = 0; t < head.tokens(); ++t) {
      if constexpr (D::reads_before) result.o.row(t) = D::read(prefix, head, t);
      prefix = append_token<D>(prefix, head, t);
      round_carried(arithmetic, prefix);
      if constexpr (!D::reads_before) result.o.row(t) = D::read(prefix, head, t);
    }
    result.o = arithmetic.output(result.o);
    result.final = export_state<D>(prefix, head);
    return result;
  }
}

// prefixes[t] = segments[0] + ... + segments[t-1], by the work-efficient tree.
template <class D, class S, class Segment>
std::vector<Segment> exclusive_scan(Arithmetic<S>& arithmetic, std::vector<Segment> tree, Dims dims) {
  const std::size_t count = tree.size(), size = std::bit_ceil(std::max<std::size_t>(count, 1));
  tree.resize(size, D::template identity<S>(dims));
  auto combine = [&](const Segment& a, const Segment& b) {
    Segment sum = D::combine(a, b);
    round_carried(arithmetic, sum);
    return sum;
  };
  for (std::size_t stride = 1; stride < size; stride *= 2)
    for (std::size_t i = 2 * stride - 1; i < size; i += 2 * stride)
      tree[i] = combine(tree[i - stride], tree[i]);
  tree[size - 1] = D::template identity<S>(dims);
  for (std::size_t stride = size / 2; stride > 0; stride /= 2)
    for (std::size_t i = 2 * stride - 1; i < size; i += 2 * stride) {
      const Segment left = tree[i - stride];
      tree[i - stride] = tree[i];
      tree[i] = combine(tree[i], left);
    }
  tree.resize(count, D::template identity<S>(dims));
  return tree;
}

template <class D, class S>
Solution<S> scan(Arithmetic<S>& arithmetic, const Head<S>& head) {
  using Segment = typename D::template Segment<S>;
  std::vector<Segment> tokens;
  for (Index t = 0; t < head.tokens(); ++t) tokens.push_back(D::token(head, t));
  const auto prefixes = exclusive_scan<D>(arithmetic, tokens, head.dims());
  const Segment initial = import_state<D>(head);
  Solution<S> result{zeros<S>(head.tokens(), head.v.cols()), {}};
  Segment last = initial;
  for (Index t = 0; t < head.tokens(); ++t) {
    const Segment before = D::combine(initial, prefixes[t]);
    last = D::combine(before, tokens[t]);
    round_carried(arithmetic, last);
    result.o.row(t) = D::read(D::reads_before ? before : last, head, t);
  }
  result.o = arithmetic.output(result.o);
  result.final = export_state<D>(last, head);
  return result;
}

}  // namespace attest
