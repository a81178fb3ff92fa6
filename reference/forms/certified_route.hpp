// Which problems the certified double-double oracle (certified.hpp) can take, and how: masked sums without a state.
#pragma once
#include <optional>

#include "reference/forms/certified.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

// o of one slot before the division, with a column for the normaliser where one is taken. Nothing when the operator,
// an option or a state is beyond it, or when some radius exceeds 2^-60 of its magnitude.
std::optional<CertifiedRows> certified_rows(const Declaration& declaration, const Problem& problem,
                                            const Slot& slot, int threads = 1);

// The engine that certified_rows() and certified_delta_rows() try first on problems of at least `least_tokens` tokens; null: none. For the whole
// process, set once before work starts; it must outlive it.
void use_certified_engine(const CertifiedEngine* engine, Index least_tokens = 0);
// It, or null where there is none or the problem is too short for it.
const CertifiedEngine* certified_engine_for(Index tokens);

}  // namespace attest
