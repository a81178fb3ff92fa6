// The stream of a delta rule over the scalar Running, its step in any association: what delta_step.hpp grants is added to
// the transition and to what a token writes, entry by entry of the monomials that are there.
#pragma once
#include "reference/forms/operator.hpp"
#include "reference/tensor/arithmetic.hpp"

namespace attest {

// Rounded as `arithmetic` does. The declaration is that of an operator with beta.
Solution<Running> delta_stream(const Declaration& declaration, Arithmetic<Running>& arithmetic,
                               const Head<Running>& head);

}  // namespace attest
