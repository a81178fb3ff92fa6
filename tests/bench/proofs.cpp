// Exact instances a second of the ledger: random ones over the prime field, and the small ones in fractions.
//   ./dev bench proofs [--claims 'hla.*'] [--threads 2]
#include <fmt/format.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <ctime>

#include "proofs/ledger.hpp"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_proofs(const std::string& glob, int threads, std::uint64_t seed) {
  LedgerOptions options;
  options.threads = threads, options.seed = seed;
  const double cpu = process_seconds();
  const auto start = Clock::now();
  const auto entries = decide_claims(claims_matching(glob), options);
  const double wall = std::chrono::duration<double>(Clock::now() - start).count(),
               used = process_seconds() - cpu;
  std::int64_t field = 0, rational = 0;
  const auto add = [&](const Decision& d) { field += d.field_instances, rational += d.rational_instances; };
  for (const Entry& entry : entries) {
    add(entry.decision);
    if (entry.corrected) add(*entry.corrected);
    if (entry.instead) add(*entry.instead);
  }
  const auto n = static_cast<double>(field + rational);
  fmt::print(
      "{} claims, {} threads: {} instances over the prime field, {} in fractions; {:.0f} instances/s, "
      "{:.0f} a "
      "CPU s\n",
      entries.size(), threads, field, rational, n / wall, n / used);
}

int main_of_bench(int argc, char** argv) {
  CLI::App app{"exact instances a second of the ledger"};
  std::string claims = "*";
  int threads = 2;
  std::uint64_t seed = 1;
  app.add_option("--claims", claims, "glob of claims");
  app.add_option("--threads", threads, "claims at once");
  app.add_option("--seed", seed, "of the instances");
  CLI11_PARSE(app, argc, argv);
  print_proofs(claims, threads, seed);
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::main_of_bench(argc, argv); }
