// Segments of any operator as lists of matrices, so that two of them can be compared entirely, and combined under any
// bracketing. Members are reached by structured bindings: an operator file declares its segment and nothing more.
#pragma once
#include <type_traits>

#include "proofs/claim.hpp"
#include "reference/forms/forms.hpp"
#include "reference/operators/common/log_linear_recurrence.hpp"

namespace attest {

struct AnyMember {
  template <class T>
  operator T() const;
};
template <class T, class... Members>
constexpr std::size_t count_members(Members... members) {
  if constexpr (requires { T{members..., AnyMember()}; })
    return count_members<T>(members..., AnyMember());
  else
    return sizeof...(Members);
}

template <std::size_t count, class Segment, class F>
void for_each_member(Segment& segment, F f) {
  static_assert(count >= 2 && count <= 8);
  auto each = [&](auto&... members) { (f(members), ...); };
  if constexpr (count == 2) {
    auto& [a, b] = segment;
    each(a, b);
  }
  if constexpr (count == 3) {
    auto& [a, b, c] = segment;
    each(a, b, c);
  }
  if constexpr (count == 4) {
    auto& [a, b, c, d] = segment;
    each(a, b, c, d);
  }
  if constexpr (count == 5) {
    auto& [a, b, c, d, e] = segment;
    each(a, b, c, d, e);
  }
  if constexpr (count == 6) {
    auto& [a, b, c, d, e, g] = segment;
    each(a, b, c, d, e, g);
  }
  if constexpr (count == 7) {
    auto& [a, b, c, d, e, g, h] = segment;
    each(a, b, c, d, e, g, h);
  }
  if constexpr (count == 8) {
    auto& [a, b, c, d, e, g, h, i] = segment;
    each(a, b, c, d, e, g, h, i);
  }
}

template <class S>
Matrix<S> as_matrix(const S& scalar) {
  Matrix<S> result(1, 1);
  result(0, 0) = scalar;
  return result;
}
template <class S>
void append_matrices(std::vector<Matrix<S>>& list, const Matrix<S>& matrix) {
  list.push_back(matrix);
}
template <class S>
void append_matrices(std::vector<Matrix<S>>& list, const std::type_identity_t<S>& scalar) {
  list.push_back(as_matrix(scalar));
}
template <class S>
void append_matrices(std::vector<Matrix<S>>& list, const DyadicCover<S>& cover) {
  for (const auto& block : cover) {
    list.push_back(as_matrix(S(static_cast<int>(block.start))));
    list.push_back(as_matrix(S(block.log_size)));
    list.push_back(block.state);
  }
}

// Every member of a segment, in order.
template <class D, class S>
std::vector<Matrix<S>> members(const typename D::template Segment<S>& segment) {
  std::vector<Matrix<S>> list;
  for_each_member<count_members<typename D::template Segment<PrimeField>>()>(
      segment, [&](const auto& member) {
        if constexpr (std::is_same_v<std::decay_t<decltype(member)>, bool>)
          list.push_back(as_matrix(S(member ? 1 : 0)));
        else
          append_matrices<S>(list, member);
      });
  return list;
}

template <class D, class S>
void compare_segments(Comparisons<S>& list, const std::string& what, const typename D::template Segment<S>& a,
                      const typename D::template Segment<S>& b) {
  const auto left = members<D, S>(a), right = members<D, S>(b);
  list.push_back({what + ", number of members", as_matrix(S(static_cast<int>(left.size()))),
                  as_matrix(S(static_cast<int>(right.size())))});
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    list.push_back({what + ", member " + std::to_string(i), left[i], right[i]});
}

template <class D, class S>
std::vector<typename D::template Segment<S>> token_segments(const Head<S>& head) {
  std::vector<typename D::template Segment<S>> tokens;
  for (Index t = 0; t < head.tokens(); ++t) tokens.push_back(D::token(head, t));
  return tokens;
}

template <class D, class S>
using SegmentOf = typename D::template Segment<S>;

template <class D, class S>
SegmentOf<D, S> left_fold(const std::vector<SegmentOf<D, S>>& tokens, Index first, Index last, Dims dims) {
  if (first == last) return D::template identity<S>(dims);
  SegmentOf<D, S> sum = tokens[first];
  for (Index t = first + 1; t < last; ++t) sum = D::combine(sum, tokens[t]);
  return sum;
}
template <class D, class S>
SegmentOf<D, S> right_fold(const std::vector<SegmentOf<D, S>>& tokens, Index first, Index last, Dims dims) {
  if (first == last) return D::template identity<S>(dims);
  SegmentOf<D, S> sum = tokens[last - 1];
  for (Index t = last - 1; t-- > first;) sum = D::combine(tokens[t], sum);
  return sum;
}
// A tree of any form: split at a place that `shape` names, the branches alike.
template <class D, class S>
SegmentOf<D, S> tree_fold(const std::vector<SegmentOf<D, S>>& tokens, Index first, Index last, Dims dims,
                          Index form) {
  if (last - first <= 1) return left_fold<D, S>(tokens, first, last, dims);
  const Index middle =
      first + 1 + (form * 7 + first * 3 + last * 5) % (last - first - 1 == 0 ? 1 : last - first - 1);
  return D::combine(tree_fold<D, S>(tokens, first, middle, dims, form + 1),
                    tree_fold<D, S>(tokens, middle, last, dims, form + 2));
}

// (A B) C = A (B C) for every pair of split points of the sequence, and every bracketing tried gives one result.
template <class D, class S>
Comparisons<S> associativity(const Shape& shape, const Inputs<S>& inputs) {
  const Head<S> head = inputs.head(shape);
  const auto tokens = token_segments<D, S>(head);
  const Dims dims = head.dims();
  const Index n = head.tokens();
  Comparisons<S> list;
  std::vector<SegmentOf<D, S>> head_runs, tail_runs;
  for (Index t = 0; t <= n; ++t) {
    head_runs.push_back(t == 0 ? D::template identity<S>(dims) : D::combine(head_runs[t - 1], tokens[t - 1]));
    tail_runs.push_back(left_fold<D, S>(tokens, t, n, dims));
  }
  for (Index a = 0; a <= n; ++a) {
    SegmentOf<D, S> middle = D::template identity<S>(dims);
    for (Index b = a; b <= n; ++b) {
      if (b > a) middle = b == a + 1 ? tokens[a] : D::combine(middle, tokens[b - 1]);
      compare_segments<D, S>(
          list,
          "(A B) C against A (B C), A = [0," + std::to_string(a) + "), C = [" + std::to_string(b) + ",T)",
          D::combine(D::combine(head_runs[a], middle), tail_runs[b]),
          D::combine(head_runs[a], D::combine(middle, tail_runs[b])));
    }
  }
  const auto left = left_fold<D, S>(tokens, 0, n, dims);
  compare_segments<D, S>(list, "left fold against right fold", left, right_fold<D, S>(tokens, 0, n, dims));
  for (Index form = 0; form < 4; ++form)
    compare_segments<D, S>(list, "left fold against tree " + std::to_string(form), left,
                           tree_fold<D, S>(tokens, 0, n, dims, form));
  return list;
}

template <class D, class S>
Comparisons<S> identity_law(const Shape& shape, const Inputs<S>& inputs) {
  const Head<S> head = inputs.head(shape);
  const auto tokens = token_segments<D, S>(head);
  const auto unit = D::template identity<S>(head.dims());
  const auto all = left_fold<D, S>(tokens, 0, head.tokens(), head.dims());
  Comparisons<S> list;
  compare_segments<D, S>(list, "1 A against A", D::combine(unit, all), all);
  compare_segments<D, S>(list, "A 1 against A", D::combine(all, unit), all);
  return list;
}

// The exclusive Blelloch scan of the tokens against serial prefixes.
template <class D, class S>
Comparisons<S> scan_prefixes(const Shape& shape, const Inputs<S>& inputs) {
  const Head<S> head = inputs.head(shape);
  const auto tokens = token_segments<D, S>(head);
  Arithmetic<S> exact;
  const auto prefixes = exclusive_scan<D>(exact, tokens, head.dims());
  Comparisons<S> list;
  for (Index t = 0; t < head.tokens(); ++t)
    compare_segments<D, S>(list, "prefix of token " + std::to_string(t) + ", scan against fold", prefixes[t],
                           left_fold<D, S>(tokens, 0, t, head.dims()));
  return list;
}

}  // namespace attest
