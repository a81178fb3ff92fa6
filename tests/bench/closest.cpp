// How near to its bound the error of a right kernel can be driven, by a search made for that alone:
//   ./dev bench closest --rounds 400 --kernels cpu.hla2.chunk16.direct.fp32
// A sum of few terms (T up to 3, d up to 2) has few roundings. Batch entries, heads and value columns are copies of one such sum,
// every copy changed a little: a case is a population of 8192 sums, and the next one is made of copies of its worst. From
// several starts, each for its share of the rounds.
#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cmath>

#include "fuzz/subject.hpp"
#include "gpu_checks/battery/call.hpp"
#include "reference/cases/random.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

constexpr Index entries = 16, heads = 8, columns = 64;

struct Start {
  Index tokens, key_dim;
  const char* gates;
};

// A change of the last bits, of the significand, or of the sign.
double changed(double x, Random& random) {
  switch (random.below(4)) {
    case 0:
      return x * (1 + std::ldexp(random.uniform(-1, 1), -static_cast<int>(random.below(20))));
    case 1:
      return std::copysign(std::ldexp(1 + random.uniform() / 8, std::ilogb(x)), x);
    case 2:
      return random.one_in(8) ? -x : x;
    default:
      return x;
  }
}

// Copies of entry (b, h, column), the first of them unchanged. Every field has all heads.
void crowd_around(Problem& problem, Index b, Index h, Index column, Random& random) {
  for (auto& [name, tensor] : problem.fields) {
    if (name == "decay") {
      std::fill(tensor.data.begin(), tensor.data.end(), tensor.data[static_cast<std::size_t>(h)]);
      continue;
    }
    const Tensor before = tensor;
    const Index width = element_count(tensor.shape) / (entries * problem.tokens * heads);
    for (Index i = 0; i < element_count(tensor.shape); ++i) {
      const Index c = i % width, t = i / width / heads % problem.tokens;
      const Index from = ((b * problem.tokens + t) * heads + h) * width + (name == "v" ? column : c);
      double x = before.data[static_cast<std::size_t>(from)];
      const bool first =
          i / width % heads == 0 && i / (width * heads * problem.tokens) == 0 && (name != "v" || c == 0);
      if (!first && (name == "q" || name == "k" || name == "v") && x != 0) x = changed(x, random);
      tensor.data[static_cast<std::size_t>(i)] = x;
    }
  }
}

double climb(const Subject& subject, const Start& start, Index rounds, std::uint64_t seed) {
  const BatteryContext context{subject.kernel, operator_named(subject.kernel.op, subject.kernel.variant),
                               seed, Effort::quick};
  Random random(seed, "closest");
  double best = 0;
  Problem kept;
  Index at = 0;
  for (Index round = 0; round < rounds; ++round) {
    Problem problem;
    if (round < rounds / 8 || best == 0) {
      Case shape;
      shape.tokens = start.tokens, shape.key_dim = start.key_dim, shape.value_dim = columns;
      shape.heads = heads, shape.batch = entries, shape.seed = random.bits() >> 16;
      shape.recipe = "uniform", shape.gates = start.gates;
      problem = drawn(context, shape);
    } else {
      problem = kept;
      const Index row = at / columns;
      crowd_around(problem, row / (problem.tokens * heads), row % heads, at % columns, random);
      problem = round_inputs(context.kernel.contract, std::move(problem));
    }
    Findings findings(context.kernel);
    const auto outputs = call(context, problem, findings);
    if (!outputs) return best;
    judge_output_quickly(context, problem, outputs->at("o"), findings);
    if (findings.failed()) fmt::print("FAILURE of {}\n", subject.kernel.name);
    if (findings.reached() > best)
      best = findings.reached(), at = findings.reached_at(), kept = std::move(problem);
  }
  return best;
}

int main_of_bench(int argc, char** argv) {
  CLI::App app{"how near to its bound an error can be driven"};
  std::vector<std::string> kernels{"cpu.*.chunk16*.fp32", "cpu.*.chunk64.*bf16"};
  Index rounds = 400;
  std::uint64_t seed = 1;
  app.add_option("--kernels", kernels, "globs of correct kernels");
  app.add_option("--rounds", rounds, "cases of a kernel");
  app.add_option("--seed", seed, "of the inputs");
  CLI11_PARSE(app, argc, argv);
  constexpr Start starts[] = {
      {1, 1, "none"}, {1, 2, "none"}, {2, 1, "none"}, {2, 1, "uniform"}, {3, 2, "uniform"}};
  fmt::print("| kernel | error/bound | T, d, gates |\n| --- | ---: | --- |\n");
  for (const std::string& glob : kernels)
    for (const Subject& subject : find_subjects(glob, "", {})) {
      double best = 0;
      const Start* by = starts;
      for (const Start& start : starts)
        if (const double reached =
                climb(subject, start, rounds / static_cast<Index>(std::size(starts)), seed);
            reached > best)
          best = reached, by = &start;
      fmt::print("| {} | {:.3f} | {}, {}, {} |\n", subject.kernel.name, best, by->tokens, by->key_dim,
                 by->gates);
      std::fflush(stdout);
    }
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::main_of_bench(argc, argv); }
