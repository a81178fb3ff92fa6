// What the bound of one head costs, and which it is:
//   ./dev bench bound --kernels 'cpu.hla2.chunk64.direct.bf16' --tokens 4096 16384 --dim 128
// Inputs are those of `attest check --shape T=…,d=…,dv=…,H=1 --seed 1`, the rows those that it judges. `checksum` is of the
// bits of the bounds: two versions that agree in it give the same verdicts.
#include "reference/metrics/bound.hpp"

#include <fmt/format.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <ctime>

#include "gpu_checks/judged_rows.hpp"
#include "gpu_checks/kernel.hpp"
#include "reference/cases/checksum.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/numeric/keep_memory.hpp"

namespace attest {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string bits_of(const ErrorModel& model) {
  std::vector<double> all;
  for (const Matrix<double>* part : {&model.deterministic, &model.accumulation, &model.variance})
    all.insert(all.end(), part->data(), part->data() + part->size());
  return checksum_of(std::as_bytes(std::span(all)));
}

void measure(const Kernel& kernel, Index tokens, Index dim, int threads) {
  const Operator& op = operator_named(kernel.op, kernel.variant);
  Case input;
  input.op = kernel.op, input.variant = kernel.variant, input.seed = 1;
  input.tokens = tokens, input.key_dim = input.value_dim = dim;
  const Problem problem = round_inputs(kernel.contract, draw_problem(input, op.declaration()));
  const auto rows = judged_rows(op.declaration(), {tokens, dim, dim}, kernel.how, input.seed, 0);
  const Head<double> head = head_of<double>(problem, op.declaration(), slots(problem).at(0));
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  const ErrorModel model =
      error_model(op, head, kernel.how, kernel.contract, {}, rows ? &*rows : nullptr, threads);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double sum = 0;
  for (Index i = 0; i < model.deterministic.size(); ++i) sum += model.deterministic.data()[i];
  fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:.17g} | {}{} |\n", kernel.name, tokens,
             model.deterministic.rows(), cpu_seconds() - cpu, wall, sum, bits_of(model),
             model.undecided ? ", undecided" : "");
  std::fflush(stdout);
}

int main_of_bench(int argc, char** argv) {
  CLI::App app{"the cost of the bound"};
  std::vector<std::string> kernels{"cpu.hla2.chunk64.direct.bf16"};
  std::vector<Index> tokens{4096};
  Index dim = 128;
  int threads = 1;
  app.add_option("--kernels", kernels, "globs of registered kernels");
  app.add_option("--tokens", tokens, "lengths");
  app.add_option("--dim", dim, "d = dv");
  app.add_option("--threads", threads, "that work on the head");
  CLI11_PARSE(app, argc, argv);
  keep_memory();
  fmt::print(
      "| kernel | T | rows | CPU s | wall s | sum of the bounds | checksum |\n| --- | ---: | ---: | ---: | "
      "---: "
      "| --- | --- |\n");
  for (const std::string& glob : kernels)
    for (const Kernel* kernel : find_kernels(glob, "*"))
      for (const Index length : tokens) measure(*kernel, length, dim, threads);
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::main_of_bench(argc, argv); }
