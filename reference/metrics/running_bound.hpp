// The bound that needs no knowledge of an operator: its form evaluated over the scalar Running, with the
// roundings of the contract. Sums are those of any order and tree of additions, but that of a state over time, which is
// the form. Valid everywhere, second order included; loose where errors cancel (delta rules, inner Lins).
#pragma once
#include "reference/forms/operator.hpp"
#include "reference/operators/common/error_units.hpp"

namespace attest {

ErrorModel running_error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                               const Units& units, bool round_output);

// Whether a kernel of the form may be written as Hla2MaskedOuter, which associates in another way (operators/hla2.hpp): its
// bound is the larger of both.
inline bool may_be_outer(const Declaration& d, const Evaluation& how) {
  return d.name == "hla2" && d.variant == "masked" && how.form == Form::stream &&
         d.algebras.at(static_cast<std::size_t>(how.algebra)) == "direct";
}

// The part of the running error beyond first order: products of errors, and underflow. (tokens, value_dim)
Matrix<double> running_remainder(const Operator& op, const Head<double>& head, const Evaluation& how,
                                 const Units& units, bool round_output, int threads = 1);

}  // namespace attest
