// The rows of a head whose bound is computed. All, unless the bound walks over all earlier chunks for every row (where Lins
// compose, the delta rules, softmax) and all would take more than `work` products of T rows (T d dv each). Then, of as
// many rows as fit and at least 64: up to half where faults are likely (both ends, edges of chunks, powers of two), and
// one drawn from each of equal parts of the sequence, so that no run of twice such a part goes unseen.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/forms/operator.hpp"

namespace attest {

struct HeadSize {
  Index tokens, key_dim, value_dim;
};

// Ascending; nothing: all rows. The same for the same arguments, so that a replay judges the same rows.
std::optional<std::vector<Index>> judged_rows(const Declaration& declaration, const HeadSize& size,
                                              const Evaluation& how, std::uint64_t seed, std::size_t slot);

// 2^36 unless set, for the whole process.
void set_bound_work(double products);
inline constexpr double usual_bound_work = 0x1p36;

}  // namespace attest
