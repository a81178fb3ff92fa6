// Numbers of fp32 between two limits, from the bits of the generator alone.
#pragma once
#include <random>
#include <vector>

#include "reference/tensor/matrix.hpp"

namespace attest {

inline std::vector<double> numbers(std::mt19937_64& random, Index count, double low = -1, double high = 1) {
  std::vector<double> result(static_cast<std::size_t>(count));
  for (double& x : result)
    x = static_cast<float>(low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53));
  return result;
}

}  // namespace attest
