// What a comparison of a kernel's output with the exact values says: how far off, where, in words.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gpu_checks/check.hpp"
#include "gpu_checks/judging/rows.hpp"

namespace attest {

struct Comparison {
  const Matrix<double>&got, &high, &low;
  const ErrorModel& model;
  double error(Index i) const { return std::abs((got.data()[i] - high.data()[i]) - low.data()[i]); }
  double bound(Index i) const { return model.deterministic.data()[i]; }
  bool violated(Index i) const;
  double ratio(Index i) const;  // error over bound, NaN as infinity, for ordering
};

// The worst elements, the worst of every position and where the violations lie, into the result.
void describe(const Comparison& compared, const Rows& rows, const Problem& problem, const Evaluation& how,
              Checked& result);

// Errors in units in the last place, as judge() counts them: for cases that have no bound.
Quantiles ulps_of(const Matrix<double>& got, const Expected& expected, const Format& output);

// |got - expected| / |expected| in the l2 norm of one sequence and head, the largest of them; none: nothing is finite.
std::optional<double> relative_norm(const Matrix<double>& got, const Expected& expected, const Rows& rows);

// Of M / |o|, M the sum of the magnitudes of what is summed.
Quantiles cancellation_of(const Matrix<double>& magnitude, const Matrix<double>& exact);

// "; 37 of them are NaN, the first o[0,3,1,2]": what is not finite where the exact value is.
std::string not_finite(const Matrix<double>& got, const Expected& expected, const Rows& rows);

// The number of values that are not finite although the exact ones are, over all rows.
Index not_finite_among_all(const std::vector<double>& got, const std::vector<double>& exact,
                           const Problem& problem, Index exact_tokens);

}  // namespace attest
