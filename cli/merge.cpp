// attest merge: the parts of one run that --shard made, as the run would have left them whole.
#include "reports/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/battery.hpp"
#include "cli/commands.hpp"
#include "cli/fuzz_print.hpp"
#include "cli/options.hpp"
#include "fuzz/journal.hpp"
#include "gpu_checks/mutants/kill_matrix_json.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/hunt_json.hpp"
#include "reports/join_shards.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct MergeArguments {
  std::vector<std::string> shards;
  std::string output;
};

// A hunt that was killed left journals: what they say was done.
void refuse_unfinished_hunt(const fs::path& folder) {
  const auto identity = HuntJournal::identity_in(folder);
  if (!identity) return;
  HuntJournal journal(folder, *identity);
  journal.take_up();
  std::string begun;
  for (const TaskBegun& one : journal.open())
    begun += fmt::format("{}{} {} {} at rank {}", begun.empty() ? "" : ", ", one.kernel,
                         one.task == "ask" ? "case" : "shrinking of case", one.number, one.rank);
  throw BadInput(
      fmt::format("{}: a hunt that did not finish: {} cases of {} kernels answered; begun and not answered: "
                  "{}: expected one that "
                  "finished, --resume goes on with it",
                  printable(folder.string(), 200), journal.answered_cases(), journal.kernels(),
                  begun.empty() ? "none" : printable(begun, 500)));
}

// Of a folder that attest check or fuzz --output made, what it holds.
fs::path results_at(const fs::path& path) {
  refuse_unfinished_hunt(path);
  std::error_code none;
  for (const char* name : {kill_matrix_name, hunt_name})
    if (fs::is_regular_file(path / name, none)) return path / name;
  return records_at(path);
}

int merge_records(const std::vector<fs::path>& paths, const std::string& output) {
  const Records joined = join_records(paths);
  RecordWriter writer(output, joined.run);
  for (const CaseRecord& record : joined.cases) writer.add(record);
  writer.end(joined.end.finished);
  const End& e = joined.end;
  std::cout << fmt::format("{} shards, {} cases: {} pass, {} fail, {} suspect, {} undecided, {} not run\n",
                           paths.size(), e.cases, e.pass, e.fail, e.suspect, e.undecided, e.not_run);
  return exit_of(e.pass, e.fail, e.suspect + e.undecided);
}

bool decided(const Json& claim) {
  const auto verdict = [](const Json& decision) { return decision.value("verdict", ""); };
  for (const char* key : {"corrected", "instead"})
    if (claim.contains(key) && verdict(claim[key]) == "undecided") return false;
  for (const Json& control : claim.value("controls", Json::array()))
    if (verdict(control) != "refuted") return false;
  return verdict(claim) != "undecided";
}

int merge_claims(const std::vector<fs::path>& paths, const std::string& output) {
  const Json joined = join_documents(paths, "claims");
  const Json& claims = joined["claims"];
  const auto open =
      std::count_if(claims.begin(), claims.end(), [](const Json& claim) { return !decided(claim); });
  write_file_atomically(output, joined.dump(1) + "\n");
  std::cout << fmt::format("{} shards, {} claims: {} undecided, or with a control that survived\n",
                           paths.size(), claims.size(), open);
  return open > 0 ? exit_failed : claims.empty() ? exit_nothing_ran : exit_passed;
}

int merge_matrices(const std::vector<fs::path>& paths, const std::string& output) {
  const Json joined = join_documents(paths, "mutants");
  const KillMatrix matrix = read_matrix(joined, "the joined kill matrix");
  const bool page = fs::path(output).extension() == ".md";
  write_file_atomically(output, page ? matrix_markdown(matrix) : joined.dump(1) + "\n");
  std::cout << matrix_text(matrix);
  return exit_code_of(matrix);
}

int merge_hunts(const std::vector<fs::path>& paths, const std::string& output) {
  const Json joined = join_hunts(paths);
  write_file_atomically(output, joined.dump(1) + "\n");
  Index cases = 0, causes = 0;
  std::map<Verdict, Index> counts;
  std::map<std::string, Verdict> verdicts;
  for (const HuntReport& report : read_hunts(joined, "the joined hunt").reports)
    ++counts[verdicts[report.kernel] = report.verdict()];
  for (const Json& kernel : joined["kernels"]) {
    cases += kernel["cases"].get<Index>() + kernel["replayed"].get<Index>();
    causes += std::ssize(kernel["findings"]);
    std::cout << fmt::format("{:<9}  {:<43} {:>7} cases {:>4} cells  error/bound {:.3g}\n",
                             hunt_words(verdicts.at(kernel["kernel"].get<std::string>())),
                             kernel["kernel"].get<std::string>(), kernel["cases"].get<Index>(),
                             kernel["cells"].get<Index>(), kernel["largest_ratio"].get<double>());
    for (const Json& finding : kernel["findings"])
      std::cout << fmt::format("  {}\n    {}\n    shard {}, case {}; {} more of this cause\n",
                               finding["cause"].get<std::string>(), finding["reason"].get<std::string>(),
                               finding["shard"].get<std::string>(), finding["at_case"].get<Index>(),
                               finding["duplicates"].get<Index>());
  }
  std::cout << fmt::format("{} shards, {} cases: {} causes of failure\n", paths.size(), cases, causes);
  return exit_of(counts[Verdict::pass], counts[Verdict::fail], counts[Verdict::undecided]);
}

int merge(const MergeArguments& arguments) {
  std::vector<fs::path> paths;
  for (const std::string& path : arguments.shards) {
    paths.push_back(results_at(path));
    refuse_same_file("--output", arguments.output, "a shard", paths.back().string());
  }
  const std::string schema = schema_of(paths[0]);
  int code = exit_passed;
  if (schema == records_schema)
    code = merge_records(paths, arguments.output);
  else if (schema == "attest.claims/1")
    code = merge_claims(paths, arguments.output);
  else if (schema == kill_matrix_schema)
    code = merge_matrices(paths, arguments.output);
  else if (schema == hunt_schema)
    code = merge_hunts(paths, arguments.output);
  else
    throw BadInput(fmt::format("{}: schema {}: expected {}, attest.claims/1, {} or {}", paths[0].string(),
                               in_quotes(schema), records_schema, kill_matrix_schema, hunt_schema));
  std::cout << "merged: " << arguments.output << '\n';
  return code;
}

}  // namespace

void add_merge(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("merge", "the shards of one run joined, as the run would have left them whole");
  auto arguments = std::make_shared<MergeArguments>();
  command
      ->add_option(
          "SHARDS", arguments->shards,
          "of every shard once: the folder that attest check or fuzz --output made, or its records.jsonl, "
          "kill_matrix.json or fuzz.json, or the ledger that attest prove --json wrote")
      ->required();
  add_path(
      command, "--output", arguments->output,
      "the file to write: records (JSON Lines), a ledger, a hunt or a kill matrix (JSON; a matrix with .md "
      "as a page)")
      ->required();
  command->footer(
      std::string(exit_codes) +
      "The exit code is that of the whole run. Refused with 2: shards of another version, command, seed, "
      "set of cases\nor number of shards; a shard or a case twice or missing; a shard that did not finish.\n"
      "Example: attest merge /tmp/shards/* --output /tmp/records.jsonl");
  command->callback([arguments, &exit_code] { exit_code = merge(*arguments); });
}

}  // namespace attest
