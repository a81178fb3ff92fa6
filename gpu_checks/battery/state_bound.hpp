// A bound for the final states: the form evaluated over the scalar Running with the roundings of the contract, every
// moment stored once more in the state format. Valid everywhere, second order included; loose where errors cancel
// (delta rules). The same analysis as reference/metrics/running_bound.hpp gives for o.
#pragma once
#include "reference/forms/operator.hpp"
#include "reference/tensor/contract.hpp"

namespace attest {

struct StateBound {
  std::map<std::string, std::vector<Matrix<double>>> error;  // by moment, a matrix per level
  std::string undecided;                                     // why there is none; empty: there is
};

StateBound state_bound(const Operator& op, const Head<double>& head, const Evaluation& how,
                       const Contract& contract);

}  // namespace attest
