// What the oracle and its gradient share: entries with a certificate, data that are no numbers, heads on threads.
#pragma once
#include <functional>

#include "reference/forms/batch.hpp"
#include "reference/forms/oracle.hpp"
#include "reference/numeric/parallel.hpp"

namespace attest {

OracleTensor empty_oracle_tensor(std::vector<Index> shape, bool magnitude, bool exact);
void store(OracleTensor& tensor, Index flat, const Interval& value);
void store(OracleTensor& tensor, Index flat, const Rational& value);
void store_nan(OracleTensor& tensor, Index flat);

// Whether more bits would help: the value is finite in double and its radius misses the aim.
bool wants_more_bits(const OracleTensor& tensor, Index flat, int relative_bits);

// NaN and infinities among q, k, v, states and cotangents.
bool holds_non_finite_data(const Problem& problem);
// The problem with zeros in their place.
Problem finite_part(const Problem& problem);
// The problem with NaN in their place and zeros everywhere else (gates 1): what is NaN in its double solution depends
// on one of them, and everything else does not.
Problem reach_of_non_finite(const Problem& problem);

}  // namespace attest
