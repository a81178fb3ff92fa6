// A problem without the columns that are zero everywhere: of keys those that no row of q and k and no initial state uses,
// of values those of v and of the initial states. No sum and no product sees them, so that what is exact, and how large
// every intermediate is, can be found out at a few columns for any width.
#pragma once
#include <optional>

#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

class Narrowed {
 public:
  Narrowed(const Problem& problem, const Declaration& declaration);

  const Problem& problem() const { return narrow_ ? *narrow_ : whole_; }
  // Outputs of the narrow problem as those of the whole one.
  Tensors widened(Tensors outputs) const;

 private:
  const Problem& whole_;
  const Declaration& declaration_;
  std::vector<Index> keys_, values_;  // columns that are kept
  std::optional<Problem> narrow_;     // none: the whole is narrow enough
};

}  // namespace attest
