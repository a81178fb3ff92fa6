// How fast the hunter asks, and where the time goes:
//   ./dev bench throughput                              the default kernels
//   ./dev bench throughput --kernels cpu.hla2.chunk16.direct.fp32 --cases 500
//   ./dev bench throughput --plugin build/plugins/hla2_stream.so --kernels ''
// A case: the value and two drawn questions, each of an input of the hunter's grammar with T <= 64 and d, dv <= 16, that
// depend on the seed alone. Shares of stages are of the wall time of the threads; CPU is that of this process, without a
// door's. build: the problem of an input; rest: comparison and what the questions do beside one call.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <ctime>
#include <mutex>

#include "fuzz/grammar.hpp"
#include "fuzz/hunt.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/battery/call.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/numeric/keep_memory.hpp"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr Index longest = 64, widest = 16;

// The value of one input, and two drawn questions, each of an input of its own; none that draws its inputs itself.
std::vector<FuzzInput> draw_case(const Grammar& grammar, Random& random) {
  const auto draw = [&](bool value) {
    for (;;) {
      FuzzInput input = grammar.draw(random);
      const Case& c = input.shape;
      if (is_battery(input.question) || (input.question == Question::value) != value) continue;
      if (*c.tokens <= longest && c.key_dim <= widest && c.value_dim <= widest) return input;
    }
  };
  return {draw(true), draw(false), draw(false)};
}

struct Stage {
  double build = 0, call = 0, oracle = 0, bound = 0, all = 0;
};

struct Measured {
  Index cases = 0, questions = 0, decided = 0;
  double wall = 0, cpu = 0;
  Stage stage;
};

Measured measure(const Subject& subject, Index count, int threads, std::uint64_t seed) {
  const Operator& op = operator_named(subject.kernel.op, subject.kernel.variant);
  const BatteryContext context{subject.kernel, op, seed, Effort::quick};
  const Grammar grammar(context);
  Measured m;
  std::mutex guard;
  constexpr Index block = 32;
  const double cpu = process_seconds();
  const auto start = Clock::now();
  for_each_parallel((count + block - 1) / block, threads, [&](Index b) {
    Measured own;
    Random random(seed + static_cast<std::uint64_t>(b), "throughput");
    const auto began = Clock::now();
    const Spent before = spent_on_this_thread();
    for (Index i = b * block; i < std::min(count, (b + 1) * block); ++i, ++own.cases) {
      for (const FuzzInput& input : draw_case(grammar, random)) {
        const auto from = Clock::now();
        build(context, input);
        const double once = seconds_since(from);
        own.stage.build += once, own.stage.all -= once;  // ask() builds it again
        own.decided += ask(context, input).decided(), ++own.questions;
      }
    }
    const Spent& spent = spent_on_this_thread();
    const std::lock_guard lock(guard);
    m.cases += own.cases, m.questions += own.questions, m.decided += own.decided;
    m.stage.build += own.stage.build;
    m.stage.all += seconds_since(began) + own.stage.all;
    m.stage.call += 1e-9 * static_cast<double>(spent.call_ns - before.call_ns);
    m.stage.oracle += 1e-9 * static_cast<double>(spent.oracle_ns - before.oracle_ns);
    m.stage.bound += 1e-9 * static_cast<double>(spent.bound_ns - before.bound_ns);
  });
  // What was built for the measurement alone is no part of either; it ran on all threads alike.
  const double share = m.stage.all / (m.stage.all + m.stage.build);
  m.wall = seconds_since(start) * share, m.cpu = (process_seconds() - cpu) * share;
  return m;
}

void print_head() {
  fmt::print(
      "| kernel | threads | cases/s | questions/s | questions a CPU s | decided | build | call | "
      "oracle | bound | "
      "rest |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
}

void print(const Subject& subject, int threads, const Measured& m) {
  const auto percent = [&](double part) { return 100 * part / m.stage.all; };
  const Stage& s = m.stage;
  const auto n = static_cast<double>(m.questions);
  fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} % |", subject.kernel.name, threads,
             static_cast<double>(m.cases) / m.wall, n / m.wall, n / m.cpu,
             100 * static_cast<double>(m.decided) / n);
  for (const double part : {s.build, s.call, s.oracle, s.bound}) fmt::print(" {:.0f} % |", percent(part));
  fmt::print(" {:.0f} % |\n", percent(s.all - s.build - s.call - s.oracle - s.bound));
  std::fflush(stdout);
}

// The hunt itself: inputs of any size of the grammar, one question each.
void print_hunt(const Subject& subject, Index cases, int threads, std::uint64_t seed) {
  HuntOptions options;
  options.cases = cases, options.threads = threads, options.seed = seed;
  const double cpu = process_seconds();
  const HuntReport report = hunt(subject, {}, options);
  const double used = process_seconds() - cpu;
  double asking = 0, width = 0;
  for (const auto& [question, tally] : report.questions)
    (question == Question::width ? width : asking) += 1e-9 * static_cast<double>(tally.nanoseconds);
  fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} % | {:.0f} % |\n", subject.kernel.name,
             subject.pure ? threads : 1, static_cast<double>(report.cases) / report.seconds,
             static_cast<double>(report.cases) / used, 100 * width / used,
             100 * (used - asking - width) / used);
  std::fflush(stdout);
}

int main_of_bench(int argc, char** argv) {
  CLI::App app{"questions a second of the hunter"};
  std::vector<std::string> kernels{"cpu.hla2.chunk16.direct.fp32"};
  DoorOptions doors;
  Index cases = 300, hunted = 300, processed = 100;
  int threads = 2;
  std::uint64_t seed = 1;
  std::string program = "build/attest";
  app.add_option("--kernels", kernels, "globs of registered kernels");
  app.add_option("--plugin", doors.plugins, "plug-ins");
  app.add_option("--program", program, "attest, which is the worker of the doors");
  app.add_option("--process", doors.processes, "process kernels");
  app.add_option("--cases", cases, "cases of a registered kernel or a plug-in");
  app.add_option("--process-cases", processed, "cases of a process kernel");
  app.add_option("--hunt-cases", hunted, "cases of a hunt of every registered kernel, 0: none");
  app.add_option("--threads", threads, "of registered kernels, workers of a door");
  app.add_option("--seed", seed, "of the inputs");
  CLI11_PARSE(app, argc, argv);
  keep_memory();
  set_worker_program(program);
  doors.workers = threads;
  adopt_kernels(open_doors(doors));
  std::vector<Subject> subjects;
  for (const std::string& glob : kernels)
    for (Subject& subject : find_subjects(glob, "", doors))
      if (subject.pure) subjects.push_back(std::move(subject));
  const std::size_t registered = subjects.size();
  for (Subject& subject : find_subjects("", "", doors))
    if (!subject.pure) subjects.push_back(std::move(subject));
  print_head();
  for (const Subject& subject : subjects)
    for (const int n : {1, threads})
      print(subject, n,
            measure(subject, subject.kernel.source.starts_with("--process") ? processed : cases, n,
                    seed + 1000 * static_cast<std::uint64_t>(n)));
  if (hunted > 0 && registered > 0)
    fmt::print(
        "\n| kernel | threads | hunt: cases/s | a CPU s | width | beside the questions |\n| --- | ---: | "
        "---: | ---: | ---: | ---: |\n");
  for (std::size_t i = 0; hunted > 0 && i < registered; ++i)
    for (const int n : {1, threads}) print_hunt(subjects[i], hunted, n, seed);
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::main_of_bench(argc, argv); }
