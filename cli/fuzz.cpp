// attest fuzz: the hunt for the worst input.
#include <fmt/format.h>

#include <charconv>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/fuzz_arguments.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

double parse_time(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || factor == 0 || !(value > 0) || !(value * factor <= 30 * 86400.0))
    throw BadInput("--time " + in_quotes(text) +
                   ": expected a time above 0 and up to 30 days, such as 60s, 10m or 2h");
  return value * factor;
}

Objective parse_objective(const std::string& text) {
  if (text == "fail") return Objective::fail;
  if (text == "error") return Objective::error;
  throw BadInput("--objective " + in_quotes(text) + ": expected fail or error");
}

int run_fuzz(const FuzzArguments& arguments, const DoorOptions& doors) {
  if (!arguments.minimise) return run_hunt(arguments, doors);
  const std::pair<bool, const char*> meaningless[] = {
      {!arguments.json.empty(), "--json"},       {!arguments.junit.empty(), "--junit"},
      {!arguments.output.empty(), "--output"},   {arguments.resume, "--resume"},
      {arguments.seconds.has_value(), "--time"}, {arguments.cases > 0, "--cases"},
      {arguments.workers > 0, "--workers"}};
  for (const auto& [given, option] : meaningless)
    if (given) throw BadInput(fmt::format("--minimise: no hunt, expected no {} beside it", option));
  if (launched_by_mpirun()) throw BadInput("--minimise: the work of one process, expected no mpirun");
  if (arguments.shard) throw BadInput("--minimise: a corpus is thinned as a whole, expected no --shard");
  open_kernels(doors);
  return run_minimise(arguments, doors);
}

}  // namespace

std::vector<Subject> subjects_of(const std::string& kernel, const std::string& op, const DoorOptions& doors) {
  auto found = find_subjects(kernel, op, doors);
  if (found.empty())
    throw BadInput(no_kernel_matches(kernel, op, "cpu.hla2.* or mutant.hla2.* (attest list --kernels)"));
  return found;
}

void add_fuzz(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("fuzz", "hunt for the input on which a kernel is worst, and make it small");
  auto arguments = std::make_shared<FuzzArguments>();
  const auto doors = add_door_options(*command);
  command->add_option(
      "--kernel", arguments->kernel,
      "glob of kernel names, such as cpu.hla2.* (also mutant.hla2.*, deliberately wrong ones)");
  command->add_option("--operator", arguments->op,
                      "glob of operators, such as *delta: of --kernel, --plugin or --process only these");
  command
      ->add_option_function<std::string>(
          "--time", [arguments](const std::string& text) { arguments->seconds = parse_time(text); },
          "how long, over all kernels: 60s, 10m, 2h (60s by default)")
      ->type_name("TIME");
  add_whole_number(
      command, "--cases", arguments->cases, 1, Index(1) << 40,
      "how many cases of every kernel, in the place of --time: the same seed then finds the same");
  command
      ->add_option_function<std::string>(
          "--objective",
          [arguments](const std::string& text) { arguments->objective = parse_objective(text); },
          "fail: as many different failures as there are; error: the largest error/bound, by the check value "
          "alone")
      ->type_name("fail|error");
  add_path(command, "--corpus", arguments->corpus,
           "folder of cases: asked first, and what is found is added");
  command->add_flag(
      "--minimise", arguments->minimise,
      "no hunt: remove the cases of --corpus that neither a cell of the grid nor a kill of --kernel's (by "
      "default all mutants) needs");
  add_seed(command, arguments->seed, "of the hunt; drawn and printed when not given");
  add_path(command, "--json", arguments->json, "also write statistics and findings to this file");
  add_path(command, "--junit", arguments->junit,
           "also write JUnit XML to this file: a test case a kernel, the causes and their replay lines as "
           "its failure");
  add_path(
      command, "--output", arguments->output,
      "folder of the run: a journal of every rank while it lasts, fuzz.json and index.html, the page, at its "
      "end");
  command->add_flag(
      "--resume", arguments->resume,
      "goes on with a run into --output's folder that was killed: the same command with --resume added "
      "(--time counts anew)");
  add_shard(command, arguments->shard,
            "the hunt: a seed of its own and its share of --cases, or all of --time; the same corpus first");
  add_whole_number(
      command, "--batch", arguments->batch, 1, 1 << 20,
      "cases drawn at a time, while those before them are asked; the same --batch finds the same, whatever "
      "the number of threads and ranks (16; for many ranks 16 a rank)");
  add_threads(command, arguments->threads);
  add_devices(*command, doors, "cases");
  add_whole_number(
      command, "--workers", arguments->workers, 1, 1024,
      "workers of a plug-in or process, on each device: as many cases are asked at a time (as many "
      "as --threads, at most --batch; where there is a GPU 1)")
      ->default_str("");
  command->footer(
      std::string(exit_codes) +
      "No fault found is no proof: attest check --battery asks what is known to matter. Interrupted once, it "
      "ends "
      "with its report. mpirun -n N attest fuzz ... shares the work among N ranks (fuzz/CLUSTER.md).\n"
      "Example: attest fuzz --kernel cpu.hla2.chunk64.direct.bf16 --objective error --time 60s --seed 1");
  command->callback([arguments, doors, &exit_code] { exit_code = run_fuzz(*arguments, *doors); });
}

}  // namespace attest
