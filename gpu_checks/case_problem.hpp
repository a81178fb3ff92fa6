// The problem of a case: drawn, or read from its file.
#pragma once
#include "reference/cases/case.hpp"
#include "reference/forms/batch.hpp"

namespace attest {

// Cut to T tokens. unit_keys: q and k of a file divided by their l2 norm and rounded to the dtype that the file holds.
// BadInput as load_problem.
Problem problem_of(const Case& input, const Declaration& declaration);
Problem first_tokens(const Problem& problem, Index tokens);

}  // namespace attest
