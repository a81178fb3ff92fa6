// The recurrence behind certified_delta() on this processor: a block of value columns at a time, through all tokens.
#pragma once
#include "reference/forms/certified_delta.hpp"

namespace attest {

inline constexpr Index kDeltaColumns = kTileAlign;  // of a block

CertifiedRows empty_delta_rows(const CertifiedDelta& input);
// An entry whose radius or value is no number is unknown: 0 with an infinite radius.
void put_delta_entry(CertifiedRows& rows, Index i, double high, double low, double radius);
CertifiedRows delta_recurrence(const CertifiedDelta& input, const DeltaOptions& options);

}  // namespace attest
