// The masked dense evaluation that a user would write, beside which a kernel's error is shown: one chunk as wide as the
// sequence, every product with operands in the input format and sums in fp32 (fp64 for fp64 inputs); a stream where the
// operator has no chunk form.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "gpu_checks/judging/rows.hpp"
#include "gpu_checks/kernel.hpp"

namespace attest {

// Its output is the same for kernels of one input format and length: a little memory of the last ones.
struct PlainCache {
  std::map<std::pair<std::string, Index>, Matrix<double>> outputs;
};

// Of the same rounded input; empty: there is none (long sequences, or not all rows are judged).
const Matrix<double>& plain_output(const Kernel& kernel, const Operator& op, const Problem& problem,
                                   const Rows& rows, PlainCache& plain);

}  // namespace attest
