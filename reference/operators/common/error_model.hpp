// What a correct kernel of a precision contract may be wrong by, entry by entry of its output (NUMERICS:
// stages and sensitivities). A stage is a tensor that the kernel rounds; with s_e = do/dx_e at the actual
// values x_e,
//   deterministic  D   = sum over all stages of sum_e |s_e| u |x_e|, sums as gamma_K(u_acc) |A||B|, first order, plus
//                        a bound of what lies beyond first order (metrics/remainder.hpp: products of errors, underflow)
//   accumulation       = the part of D that is never statistical: sums, gates, elementwise steps, the remainder
//   variance       V^2 = sum over the stages rounded to nearest of u^2 sum_e (s_e x_e)^2
// Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3 and 8; Higham and Mary
// 2019.
#pragma once
#include <map>
#include <string>

#include "reference/tensor/contract.hpp"
#include "reference/tensor/head.hpp"

namespace attest {

struct ErrorModel {
  Matrix<double> deterministic;                  // (tokens, value_dim)
  Matrix<double> accumulation;                   // (tokens, value_dim)
  Matrix<double> variance;                       // (tokens, value_dim)
  std::map<std::string, Matrix<double>> shares;  // label of a rounded stage: its part of D
  Index stages = 0;                              // rounded stages of the form, for the statistical part
  bool sharp = false;      // sensitivities of the actual values; else a running error bound, valid and loose
  bool undecided = false;  // then `reason` says why: a gate's error, a range, no model
  std::string reason;
};

}  // namespace attest
