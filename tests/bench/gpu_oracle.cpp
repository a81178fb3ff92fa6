// The GPU oracle at the sizes of use: seconds of one head, and of sixteen, the way to the device and back included.
#include "gpu_checks/oracle/gpu_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <random>

#include "reference/forms/certified_delta.hpp"

namespace {

using namespace attest;

std::vector<double> numbers(std::mt19937_64& random, Index count, double low, double high) {
  std::vector<double> result(static_cast<std::size_t>(count));
  for (double& x : result)
    x = static_cast<float>(low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53));
  return result;
}

struct Head {
  std::vector<double> q, k, v, gate, scales;
  CertifiedInput input;
  Head(Index n, Index d, bool gates, bool levels) {
    std::mt19937_64 random(1);
    q = numbers(random, n * d, -1, 1), k = numbers(random, n * d, -1, 1), v = numbers(random, n * d, -1, 1);
    input.tokens = n, input.key_dim = input.value_dim = d;
    input.q = q.data(), input.k = k.data(), input.v = v.data();
    if (gates) gate = numbers(random, n, 0.9, 1), input.weights.gate_high = gate.data();
    if (levels)
      scales = numbers(random, n * 20, 0, 2), input.weights.level_scales = scales.data(),
      input.weights.levels = 20;
  }
};

struct DeltaHead {
  std::vector<double> q, k, v, beta, scales;
  CertifiedDelta input;
  DeltaHead(Index n, Index d, bool levels) {
    std::mt19937_64 random(1);
    q = numbers(random, n * d, -1, 1), k = numbers(random, n * d, -1, 1), v = numbers(random, n * d, -1, 1);
    beta = numbers(random, n, 0, 1), scales = numbers(random, levels ? n * 20 : 0, 0, 2);
    for (auto row = k.begin(); row != k.end(); row += d) {
      double squares = 0;
      for (auto x = row; x != row + d; ++x) squares += *x * *x;
      for (auto x = row; x != row + d; ++x) *x /= std::sqrt(squares);
    }
    input.tokens = n, input.key_dim = input.value_dim = d;
    input.q = q.data(), input.k = k.data(), input.v = v.data(), input.beta = beta.data();
    input.gates.high = numbers(random, n, 0.9, 1);
    input.gates.low.assign(static_cast<std::size_t>(n), 0), input.gates.error = input.gates.low;
    if (levels) input.level_scales = scales.data(), input.levels = 20;
  }
};

using Sum = CertifiedRows (*)(const CertifiedInput&, const CertifiedOptions&);

// Of the magnitude; of a delta rule, whose magnitudes say nothing, of the largest value.
double worst(const CertifiedRows& rows, bool delta) {
  double ratio = 0, largest = 0;
  for (const double x : rows.high) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < rows.radius.size(); ++i)
    ratio = std::max(ratio, rows.radius[i] / (delta ? largest : rows.magnitude[i]));
  return ratio;
}

void time(const char* name, Index n, Index d, int heads, bool delta,
          const std::function<CertifiedRows()>& evaluate) {
  std::vector<double> seconds;
  double radius = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::future<CertifiedRows>> running;
    for (int h = 0; h < heads; ++h) running.push_back(std::async(std::launch::async, evaluate));
    for (auto& one : running) radius = std::max(radius, worst(one.get(), delta));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  fmt::print("{:<23} T {:>6}  d {:>3}  heads {:>2}  first {:.3f} s  best {:.3f} s  radius 2^{:.1f} {}\n",
             name, n, d, heads, seconds[0], *std::min_element(seconds.begin(), seconds.end()),
             std::log2(radius), delta ? "of the largest value" : "M");
}

void time(const char* name, Sum sum, Index n, Index d, int heads, bool gates, bool levels,
          const CertifiedEngine* engine) {
  const Head head(n, d, gates, levels);
  CertifiedOptions options;
  options.engine = engine;
  time(name, n, d, heads, false, [&] { return sum(head.input, options); });
}

void time_delta(const char* name, Index n, Index d, int heads, bool levels, const CertifiedEngine* engine) {
  const DeltaHead head(n, d, levels);
  DeltaOptions options;
  options.magnitude = false, options.engine = engine;
  time(name, n, d, heads, true, [&] {
    CertifiedRows rows = certified_delta(head.input, options);
    if (!rows.by_engine) fmt::print("{}: on the processor, as the device could not\n", name);
    return rows;
  });
}

}  // namespace

// Usage: bench_gpu_oracle [delta]: the delta rules alone.
int main(int count, char**) {
  std::string why;
  const CertifiedEngine* engine = gpu_engine(why);
  if (!engine) {
    fmt::print("not run: {}\n", why);
    return 77;
  }
  for (const auto& [n, heads] : {std::pair<Index, int>(4096, 1), {4096, 16}, {16384, 1}, {65536, 1}}) {
    time_delta("gated_delta", n, 128, heads, false, engine);
    time_delta("log_linear_gated_delta", n, 128, heads, true, engine);
    if (count > 1) continue;
    time("hla2", &certified_hla2, n, 128, heads, false, false, engine);
    time("ahla", &certified_ahla, n, 128, heads, false, false, engine);
    time("hla3", &certified_hla3, n, 128, heads, false, false, engine);
    time("mamba2", &certified_linear, n, 128, heads, true, false, engine);
    time("log_linear_mamba2", &certified_linear, n, 128, heads, true, true, engine);
  }
}
