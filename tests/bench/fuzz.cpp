// The hunter against plain random sampling, at the same budget of cases:
//   ./dev bench fuzz                                 both tables, to standard output
//   ./dev bench fuzz --mutants 'mutant.hla2.*' --cases 300
// plain: every choice of the grammar uniform and independent; grammar: the hunter's own grammar without any memory; search:
// the hunter. Mutants: cases to the first failure, every strategy with the same cap, the equivalent ones left out. Correct
// kernels: largest error/bound after as many cases.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <mutex>

#include "fuzz/hunt.hpp"
#include "gpu_checks/mutants/kill_matrix.hpp"
#include "reference/forms/certify.hpp"

namespace attest {
namespace {

struct Budget {
  Index cases = 300, error_cases = 300;
  double seconds = 60;  // of one hunt
  std::uint64_t seed = 1;
  Index repeats = 1, every = 1;
  int threads = 1;
  bool search_alone = false;
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr Strategy strategies[] = {Strategy::plain, Strategy::grammar, Strategy::search};
constexpr const char* strategy_names[] = {"plain random", "grammar, no memory", "search"};
constexpr std::size_t count = std::size(strategies);

struct Kill {
  std::string mutant;
  double cases[count] = {};  // mean over the repeats; a hunt without a kill counts as its cap
  bool killed[count] = {};   // in every repeat
  double seconds[count] = {}, cpu_seconds[count] = {};
};

Kill kill_of(const Mutant& mutant, const Budget& budget) {
  Kill kill{mutant.kernel.name, {}, {}, {}, {}};
  for (std::size_t s = budget.search_alone ? 2 : 0; s < count; ++s) {
    kill.killed[s] = true;
    for (Index r = 0; r < budget.repeats; ++r) {
      HuntOptions options;
      options.strategy = strategies[s], options.cases = budget.cases, options.until_first_failure = true;
      options.seconds = budget.seconds, options.seed = budget.seed + static_cast<std::uint64_t>(r);
      const double before = thread_seconds();
      const HuntReport report = hunt(find_subjects(mutant.kernel.name, "", {}).at(0), {}, options);
      kill.cpu_seconds[s] = std::max(kill.cpu_seconds[s], thread_seconds() - before);
      kill.killed[s] = kill.killed[s] && report.first_failure.has_value();
      kill.cases[s] += static_cast<double>(report.first_failure.value_or(budget.cases)) /
                       static_cast<double>(budget.repeats);
      kill.seconds[s] = std::max(kill.seconds[s], report.seconds);
    }
  }
  return kill;
}

double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void print_hardest(const std::vector<Kill>& kills, const Budget& budget) {
  fmt::print("The hardest, and all that a strategy did not kill in every repeat:\n\n{}",
             budget.search_alone ? "| mutant | search |\n| --- | ---: |\n"
                                 : "| mutant | plain | grammar | search |\n| --- | ---: | ---: | ---: |\n");
  std::vector<Kill> hard = kills;
  std::stable_sort(hard.begin(), hard.end(),
                   [](const Kill& a, const Kill& b) { return a.cases[2] > b.cases[2]; });
  for (std::size_t i = 0; i < hard.size(); ++i) {
    const Kill& kill = hard[i];
    if (i >= 15 && kill.killed[2] && (budget.search_alone || (kill.killed[0] && kill.killed[1]))) continue;
    fmt::print("| {} |", kill.mutant);
    for (std::size_t s = budget.search_alone ? 2 : 0; s < count; ++s)
      fmt::print(" {}{:.1f} |", kill.killed[s] ? "" : "not ", kill.cases[s]);
    fmt::print("\n");
  }
  fmt::print("\n");
}

void print_kills(const std::vector<Kill>& kills, const Budget& budget) {
  fmt::print(
      "## Mutants: cases to the first failure\n\n{} mutants, {} repeats, at most {} cases and {} s a hunt, "
      "seeds from {}.\n\n",
      kills.size(), budget.repeats, budget.cases, budget.seconds, budget.seed);
  fmt::print(
      "| strategy | killed | first case | median | mean | 90 % | longest hunt s | CPU s | all hunts CPU s |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (std::size_t s = budget.search_alone ? 2 : 0; s < count; ++s) {
    std::vector<double> cases;
    double sum = 0, longest = 0, longest_cpu = 0, cpu = 0;
    Index killed = 0, at_once = 0;
    for (const Kill& kill : kills)
      cases.push_back(kill.cases[s]), sum += kill.cases[s], killed += kill.killed[s],
          at_once += kill.killed[s] && kill.cases[s] == 1,
          longest = std::max(longest, kill.seconds[s]),
          longest_cpu = std::max(longest_cpu, kill.cpu_seconds[s]), cpu += kill.cpu_seconds[s];
    std::sort(cases.begin(), cases.end());
    fmt::print("| {} | {} of {} | {} | {:.1f} | {:.1f} | {:.0f} | {:.1f} | {:.1f} | {:.0f} |\n",
               strategy_names[s], killed, kills.size(), at_once, median(cases),
               sum / static_cast<double>(cases.size()), cases[cases.size() * 9 / 10], longest, longest_cpu,
               cpu);
  }
  if (budget.search_alone) return print_hardest(kills, budget);
  std::vector<double> ratios, most_possible, beyond_ratios;
  Index censored = 0;
  for (const Kill& kill : kills) {
    if (kill.cases[0] <= 1) continue;
    ratios.push_back(kill.cases[0] / kill.cases[2]), most_possible.push_back(kill.cases[0]);
    censored += !kill.killed[0];
    if (kill.cases[0] > 10) beyond_ratios.push_back(ratios.back());
  }
  fmt::print(
      "\nOf the {} mutants that plain random sampling does not kill with its first case: plain cases / "
      "search cases, median {:.2f} "
      "(a plain hunt without a kill counts as its cap, {} of them: the true ratio is larger).\n",
      ratios.size(), median(ratios), censored);
  fmt::print("Had every one of them died of the search's first case, it would be {:.2f}.\n",
             median(most_possible));
  fmt::print("Of the {} that take it more than ten cases: median {:.2f}.\n\n", beyond_ratios.size(),
             median(beyond_ratios));
  print_hardest(kills, budget);
}

void print_errors(const std::vector<std::string>& kernels, const Budget& budget) {
  fmt::print(
      "## Correct kernels: largest error/bound after {} cases\n\n| kernel | plain random | grammar, no "
      "memory | search | search / plain | most possible, 1 / plain |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: |\n",
      budget.error_cases);
  std::vector<double> ratios, possible;
  Index failures = 0;
  for (const std::string& glob : kernels)
    for (const Subject& subject : find_subjects(glob, "", {})) {
      double best[count] = {};
      for (std::size_t s = 0; s < count; ++s) {
        HuntOptions options;
        options.strategy = strategies[s], options.cases = budget.error_cases,
        options.objective = Objective::error;
        options.seed = budget.seed, options.seconds = 10 * budget.seconds, options.most_shrinking = 200;
        const HuntReport report = hunt(subject, {}, options);
        best[s] = report.best, failures += static_cast<Index>(report.findings.size());
        for (const Finding& f : report.findings)
          std::cerr << subject.kernel.name << ": " << f.reason << '\n'
                    << to_text({f.shrunk, subject.kernel.name, "", ""});
      }
      ratios.push_back(best[2] / best[0]), possible.push_back(1 / best[0]);
      fmt::print("| {} | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.2f} |\n", subject.kernel.name, best[0],
                 best[1], best[2], ratios.back(), possible.back());
      std::fflush(stdout);
    }
  fmt::print("\nMedian of search / plain: {:.2f}, of the most possible: {:.2f}. Failures: {}.\n",
             median(ratios), median(possible), failures);
}

int main_of_bench(int argc, char** argv) {
  CLI::App app{"the hunter against plain random sampling"};
  Budget budget;
  std::string mutants = "*";
  std::vector<std::string> kernels{"cpu.*.chunk16*.fp32", "cpu.*.chunk64.*bf16"};
  app.add_option("--mutants", mutants, "glob of mutants, none: no such table");
  app.add_option("--kernels", kernels, "globs of correct kernels");
  app.add_option("--cases", budget.cases, "the cap of a hunt for a mutant");
  app.add_option("--error-cases", budget.error_cases, "cases of a correct kernel, 0: no such table");
  app.add_option("--seconds", budget.seconds, "the other cap of a hunt for a mutant");
  app.add_option("--repeats", budget.repeats, "seeds a mutant");
  app.add_flag("--search-alone", budget.search_alone, "without the other strategies");
  app.add_option("--every", budget.every, "every so many mutants of the glob's");
  app.add_option("--seed", budget.seed, "the first seed");
  app.add_option("--threads", budget.threads, "mutants at once");
  CLI11_PARSE(app, argc, argv);
  std::vector<const Mutant*> chosen;
  const auto found = find_mutants(mutants);
  for (std::size_t i = 0; i < found.size(); i += static_cast<std::size_t>(budget.every))
    if (equivalent_because(*found[i]).empty()) chosen.push_back(found[i]);
  if (!chosen.empty()) {
    std::vector<Kill> kills(chosen.size());
    std::mutex guard;
    Index done = 0;
    for_each_parallel(static_cast<Index>(chosen.size()), budget.threads, [&](Index i) {
      kills[static_cast<std::size_t>(i)] = kill_of(*chosen[static_cast<std::size_t>(i)], budget);
      const std::lock_guard lock(guard);
      if (++done % 20 == 0) std::cerr << done << " of " << chosen.size() << " mutants\n";
    });
    print_kills(kills, budget);
    std::fflush(stdout);
  }
  if (budget.error_cases > 0) print_errors(kernels, budget);
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::main_of_bench(argc, argv); }
