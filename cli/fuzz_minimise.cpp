// attest fuzz --minimise: thins a corpus.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "cli/commands.hpp"
#include "cli/fuzz_arguments.hpp"
#include "cli/options.hpp"
#include "fuzz/minimise.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

bool computes(const Subject& subject, const CorpusCase& one) {
  return subject.kernel.op == one.input.shape.op && subject.kernel.variant == one.input.shape.variant;
}

// The operators of the cases that none of the kernels computes, and how many those are.
std::pair<std::set<std::string>, std::size_t> not_askable(const Corpus& corpus,
                                                          const std::vector<Subject>& subjects) {
  std::pair<std::set<std::string>, std::size_t> left;
  for (const CorpusCase& one : corpus.cases) {
    if (std::ranges::any_of(subjects, [&](const Subject& s) { return computes(s, one); })) continue;
    left.first.insert(one.input.shape.op + " (" + one.input.shape.variant + ')'), ++left.second;
  }
  return left;
}

}  // namespace

int run_minimise(const FuzzArguments& arguments, const DoorOptions& doors) {
  if (arguments.corpus.empty()) throw BadInput("--minimise: expected --corpus DIR beside it");
  if (!std::filesystem::is_directory(arguments.corpus))
    throw BadInput("--corpus " + in_quotes(arguments.corpus) + ": no such folder, expected one of cases");
  require_writable(arguments.corpus);
  const Corpus corpus = read_corpus(arguments.corpus);
  for (const std::string& why : corpus.skipped) note("skipped: " + why);
  const bool all = arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty();
  const auto subjects = subjects_of(all ? "mutant.*" : arguments.kernel, arguments.op, doors);
  const auto [operators, not_asked] = not_askable(corpus, subjects);
  const std::string why = fmt::format("{} of {} cannot be asked, no {} computes {}", not_asked,
                                      plural(std::ssize(corpus.cases), "case", "cases"),
                                      all ? "mutant" : "kernel that was named", fmt::join(operators, ", "));
  if (not_asked > 0 && not_asked == corpus.cases.size()) {
    std::cout << "NOT RUN: " << why
              << "; nothing is removed, expected --kernel, --plugin or --process of one that does\n";
    return exit_nothing_ran;
  }
  if (not_asked > 0) note(why + ": they are kept");
  const bool shown = isatty(STDERR_FILENO) != 0;
  const Minimised result = minimise(corpus.cases, subjects, [&](std::size_t asked) {
    if (shown)
      std::cerr << fmt::format("\r\033[K{} of {} cases asked", asked, corpus.cases.size()) << std::flush;
  });
  if (shown) std::cerr << "\r\033[K" << std::flush;
  for (const std::string& file : result.dropped) {
    std::filesystem::remove(file);
    std::cout << "removed " << printable(file, 4096) << '\n';
  }
  std::cout << fmt::format("{} kept, {} removed, {} skipped; {}, {} as before\n",
                           plural(std::ssize(result.kept), "case", "cases"), result.dropped.size(),
                           corpus.skipped.size(), plural(static_cast<Index>(result.kills), "kill", "kills"),
                           plural(static_cast<Index>(result.cells), "cell", "cells"));
  return exit_passed;
}

}  // namespace attest
