#include "reference/cases/random.hpp"

namespace attest {

namespace {
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
}  // namespace

Random::Random(std::uint64_t seed, std::string_view name) : state_(mix(seed)) {
  for (const char c : name) state_ = mix(state_ ^ static_cast<unsigned char>(c));
}

std::uint64_t Random::bits() { return mix(state_ += 0x9e3779b97f4a7c15u); }

double Random::gaussian() {
  std::int64_t sum = -(std::int64_t{6} << 40);
  for (int i = 0; i < 12; ++i) sum += static_cast<std::int64_t>(bits() >> 24);
  return static_cast<double>(sum) * 0x1p-40;
}

}  // namespace attest
