#include "reference/tensor/problem.hpp"

namespace attest {

std::vector<Slot> slots(const Problem& problem) {
  std::vector<Slot> list;
  const bool packed = !problem.cu_seqlens.empty();
  const Index sequences = packed ? static_cast<Index>(problem.cu_seqlens.size()) - 1 : problem.batch;
  for (Index s = 0; s < sequences; ++s)
    for (Index h = 0; h < problem.heads; ++h)
      list.push_back({packed ? 0 : s, s, h, packed ? problem.cu_seqlens[s] : 0,
                      packed ? problem.cu_seqlens[s + 1] : problem.tokens});
  return list;
}

}  // namespace attest
