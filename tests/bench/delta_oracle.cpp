// The certified recurrence of the delta rules at the sizes of use: seconds of one head with unit keys on the processor, in
// double and in double-double, its radius, and the memory of the process. Usage: bench_delta_oracle [THREADS [LARGEST]]
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
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

void make_unit_rows(std::vector<double>& rows, Index width) {
  for (auto row = rows.begin(); row != rows.end(); row += width) {
    double squares = 0;
    for (auto x = row; x != row + width; ++x) squares += *x * *x;
    for (auto x = row; x != row + width; ++x) *x /= std::sqrt(squares);
  }
}

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void time(Index n, Index d, bool gates, bool levels, DeltaPrecision precision, int threads) {
  std::mt19937_64 random(1);
  std::vector<double> q = numbers(random, n * d, -1, 1), k = numbers(random, n * d, -1, 1),
                      v = numbers(random, n * d, -1, 1), beta = numbers(random, n, 0, 1),
                      scales = numbers(random, levels ? n * 20 : 0, 0, 2);
  make_unit_rows(k, d);
  CertifiedDelta input;
  input.tokens = n, input.key_dim = input.value_dim = d;
  input.q = q.data(), input.k = k.data(), input.v = v.data(), input.beta = beta.data();
  if (gates) {
    input.gates.high = numbers(random, n, 0.9, 1);
    input.gates.low.assign(static_cast<std::size_t>(n), 0), input.gates.error = input.gates.low;
  }
  if (levels) input.level_scales = scales.data(), input.levels = 20;
  DeltaOptions options;
  options.precision = precision, options.magnitude = false, options.threads = threads;
  const auto start = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  const CertifiedRows rows = certified_delta(input, options);
  const double used = processor_seconds() - processor;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double radius = 0, largest = 0;
  for (std::size_t i = 0; i < rows.high.size(); ++i)
    radius = std::max(radius, rows.radius[i]), largest = std::max(largest, std::abs(rows.high[i]));
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{:<24} T {:>6}  d {}  {:<13}  {:.3f} s  processor {:.3f} s  radius 2^{:.1f} of the largest o  {} "
      "MiB\n",
      levels  ? "log_linear_gated_delta"
      : gates ? "gated_delta"
              : "delta",
      n, d, precision == DeltaPrecision::plain ? "double" : "double-double", seconds, used,
      std::log2(radius / largest), usage.ru_maxrss / 1024);
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const Index largest = count > 2 ? std::atoll(arguments[2]) : 65536;
  for (const Index n : {Index{4096}, Index{16384}, Index{65536}})
    for (const auto precision : {DeltaPrecision::plain, DeltaPrecision::pair}) {
      if (n > largest) continue;
      time(n, 128, false, false, precision, threads);
      time(n, 128, true, false, precision, threads);
      time(n, 128, true, true, precision, threads);
    }
}
