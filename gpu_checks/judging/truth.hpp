// The exact values that kernels are held to.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "gpu_checks/judging/rows.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reference/metrics/verdict.hpp"

namespace attest {

// The oracle for everybody who sees the same rounded inputs, of the longest length: by certified double-double sums
// where they exist, and by intervals for those whose bound asks for a smaller radius.
class SharedOracle {
 public:
  SharedOracle(const Operator& op, Problem rounded, int threads)
      : problem(std::move(rounded)), op_(op), threads_(threads) {}
  const KeptOracle& quick() {
    if (!quick_) quick_ = evaluate(true);
    return *quick_;
  }
  const KeptOracle& sharp() {
    const bool is_sharp = quick().result.method.find("double-double") == std::string::npos;
    if (!sharp_) sharp_ = is_sharp ? quick_ : evaluate(false);
    return *sharp_;
  }

  int threads() const { return threads_; }

  const Problem problem;  // rounded, all tokens

 private:
  std::shared_ptr<const KeptOracle> evaluate(bool double_double) const {
    OracleRequest request;
    request.rows = {0, problem.tokens};
    request.threads = threads_;
    request.double_double = double_double;
    return oracle_cache().get(op_, problem, request);
  }
  const Operator& op_;
  const int threads_;
  std::shared_ptr<const KeptOracle> quick_, sharp_;
};

// The oracle's values in the rows that are compared.
struct Truth {
  Expected expected;
  Matrix<double> magnitude;
};

Truth truth_of(const KeptOracle& oracle, const Rows& rows, Index tokens);

struct DoubleTruth {
  Truth truth;
  std::vector<double> values;  // of all rows, [B, T, H, dv]
};

// The truth of a long delta rule, which intervals enclose at a precision that grows with T: the chunk form in double. Its
// radius is the bound that the error model gives a kernel of that precision, four times, since the model is evaluated in
// double itself; the first rows are compared with interval arithmetic. Nothing: other operators, short sequences.
std::optional<DoubleTruth> truth_in_double(const Operator& op, const Problem& problem, const Rows& rows,
                                           int threads);

}  // namespace attest
