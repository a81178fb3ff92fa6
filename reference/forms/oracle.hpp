// The oracle: an operator on a whole problem with a certified radius for every entry.
//   exact     rational arithmetic; the value is the fraction itself
//   double-double  certified sums (certified.hpp, certified_delta.hpp), on request, for what they cover; the rest as below
//   double    the delta rules' recurrence in double, on request, with the radius it has; in both, the first rows of a delta
//             rule are compared with intervals and come from them
//   mpfi-N    enclosing intervals at N bits; adaptive precision doubles N, per head, until value + low lies within
//             2^-100 of the value or below 2^-1000, up to 4096 bits (then the radius says what is known)
// |exact - (value + low)| <= radius. Magnitude M: the sum of the absolute values of the terms of the direct form, in
// double; of a ratio N/D it is (M_N + |o| M_D) / |D|. NaN and infinities in the data enter as NaN: what they reach (in
// the stream form) is NaN with an infinite radius, everything else is certified. So is 0/0, with no finite radius.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/forms/operator.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

inline constexpr int first_bits = 192, largest_bits = 4096;

struct OracleRequest {
  std::optional<Evaluation> how =
      {};  // none: the form with the fewest operations that gives the same exact value
  bool exact = false;
  std::optional<int> bits = {};  // fixed precision; none: adaptive
  int relative_bits = 100;       // what adaptive precision aims at
  std::optional<std::pair<Index, Index>> rows =
      {};  // half-open tokens; o has these alone and there are no final states
  bool double_double =
      false;  // takes radii up to 2^-60 of the magnitude, where the certified sums reach (then rows
              // must be given, as they hand over no state): hundreds of times faster
  bool in_double = false;  // with double_double, delta rules alone: in double, any radius
  bool magnitude = true;
  int threads = 0;  // over heads; 0: as many as the machine has
};

struct OracleTensor {
  std::vector<Index> shape;
  std::vector<double> value, low, radius;
  std::vector<double> magnitude;   // empty: not asked for
  std::vector<std::string> exact;  // reduced fractions, "nan" where there is no value; precision exact alone
};

struct OracleResult {
  std::map<std::string, OracleTensor> tensors;  // o, final_state.X; of a gradient dq, dk, ...
  std::vector<Index> final_position;            // log-linear operators, with the final states
  std::string method;                           // "exact", "mpfi-192", "double-double", "double" or both
  int bits = 0;                                 // the largest precision used, 0 for exact
  Evaluation how;
};

OracleResult evaluate_oracle(const Operator& op, const Problem& problem, const OracleRequest& request);

// Refuses (BadInput) a form that the operator has not, a width that does not fit, or a decayed scan that is none.
void check_form(const Declaration& declaration, const Problem& problem, const Evaluation& how);
// Refuses what has no rational value: gates as g, softmax, an irrational scale.
void check_rational(const Declaration& declaration, const Problem& problem);
Evaluation fastest_form(const Declaration& declaration, const Problem& problem);

}  // namespace attest
