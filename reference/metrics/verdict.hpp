// The verdict about one output tensor (NUMERICS: verdicts), error = |got - expected|, elementwise:
//   FAIL       an error not <= D, or a non-finite value where the expected one is finite (and the reverse)
//   PASS       every error <= min(D, D_acc + D_eta + lambda V)
//   SUSPECT    between the two; the caller draws fresh seeds: twice SUSPECT is FAIL
//   UNDECIDED  an error model that is undecided, an oracle radius not below 2^-10 of the bound, or no power:
//   fewer
//              than half of the elements with bound < |expected|/4. A FAIL stays a FAIL without power.
#pragma once
#include <string>
#include <string_view>

#include "reference/metrics/bound.hpp"

namespace attest {

enum class Verdict { pass, suspect, fail, undecided, not_run };
std::string_view verdict_name(Verdict verdict);

// The oracle's value high + low, within radius; empty low and radius mean zero.
struct Expected {
  Matrix<double> high, low, radius;
};

struct Quantiles {
  double p50 = 0, p99 = 0, max = 0;
};

// How good a kernel is, over the elements compared: error / bound, error / (u_output |expected|), and the
// share of elements whose bound is below |expected| / 4. NaN counts as the largest value.
struct Grade {
  Quantiles ratio, ulp;
  double power = 0;
};

struct Judgement {
  Verdict verdict = Verdict::undecided;
  std::string reason;    // one line, empty for a pass
  Index compared = 0;    // elements whose expected value is finite
  Index violations = 0;  // of D, or non-finite
  Index suspicious = 0;  // between the two bounds
  Index worst = -1;      // row-major index of the largest error / bound
  double worst_ratio = 0;
  double radius_over_bound = 0;  // largest
  Grade grade;
};

struct Judging {
  bool statistical = false;  // round-to-nearest stages on an independent continuous recipe
  Index outputs = 0;         // N of the whole check, at least the size of this tensor
};

Judgement judge(const Matrix<double>& got, const Expected& expected, const ErrorModel& model,
                const Contract& contract, const Judging& how);

// One verdict about several tensors or heads: fail, then undecided, then suspect, then pass, then not run.
Verdict worse(Verdict a, Verdict b);

}  // namespace attest
