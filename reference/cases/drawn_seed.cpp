#include "reference/cases/drawn_seed.hpp"

#include <random>

namespace attest {

std::uint64_t drawn_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 1;
}

}  // namespace attest
