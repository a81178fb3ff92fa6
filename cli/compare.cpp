// attest compare: what changed between two runs.
#include "reports/compare.hpp"

#include <iostream>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/hunt_json.hpp"
#include "reports/merge.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

struct CompareArguments {
  std::string before, after, json;
};

int compare(const CompareArguments& arguments) {
  for (const std::string& path : {arguments.before, arguments.after})
    if (!hunt_at(path).empty())
      throw BadInput(in_quotes(path) +
                     ": the findings of attest fuzz, which have no cases to compare, expected the records of "
                     "attest check");
  const auto earlier = records_at(arguments.before), later = records_at(arguments.after);
  refuse_same_file("--json", arguments.json, "BEFORE", earlier.string());
  refuse_same_file("--json", arguments.json, "AFTER", later.string());
  const Records before = read_records(earlier, Incomplete::accept);
  const Records after = read_records(later, Incomplete::accept);
  const Comparison comparison = compare_records(before, after);
  if (!arguments.json.empty()) write_file_atomically(arguments.json, comparison_json(comparison));
  std::cout << render_comparison(comparison);
  if (comparison.regressions > 0) return exit_failed;
  return comparison.common > 0 ? exit_passed : exit_nothing_ran;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("compare", "two runs, case by case: verdicts, accuracy, new and vanished cases");
  auto arguments = std::make_shared<CompareArguments>();
  command
      ->add_option("BEFORE", arguments->before,
                   "records.jsonl of the earlier run, or the folder that holds it")
      ->required();
  command
      ->add_option("AFTER", arguments->after, "records.jsonl of the later run, or the folder that holds it")
      ->required();
  add_path(command, "--json", arguments->json, "also write the changes to this file");
  command->footer(
      std::string(exit_codes) +
      "1 is a regression: a verdict that became worse, error/bound that drifted upwards beyond "
      "noise (by a factor of\n"
      "more than 1 + 11.4/sqrt(T) in its median or 99th percentile), a case that vanished, a new "
      "case that fails, or\n"
      "a later run that did not finish. 1 goes before 77, which is left to runs without a common case and "
      "without a regression:\na case that vanished is a regression, so that 77 means that BEFORE is empty.\n"
      "Example: attest compare before after");
  command->callback([arguments, &exit_code] { exit_code = compare(*arguments); });
}

}  // namespace attest
