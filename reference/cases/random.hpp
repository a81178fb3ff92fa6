// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
// pseudorandom number generators", OOPSLA) and nothing but integers, + - * / and square roots of doubles.
#pragma once
#include <cstdint>
#include <string_view>

namespace attest {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // An independent stream for every name: fields do not depend on the order in which they are drawn.
  Random(std::uint64_t seed, std::string_view name);

  std::uint64_t bits();
  std::uint64_t below(std::uint64_t limit) { return bits() % limit; }       // bias below limit / 2^64
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }  // [low, high)
  double sign() { return bits() >> 63 ? -1.0 : 1.0; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  // The sum of twelve uniforms less 6 (Irwin-Hall): mean 0, variance 1, never beyond 6.
  double gaussian();

 private:
  std::uint64_t state_;
};

}  // namespace attest
