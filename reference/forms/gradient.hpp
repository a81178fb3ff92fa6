// Gradients from one generic reverse tape: every entry of every field becomes a variable, the cotangents `do` and
// `dfinal_state.X` are put on the outputs, and d<cotangents, outputs>/dx is read off with a certified radius.
// Named dq, dk, dv, dg or dalpha (as the gate was given), dbeta, dlevel_scales, ddecay, dinitial_state.X, each in the
// shape of its field (grouped heads and decay sum over what shares them; ddecay [H] for the option too).
// Never divides by a gate. The tape holds every operation of a head: for short sequences.
#pragma once
#include "reference/forms/oracle.hpp"

namespace attest {

OracleResult evaluate_gradient(const Operator& op, const Problem& problem, const OracleRequest& request);

}  // namespace attest
