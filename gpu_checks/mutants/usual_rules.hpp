// What the usual acceptance rules would say of two tensors. For the kill matrix alone: no verdict of this program
// depends on them. Definitions, written anew from the sources:
//   allclose   |x - y| <= atol + rtol |y| for every element, NaN fails (torch.allclose, documented defaults 1e-5, 1e-8)
//   FLA        sqrt(mean (y - x)^2) / (sqrt(mean y^2) + 1e-8) < 5e-3, or max |x - y| <= 1e-6; NaN fails otherwise
//              (fla-org/flash-linear-attention, fla/utils.py: assert_close)
//   KernelBench  allclose at 1e-4 / 1e-4 for fp32, at 1e-2 / 1e-2 for fp16 and bf16, y the kernel's output
//              (ScalingIntelligence/KernelBench, eval.py: get_tolerance_for_precision)
//   flashinfer-bench  no element with both |x - y| > 1e-2 and |x - y| / (|y| + 1e-8) > 1e-2; NaN and infinity fail
//              (flashinfer-ai/flashinfer-bench, bench/utils.py: compute_error_stats, defaults of BenchmarkConfig)
#pragma once
#include <array>
#include <vector>

#include "reference/numeric/format.hpp"

namespace attest {

inline constexpr std::array<const char*, 5> usual_rules{"allclose 1e-5/1e-8", "allclose 1e-2/1e-2",
                                                        "FLA 5e-3", "KernelBench", "flashinfer-bench"};

// Whether each rule accepts the output `got` where `expected` is right; `output` is its format.
std::array<bool, 5> accepted_by(const std::vector<double>& got, const std::vector<double>& expected,
                                const Format& output);

}  // namespace attest
