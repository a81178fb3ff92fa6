// The exact values that kernels are held to.
#pragma once
#include <memory>
#include <string>

#include "gpu_checks/judging/rows.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reference/metrics/verdict.hpp"

namespace attest {

// The oracle for everybody who sees the same rounded inputs, of the longest length: by certified sums in double-double
// where they exist, for a delta rule in double before that, and by intervals for those whose bound asks for a smaller radius.
class SharedOracle {
 public:
  SharedOracle(const Operator& op, Problem rounded, int threads)
      : problem(std::move(rounded)), op_(op), threads_(threads) {}
  const KeptOracle& rough() { return *(rough_ = rough_ ? rough_ : evaluate(true, true)); }
  const KeptOracle& quick() { return *(quick_ = quick_ ? quick_ : evaluate(true, false)); }
  const KeptOracle& sharp() {
    const bool is_sharp = quick().result.method.find("double-double") == std::string::npos;
    if (!sharp_) sharp_ = is_sharp ? quick_ : evaluate(false, false);
    return *sharp_;
  }
  bool has_rough() const { return op_.declaration().beta; }

  int threads() const { return threads_; }

  const Problem problem;  // rounded, all tokens

 private:
  std::shared_ptr<const KeptOracle> evaluate(bool double_double, bool in_double) const {
    OracleRequest request;
    request.rows = {0, problem.tokens};
    request.threads = threads_;
    request.double_double = double_double, request.in_double = in_double;
    request.magnitude = !has_rough() || problem.tokens < longest_delta_magnitudes;
    return oracle_cache().get(op_, problem, request);
  }
  static constexpr Index longest_delta_magnitudes = 1024;  // beyond, they are infinite or as good as
  const Operator& op_;
  const int threads_;
  std::shared_ptr<const KeptOracle> rough_, quick_, sharp_;
};

// The oracle's values in the rows that are compared.
struct Truth {
  Expected expected;
  Matrix<double> magnitude;
};

Truth truth_of(const KeptOracle& oracle, const Rows& rows, Index tokens);

}  // namespace attest
