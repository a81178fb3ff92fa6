// attest replay: cases of the corpus, one by one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/fuzz_arguments.hpp"
#include "cli/options.hpp"
#include "fuzz/ask.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct ReplayArguments {
  std::string kernel;
  std::vector<std::string> files;
};

struct Replay {
  std::string file;
  FuzzInput input;
  std::vector<Subject> subjects;  // of its operator
};

// "--kernel K", or without it the doors.
std::string asked_words(const ReplayArguments& arguments, const DoorOptions& doors) {
  if (!arguments.kernel.empty()) return "--kernel " + in_quotes(arguments.kernel);
  std::vector<std::string> words;
  for (const std::string& plugin : doors.plugins) words.push_back("--plugin " + in_quotes(plugin));
  for (const std::string& process : doors.processes) words.push_back("--process " + in_quotes(process));
  return fmt::format("{}", fmt::join(words, " "));
}

Replay read_replay(const std::string& file, const ReplayArguments& arguments, const DoorOptions& doors) {
  const CorpusCase one = read_corpus_case(file);
  const bool own = arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty();
  const std::string& kernel = own ? one.kernel : arguments.kernel;
  if (own && find_subjects(kernel, "", doors).empty())
    throw BadInput(
        fmt::format("{}: found on {}, which is not registered, expected the --plugin or --process that "
                    "announces it, or another --kernel",
                    printable(file, 200), in_quotes(kernel)));
  const Case& shape = one.input.shape;
  Replay replay{file, one.input, subjects_of(kernel, "", doors)};
  std::erase_if(replay.subjects, [&](const Subject& subject) {
    return subject.kernel.op != shape.op || subject.kernel.variant != shape.variant;
  });
  if (replay.subjects.empty())
    throw BadInput(fmt::format("{}: no kernel of {} computes {} ({})", printable(file, 200),
                               own ? in_quotes(kernel) : asked_words(arguments, doors), shape.op,
                               shape.variant));
  return replay;
}

// How near to what was expected; empty where nothing was compared.
std::string measure_words(const FuzzInput& input, const Answer& answer) {
  const CheckOutcome& outcome = answer.outcome;
  if (!answer.decided() || outcome.compared == 0 || input.question == Question::containment) return "";
  // A value that differs where its bound is 0 has an infinite error/bound; what has to be the same bits has none.
  const bool exact = is_lattice(input.question) || input.question == Question::gradient ||
                     is_battery(input.question) ||
                     (outcome.worst && outcome.worst->bound == 0 && std::isfinite(answer.reached));
  if (exact) return answer.failed() ? "not bit for bit  " : "bit for bit  ";
  return fmt::format("error/bound {:.3g}  ", answer.reached);
}

// All files are read before a kernel is asked about any.
int run_replay(const ReplayArguments& arguments, const DoorOptions& doors) {
  std::vector<Replay> replays;
  for (const std::string& file : arguments.files) replays.push_back(read_replay(file, arguments, doors));
  std::map<Verdict, Index> counts;
  for (const Replay& one : replays)
    for (const Subject& subject : one.subjects) {
      const Case& shape = one.input.shape;
      const BatteryContext context{subject.kernel, operator_named(shape.op, shape.variant), shape.seed,
                                   Effort::quick};
      const Answer answer = ask(context, one.input);
      ++counts[answer.outcome.verdict];
      std::cout << fmt::format("{:<9}  {:<43} {}  {}{}\n", verdict_words(answer.outcome.verdict),
                               subject.kernel.name,
                               printable(std::filesystem::path(one.file).filename().string(), 200),
                               measure_words(one.input, answer), answer.outcome.reason);
    }
  return exit_of(counts[Verdict::pass], counts[Verdict::fail],
                 counts[Verdict::undecided] + counts[Verdict::suspect]);
}

}  // namespace

void add_replay(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("replay", "ask kernels about cases of the corpus (attest fuzz --corpus)");
  auto arguments = std::make_shared<ReplayArguments>();
  const auto doors = add_door_options(*command);
  command
      ->add_option("FILE", arguments->files,
                   "files that attest fuzz has written, or the lines that it prints of a finding; - for "
                   "standard input")
      ->required();
  command->add_option(
      "--kernel", arguments->kernel,
      "glob of kernel names; by default those of --plugin and --process, without them the kernel on which "
      "the case was found");
  command->footer(std::string(exit_codes) + "Example: attest replay fuzz/corpus/*.case --kernel 'cpu.*'");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    exit_code = run_replay(*arguments, *doors);
  });
}

}  // namespace attest
