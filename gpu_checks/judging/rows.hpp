// The judged rows of all slots of a problem under one another (gpu_checks/judged_rows.hpp chooses them).
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/forms/batch.hpp"

namespace attest {

// The problem has to outlive them.
class Rows {
 public:
  // `choose`: the tokens of a slot of that length, ascending; none: all.
  using Choose = std::function<std::optional<std::vector<Index>>(std::size_t slot, Index length)>;
  Rows(const Problem& problem, const Choose& choose) : problem_(problem), slots_(slots(problem)) {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const Index length = slots_[s].last - slots_[s].first;
      chosen_.push_back(choose(s, length));
      first_.push_back(total_);
      total_ += count(s);
    }
  }
  Index count(std::size_t slot) const {
    return chosen_[slot] ? static_cast<Index>(chosen_[slot]->size()) : slots_[slot].last - slots_[slot].first;
  }
  const std::vector<Index>* chosen(std::size_t slot) const {
    return chosen_[slot] ? &*chosen_[slot] : nullptr;
  }
  bool all() const {
    return std::none_of(chosen_.begin(), chosen_.end(), [](const auto& c) { return c.has_value(); });
  }
  Index total() const { return total_; }
  const std::vector<Slot>& list() const { return slots_; }
  Index first(std::size_t slot) const { return first_[slot]; }
  const Slot& slot_of(Index row) const { return slots_[slot_index(row)]; }
  Index position_of(Index row) const {
    const std::size_t slot = slot_index(row);
    return token(slot, row - first_[slot]);
  }

  // A tensor [B, T, H, dv] of at least these tokens as rows of all slots.
  Matrix<double> gather(const std::vector<double>& data, Index tokens) const {
    Matrix<double> rows(total_, problem_.value_dim);
    for (std::size_t s = 0; s < slots_.size(); ++s)
      for (Index i = 0; i < count(s); ++i) {
        const Index t = slots_[s].first + token(s, i);
        for (Index c = 0; c < rows.cols(); ++c)
          rows(first_[s] + i, c) = data[static_cast<std::size_t>(
              ((slots_[s].batch * tokens + t) * problem_.heads + slots_[s].head) * rows.cols() + c)];
      }
    return rows;
  }

 private:
  Index token(std::size_t slot, Index i) const {
    return chosen_[slot] ? (*chosen_[slot])[static_cast<std::size_t>(i)] : i;
  }
  std::size_t slot_index(Index row) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), row) - first_.begin()) - 1;
  }
  const Problem& problem_;
  std::vector<Slot> slots_;
  std::vector<std::optional<std::vector<Index>>> chosen_;
  std::vector<Index> first_;
  Index total_ = 0;
};

// "1017 of 4096 rows judged by the bound (...)".
std::string judged_in_words(const Rows& rows);

}  // namespace attest
