// What the GPU's delta rule (delta_rule.cuh) needs to know before and between its steps.
#pragma once
#include <vector>

#include "gpu_checks/oracle/delta_rule.cuh"

namespace attest::gpu_oracle {

struct DeltaPlan {
  std::vector<DeltaLink> links;  // of every state, those of a chunk beside one another
  std::vector<int> sources, level;
  std::vector<int64_t> first_state;  // of every chunk, and the end
  int64_t chunks() const { return static_cast<int64_t>(first_state.size()) - 1; }
};
// One state for every chunk; with level scales (from position 0) those of the complete blocks before it.
DeltaPlan delta_plan(int64_t tokens, bool levels);

// next_error() of a whole chunk: from the factors of its tokens, the errors and norms of its transition's columns (chunks,
// key_dim), and the unit of a sum of key_dim products of double-doubles.
std::vector<DeltaFactors> chunk_factors(const std::vector<DeltaFactors>& tokens,
                                        const std::vector<double>& error, const std::vector<double>& norm,
                                        Index key_dim);

}  // namespace attest::gpu_oracle
