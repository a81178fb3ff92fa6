// The rows of the output whose bound is wanted: all, or a choice. A bound costs a walk over all earlier tokens for each row
// where operators compose, so that of a long sequence a choice is judged. Arrays of the chosen rows are (count, columns).
#pragma once
#include <algorithm>
#include <vector>

#include "reference/operators/common/error_units.hpp"

namespace attest {

class RowSet {
 public:
  // `chosen` ascends and lies within the tokens; null: all.
  explicit RowSet(Index tokens, const std::vector<Index>* chosen = nullptr)
      : tokens_(tokens), chosen_(chosen ? *chosen : std::vector<Index>()), all_(!chosen) {}

  bool all() const { return all_; }
  Index tokens() const { return tokens_; }
  Index count() const { return all_ ? tokens_ : static_cast<Index>(chosen_.size()); }
  Index token(Index i) const { return all_ ? i : chosen_[static_cast<std::size_t>(i)]; }
  // The number of chosen rows before this token.
  Index before(Index token) const {
    if (all_) return std::clamp<Index>(token, 0, tokens_);
    return std::lower_bound(chosen_.begin(), chosen_.end(), token) - chosen_.begin();
  }
  // The chosen ones of the rows from token `first` on.
  Array pick(const Array& rows, Index first = 0) const {
    if (all_) return rows;
    const Index from = before(first), to = before(first + rows.rows());
    Array result(to - from, rows.cols());
    for (Index i = from; i < to; ++i) result.row(i - from) = rows.row(token(i) - first);
    return result;
  }

 private:
  Index tokens_;
  std::vector<Index> chosen_;
  bool all_;
};

}  // namespace attest
