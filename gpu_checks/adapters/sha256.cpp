#include "gpu_checks/adapters/sha256.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>

namespace attest {
namespace {

// The first 32 bits of the fractional parts of the roots of the first primes, as the standard defines its constants.
constexpr std::uint32_t fraction_of_root(std::uint64_t prime, int degree) {
  // The largest x with (x / 2^32)^degree <= prime, by bisection on 40 bits, with products in 128 bits.
  const auto below = [&](std::uint64_t x) {
    using Wide = unsigned __int128;
    if (degree == 2) return static_cast<Wide>(x) * x <= static_cast<Wide>(prime) << 64;
    // x^3 <= prime 2^96, where x < 2^36: compare x^2 with floor(prime 2^96 / x).
    const Wide high = static_cast<Wide>(prime) << 96;
    return static_cast<Wide>(x) * x <= high / x;
  };
  std::uint64_t x = 0;
  for (int bit = degree == 2 ? 37 : 35; bit >= 0; --bit)
    if (below(x | std::uint64_t{1} << bit)) x |= std::uint64_t{1} << bit;
  return static_cast<std::uint32_t>(x);
}

template <int count>
constexpr std::array<std::uint32_t, count> root_fractions(int degree) {
  std::array<std::uint32_t, count> words{};
  int found = 0;
  for (std::uint64_t n = 2; found < count; ++n) {
    bool prime = true;
    for (std::uint64_t p = 2; p * p <= n; ++p) prime = prime && n % p != 0;
    if (prime) words[static_cast<std::size_t>(found++)] = fraction_of_root(n, degree);
  }
  return words;
}

using State = std::array<std::uint32_t, 8>;

void compress(State& state, const unsigned char* block) {
  static const auto k = root_fractions<64>(3);
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t)
    w[t] = static_cast<std::uint32_t>(block[4 * t]) << 24 |
           static_cast<std::uint32_t>(block[4 * t + 1]) << 16 |
           static_cast<std::uint32_t>(block[4 * t + 2]) << 8 | block[4 * t + 3];
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + k[t] + w[t];
    const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  static const auto initial = root_fractions<8>(2);
  State state = initial;
  std::string padded(bytes);
  padded += '\x80';
  padded.append((120 - padded.size() % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += static_cast<char>(std::uint64_t{bytes.size()} * 8 >> shift);
  for (std::size_t at = 0; at < padded.size(); at += 64)
    compress(state, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return file.bad() ? "" : sha256(bytes);
}

}  // namespace attest
