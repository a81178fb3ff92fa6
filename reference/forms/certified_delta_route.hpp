// Which problems the certified recurrence of the delta rules (certified_delta.hpp) can take, and how.
#pragma once
#include <optional>

#include "reference/forms/certified_delta.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

// o of one slot with the radius that it has; nothing when the operator is no delta rule.
std::optional<CertifiedRows> certified_delta_rows(const Declaration& declaration, const Problem& problem,
                                                  const Slot& slot, const DeltaOptions& options);

// Whether no radius exceeds 2^-60 of the largest value, nor of its magnitude where there are magnitudes.
bool is_close(const CertifiedRows& rows, bool magnitude);

}  // namespace attest
