// What an error model of first order leaves out, rigorously: every product of two or more rounding errors, and underflow.
// A computed result is o + L + R with L linear in the single errors, |L| <= D of the first-order model, |R| bounded here.
//   multilinear operators and softmax: running error analysis of the form itself, its total minus its linear part
//   delta rules: the same in norms, so that what a key annihilates stays annihilated (delta_remainder.cpp)
// Both count an operation of the form as the model does; sizes are those that double arithmetic gives, whose own error
// is met by the factor 1 + 2 u_double / u_accumulate.
#pragma once
#include "reference/forms/operator.hpp"
#include "reference/operators/common/error_forms.hpp"

namespace attest {

// (tokens, value_dim). Not finite where no bound is known. For forms with a sharp model.
Matrix<double> remainder_bound(const Operator& op, const FormError& form, const Evaluation& how);

Array delta_remainder(const FormError& form, Form kind);

}  // namespace attest
