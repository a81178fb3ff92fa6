// The bound of a kernel: the error model of its operator, form and precision contract on one head.
// The kernel meant is this library's own form run with the roundings of the contract: operands of products to
// `product` (computed ones to `intermediate` first), sums in `accumulate`, states to `state` at each carry,
// the result to `output`, everything else in `accumulate`. Normalised (v carries a last column of ones): the
// kernel keeps numerator and denominator in `accumulate`, divides there by denominator + epsilon and rounds
// once to `output`;  (E_N + |o| E_D) / (|D| - E_D) + u |o|.
#pragma once
#include <optional>

#include "reference/forms/operator.hpp"
#include "reference/operators/common/error_model.hpp"

namespace attest {

// Every input, the state before the first token too.
bool is_finite(const Head<double>& head);

// What stands around the form on a head: the division at its end, and a scale on q at its beginning (q is given scaled).
struct Normaliser {
  bool divide = false;
  double epsilon = 0;
  bool scaled = false;
};

// The stages alone, to first order, of the raw operator: what the perturbation of single entries must agree with.
// Sharp models have neither products of errors nor underflow in it (remainder.hpp); a running bound has both.
ErrorModel first_order_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                             const Contract& contract, bool rounds_output = true, bool scaled = false,
                             const std::vector<Index>* rows = nullptr, int threads = 1);

// Inputs are already rounded to the input format; alpha is exp(g) where the gate is given as g.
// With normaliser.divide the model has one column less than v. `rows`: of the tokens, ascending, the only ones that the
// model then has; whether it is undecided may depend on all. `threads` work on the head, and none changes the result.
ErrorModel error_model(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Contract& contract, const Normaliser& normaliser = {},
                       const std::vector<Index>* rows = nullptr, int threads = 1);

// "Direct" is said of sums of all terms at once and of products of whole matrices, which round what lies between them to
// their formats. The latter are the chunk form of a single chunk: none where that is no other, or where there is none.
std::optional<Evaluation> single_chunk(const Declaration& d, const Head<double>& head, const Evaluation& how,
                                       const Contract& contract);

// min(D, accumulation + lambda V) with lambda = sqrt(2 ln(2 N stages / 1e-9)) / (1 - u), N outputs compared,
// u the coarsest unit roundoff of the contract; just D where the statistical part does not hold.
Matrix<double> passing_bound(const ErrorModel& model, const Contract& contract, Index compared,
                             bool statistical);

}  // namespace attest
