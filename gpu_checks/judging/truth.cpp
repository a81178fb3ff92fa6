#include "gpu_checks/judging/truth.hpp"

namespace attest {

Truth truth_of(const KeptOracle& oracle, const Rows& rows, Index tokens) {
  const OracleTensor& o = oracle.result.tensors.at("o");
  return {{rows.gather(o.value, tokens), rows.gather(o.low, tokens), rows.gather(o.radius, tokens)},
          o.magnitude.empty() ? Matrix<double>() : rows.gather(o.magnitude, tokens)};
}

}  // namespace attest
