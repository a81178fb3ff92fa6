// One kernel on one case: it is run, its output compared with the truth, and the verdict given.
#pragma once
#include "gpu_checks/check.hpp"
#include "gpu_checks/judging/plain.hpp"
#include "gpu_checks/judging/truth.hpp"

namespace attest {

// `tokens`: of the oracle's problem, the first ones. SUSPECT on drawn inputs is asked again with two fresh seeds: SUSPECT
// again, or FAIL, is FAIL (a bias).
Checked judge_kernel(const Kernel& kernel, const Operator& op, const Case& input, SharedOracle& oracle,
                     Index tokens, PlainCache& plain);

}  // namespace attest
