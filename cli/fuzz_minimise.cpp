// attest fuzz --minimise: thins a corpus.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "cli/commands.hpp"
#include "cli/fuzz_arguments.hpp"
#include "cli/options.hpp"
#include "fuzz/minimise.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

int run_minimise(const FuzzArguments& arguments, const DoorOptions& doors) {
  if (arguments.corpus.empty()) throw BadInput("--minimise: expected --corpus DIR beside it");
  if (!std::filesystem::is_directory(arguments.corpus))
    throw BadInput("--corpus " + in_quotes(arguments.corpus) + ": no such folder, expected one of cases");
  require_writable(arguments.corpus);
  const Corpus corpus = read_corpus(arguments.corpus);
  for (const std::string& why : corpus.skipped) note("skipped: " + why);
  const bool all = arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty();
  const auto subjects = subjects_of(all ? "mutant.*" : arguments.kernel, arguments.op, doors);
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
  std::cout << fmt::format("{} cases kept, {} removed, {} skipped; {} kills, {} cells as before\n",
                           result.kept.size(), result.dropped.size(), corpus.skipped.size(), result.kills,
                           result.cells);
  return exit_passed;
}

}  // namespace attest
