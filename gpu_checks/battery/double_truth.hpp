// The operator in double with a certified radius, many times faster than by intervals: a stream over the scalar Running
// with the unit roundoff of double. The radius is about 2^-50 of the sum of the absolute values of the terms, far below
// the bound of a kernel that sums in fp32 unless most of that sum cancels: whoever compares has to look.
#pragma once
#include "reference/forms/oracle.hpp"

namespace attest {

// o and the final states, by one algebra of the operator: their values are the same, their radii are not.
// |exact - value| <= radius, infinite where nothing is known.
std::map<std::string, OracleTensor> double_truth(const Operator& op, const Problem& problem, int algebra);

}  // namespace attest
