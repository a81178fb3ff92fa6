// attest prove: the ledger of published claims and laws, decided by exact computation.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/battery.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "proofs/ledger.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

struct ProveArguments {
  std::vector<std::string> globs{"*"};
  Index trials = 2;
  int threads = 0;
  std::optional<std::uint64_t> seed;
  bool controls = false, list = false;
  std::optional<Shard> shard;
  std::string json;
};

std::vector<const Claim*> chosen(const std::vector<std::string>& globs) {
  std::vector<const Claim*> claims;
  for (const std::string& glob : globs) {
    const auto found = claims_matching(glob);
    if (found.empty())
      throw BadInput("--claim " + in_quotes(glob) +
                     ": no claim has such an id, expected a glob over the ids of attest prove --list, for "
                     "example 'hla.*'");
    for (const Claim* claim : found)
      if (std::find(claims.begin(), claims.end(), claim) == claims.end()) claims.push_back(claim);
  }
  return claims;
}

std::string line_of(const std::string& id, const std::string& verdict, const std::string& corrected,
                    const std::string& evidence, int width) {
  std::string line = fmt::format("{:<{}}  {:<9}  {:<9}  {}", id, width, verdict, corrected, evidence);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string table(const std::vector<Entry>& entries) {
  std::size_t width = 5;
  for (const Entry& entry : entries) width = std::max(width, entry.claim->id.size());
  const int columns = static_cast<int>(width);
  std::string text = line_of("claim", "verdict", "corrected", "evidence", columns);
  for (const Entry& entry : entries) {
    text += line_of(entry.claim->id, claim_verdict_name(entry.decision.verdict),
                    entry.corrected ? claim_verdict_name(entry.corrected->verdict) : "",
                    summary(entry.decision), columns);
    text += explain(entry);
    for (const auto& control : entry.controls)
      text += line_of("  control: " + control.name, claim_verdict_name(control.decision.verdict), "",
                      summary(control.decision), columns);
  }
  return text;
}

// One line that counts what was decided.
std::string totals(const std::vector<Entry>& entries, double seconds) {
  std::size_t holds = 0, refuted = 0, undecided = 0, survivors = 0, controls = 0;
  for (const Entry& entry : entries) {
    holds += entry.decision.verdict == ClaimVerdict::holds,
        refuted += entry.decision.verdict == ClaimVerdict::refuted;
    undecided += !entry.decided();
    for (const auto& control : entry.controls)
      ++controls, survivors += control.decision.verdict != ClaimVerdict::refuted;
  }
  std::string text =
      "evidence: shapes x random instances of each, total degree, probability that a false identity "
      "survived; of a "
      "refuted claim the smallest counterexample, left against right side\n";
  text += fmt::format("{} claim{} in {:.1f} s: {} hold, {} refuted, {} undecided", entries.size(),
                      entries.size() == 1 ? "" : "s", seconds, holds, refuted, undecided);
  if (controls > 0) text += fmt::format("; {} controls, {} survived", controls, survivors);
  return text + '\n';
}

int list_claims(const std::vector<const Claim*>& claims, const std::string& path) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Claim* claim : claims)
    list.push_back({{"id", claim->id}, {"source", claim->source}, {"statement", claim->statement.text}});
  const nlohmann::ordered_json document{{"schema", "attest.claim_list/1"}, {"claims", list}};
  if (!path.empty()) write_file_atomically(path, document.dump(1) + "\n");
  for (const Claim* claim : claims) std::cout << claim->id << "  " << claim->statement.text << '\n';
  return exit_passed;
}

// The ledger is there to decide: a claim left undecided fails it, and so does a control that survives. Claims that are
// refuted are decided.
int exit_code_of(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (!entry.decided()) return exit_failed;
    for (const auto& control : entry.controls)
      if (control.decision.verdict != ClaimVerdict::refuted) return exit_failed;
  }
  return entries.empty() ? exit_nothing_ran : exit_passed;
}

// The claims of a shard, and what it says about them; all of them where there is none.
std::vector<const Claim*> of_shard(const std::vector<const Claim*>& all, std::optional<Shard>& shard) {
  if (!shard) return all;
  std::vector<const Claim*> own;
  std::string statements;
  for (std::size_t i = 0; i < all.size(); ++i) {
    statements += all[i]->id + '\t' + all[i]->statement.text + '\n';
    if (shard->holds(static_cast<Index>(i))) own.push_back(all[i]);
  }
  shard = shard_of_run(*shard, static_cast<Index>(all.size()), program_version(), sha256(statements));
  return own;
}

int prove(ProveArguments arguments) {
  const auto all = chosen(arguments.globs);
  if (arguments.list && arguments.shard)
    throw BadInput("--shard: a list is not split, expected no --list beside it");
  if (arguments.list) return list_claims(all, arguments.json);
  require_seed(arguments.shard, arguments.seed);
  const auto claims = of_shard(all, arguments.shard);
  if (arguments.shard)
    std::cout << fmt::format("shard {}: {} of {} claims\n", to_text(*arguments.shard), claims.size(),
                             all.size());
  LedgerOptions options;
  options.seed = arguments.seed ? *arguments.seed : drawn_seed();
  options.trials = static_cast<int>(arguments.trials), options.threads = arguments.threads,
  options.controls = arguments.controls;
  std::optional<AtomicFile> file;  // opened first: an unwritable path is told before the work
  if (!arguments.json.empty()) file.emplace(arguments.json);
  if (!arguments.seed) std::cout << "seed " << options.seed << '\n';
  const auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const bool watched = isatty(STDERR_FILENO) != 0;
  if (watched)
    options.progress = [&](std::size_t done, std::size_t of, const Claim& last) {
      const double left = elapsed() / static_cast<double>(done) * static_cast<double>(of - done);
      std::cerr << fmt::format("\r\033[K{}/{}, about {:.0f} s left: {}", done, of, left, last.id)
                << std::flush;
    };
  const auto entries = decide_claims(claims, options);
  if (watched) std::cerr << "\r\033[K" << std::flush;
  if (file) {
    nlohmann::ordered_json document = ledger_json(entries, options.seed);
    if (arguments.shard) document["shard"] = to_json(*arguments.shard);
    file->write(document.dump(1) + "\n");
    file->commit();
  }
  std::cout << table(entries) << totals(entries, elapsed());
  return exit_code_of(entries);
}

}  // namespace

void add_prove(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "prove", "decide the published claims and the laws of every operator, by exact computation");
  auto arguments = std::make_shared<ProveArguments>();
  command->add_option("--claim", arguments->globs, "glob over claim ids (repeatable), all by default")
      ->capture_default_str();
  add_whole_number(command, "--trials", arguments->trials, 2, 10000,
                   "random instances of each shape over the prime field, at least 2");
  add_seed(command, arguments->seed, "seed of the random instances; drawn and printed by default");
  add_path(command, "--json", arguments->json, "write the ledger, or with --list the list, to this file");
  add_threads(command, arguments->threads);
  add_shard(command, arguments->shard, "the claims");
  command->add_flag("--controls", arguments->controls,
                    "decide the broken twin of every claim too: each must be refuted");
  command->add_flag("--list", arguments->list, "print ids and statements, decide nothing");
  command->footer(std::string(exit_codes) +
                  "A refuted claim is decided: it exits with 0. A control that survives exits with 1.\n"
                  "Example: attest prove --claim 'hla.*' --seed 1 --json claims.json");
  command->callback([arguments, &exit_code] { exit_code = prove(*arguments); });
}

}  // namespace attest
