#include "cli/battery.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/last_words.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "gpu_checks/mutants/kill_matrix_json.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reports/check_record.hpp"
#include "reports/html.hpp"
#include "reports/kill_table.hpp"
#include "reports/record_file.hpp"
#include "reports/record_journal.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

void print(const CaseRecord& record, bool table) {
  const std::int64_t took = record.time ? record.time->total_ns + record.time->oracle_ns : 0;
  std::string line = fmt::format("{:<9}  {:<43}  {:>6.2f} s  {}", verdict_words(record.verdict),
                                 record.kernel.name, static_cast<double>(took) * 1e-9,
                                 record.verdict == Verdict::pass ? not_covered(record) : record.reason);
  line.erase(line.find_last_not_of(' ') + 1);
  std::cout << line << '\n';
  for (const Check& check : record.checks) {
    const bool bad = severity(check.verdict) >= severity(Verdict::suspect);
    if (!table && !bad) continue;
    std::string row =
        fmt::format("           {:<12} {:<11} {:<10} {:>4} inputs {:>8} elements {:>6.2f} s  {}", check.name,
                    to_string(check.rule), verdict_words(check.verdict), check.inputs.value_or(0),
                    check.compared, static_cast<double>(check.time_ns.value_or(0)) * 1e-9, check.reason);
    row.erase(row.find_last_not_of(' ') + 1);
    std::cout << row << '\n';
    if (bad) std::cout << "             replay: " << check.replay << '\n';
  }
}

nlohmann::json in_json(const std::vector<CaseRecord>& all, std::uint64_t seed, Effort effort) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const CaseRecord& record : all) {
    nlohmann::json checks = nlohmann::json::array();
    for (const Check& c : record.checks) {
      nlohmann::json check{{"name", c.name},
                           {"rule", to_string(c.rule)},
                           {"verdict", to_string(c.verdict)},
                           {"inputs", c.inputs.value_or(0)},
                           {"undecided", c.undecided.value_or(0)},
                           {"compared", c.compared},
                           {"violations", c.violations}};
      if (!c.reason.empty()) check["reason"] = c.reason;
      if (severity(c.verdict) > severity(Verdict::pass)) check["replay"] = c.replay;
      checks.push_back(check);
    }
    kernels.push_back(
        {{"kernel", record.kernel.name}, {"verdict", to_string(record.verdict)}, {"checks", checks}});
  }
  return {{"schema", "attest.battery/1"},
          {"seed", seed},
          {"effort", effort == Effort::quick ? "quick" : "full"},
          {"kernels", kernels}};
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder))
    throw BadInput("--output " + in_quotes(folder.native()) +
                   ": cannot be made, expected a folder to write to");
}

void write_records(const std::filesystem::path& folder, const Run& run,
                   const std::vector<CaseRecord>& cases) {
  Records records{run, cases, {}, true};
  RecordWriter writer(folder / "records.jsonl", run);
  for (const CaseRecord& record : cases) writer.add(record);
  records.end = writer.close(time_now());
  AtomicFile page(folder / "index.html");
  page.write(render_html(records, {.title = "attest check: the battery"}));
  page.commit();
  writer.commit();
  std::cout << "records: " << (folder / "records.jsonl").string()
            << "\npage:    " << (folder / "index.html").string() << '\n';
}

// Which run this is, for --resume.
RunIdentity identity_of(const std::vector<const Kernel*>& kernels, std::uint64_t seed,
                        const std::string& version) {
  std::string cases;
  for (const Kernel* kernel : kernels) cases += kernel_identity(*kernel);
  return {invoked_command_without("--resume"), seed, version, sha256(cases)};
}

std::string mutants_sha256(const std::vector<const Mutant*>& mutants, const std::string& check) {
  std::string text;
  for (const Mutant* mutant : mutants) text += kernel_identity(mutant->kernel);
  return sha256(check.empty() ? text : text + "--check " + check);
}

const auto started = std::chrono::steady_clock::now();

// On a terminal: "7 of 60, about 12 s left".
void show_progress(Index done, Index total) {
  if (isatty(STDERR_FILENO) == 0) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
  const double left = elapsed.count() * static_cast<double>(total - done) / static_cast<double>(done);
  std::cerr << fmt::format("\r\033[K{} of {}, about {:.0f} s left", done, total, left) << std::flush;
}
void end_progress() {
  if (isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K" << std::flush;
}

RuleSays rule_says(const RuleVerdicts& verdicts, std::size_t rule) {
  return verdicts.everywhere[rule] ? RuleSays::accepts_all
         : verdicts.ordinary[rule] ? RuleSays::accepts_ordinary
                                   : RuleSays::rejects;
}

KillTable to_table(const KillMatrix& matrix) {
  KillTable table{
      invoked_command(), matrix.effort == Effort::quick ? "quick" : "full", matrix.seed, {}, {}, {}};
  for (const BatteryCheck& check : battery_checks()) table.checks.push_back(check.name);
  for (const char* rule : usual_rules) table.rules.push_back(rule);
  for (const MatrixRow& row : matrix.rows) {
    KillRow& entry = table.rows.emplace_back();
    entry.mutant = row.mutant->kernel.name, entry.op = row.mutant->kernel.op;
    entry.wrong = row.mutant->info->wrong, entry.family = row.mutant->info->family;
    entry.equivalent = equivalent_because(*row.mutant);
    for (const BatteryEntry& check : row.entries)
      entry.checks.push_back(
          check.outcome.verdict == Verdict::not_run ? std::nullopt : std::optional(check.outcome.verdict));
    for (std::size_t r = 0; r < usual_rules.size(); ++r) entry.rules.push_back(rule_says(row.rules, r));
  }
  return table;
}

int threads_of(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

std::string kernel_identity(const Kernel& k) {
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", k.name, k.door, k.op, k.variant, k.form,
                     to_text(k.contract), k.features, k.limits, k.source, k.sha256);
}

std::uint64_t seed_of_run(const std::optional<std::uint64_t>& given, bool resume, const std::string& output) {
  if (given) return *given;
  if (resume)
    if (const auto seed = RecordJournal::seed_of(std::filesystem::path(output) / journal_name)) return *seed;
  return drawn_seed();
}

Shard shard_of_run(const Shard& shard, Index cases, const std::string& version,
                   const std::string& cases_sha256) {
  return {shard.index, shard.of, cases, invoked_command_of_all_shards(), version, cases_sha256};
}

std::string times_text(const OracleCache& oracle, std::int64_t kernel_ns, std::int64_t judging_ns) {
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return fmt::format(
      "time, summed over threads: oracle {:.2f} s ({} evaluation{}), kernels {:.2f} s, bounds and doors "
      "{:.2f} s",
      seconds(oracle.nanoseconds()), oracle.computed(), oracle.computed() == 1 ? "" : "s", seconds(kernel_ns),
      seconds(judging_ns));
}

int check_battery(const BatteryArguments& arguments, const Run& described, const std::string& version) {
  refuse_unknown_check(arguments.check);
  const std::uint64_t seed = seed_of_run(arguments.seed, arguments.resume, arguments.output);
  const auto all = find_kernels(arguments.kernel, arguments.op);
  if (all.empty()) throw BadInput(no_kernel_matches(arguments.kernel, arguments.op, "cpu.hla2.*"));
  const RunIdentity identity = identity_of(all, seed, version);
  Run run = described;
  run.seed = seed;
  if (arguments.shard)
    run.shard =
        shard_of_run(*arguments.shard, static_cast<Index>(all.size()), version, identity.cases_sha256);
  std::vector<const Kernel*> kernels;
  std::vector<Index> numbers;  // of the kernels, among all
  for (Index i = 0; i < static_cast<Index>(all.size()); ++i)
    if (!run.shard || run.shard->holds(i))
      kernels.push_back(all[static_cast<std::size_t>(i)]), numbers.push_back(i);
  if (run.shard)
    std::cout << fmt::format("shard {}: {} of {} kernels\n", to_text(*run.shard), kernels.size(), all.size());
  std::optional<RecordJournal> journal;
  if (!arguments.output.empty()) {
    make_folder(arguments.output);
    journal.emplace(std::filesystem::path(arguments.output) / journal_name, identity, arguments.resume);
  }
  std::vector<std::optional<CaseRecord>> found(kernels.size());
  std::size_t known = 0, next = 0;
  for (std::size_t i = 0; journal && i < kernels.size(); ++i)
    if (journal->holds(static_cast<Index>(i))) found[i] = journal->read(static_cast<Index>(i)), ++known;
  if (arguments.resume)
    std::cout << fmt::format("resumed: {} of {} kernels were checked before\n", known, kernels.size());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (!found[i]) open.push_back(i);
  std::mutex guard;
  Index done = 0;
  const auto print_known = [&] {
    for (; next < found.size() && found[next]; ++next) print(*found[next], kernels.size() == 1);
    std::cout << std::flush;  // what ends the run by a signal would lose it
  };
  print_known();
  // Kernels behind other doors: as many at a time as there are workers, each asked one thing at a time.
  const bool registered =
      std::all_of(kernels.begin(), kernels.end(), [](const Kernel* k) { return k->source.empty(); });
  const int threads = registered ? threads_of(arguments.threads) : arguments.workers;
  const int threads_each = open.size() == 1 ? threads : 1;
  const auto checks = static_cast<std::size_t>(std::ranges::count_if(
      battery_checks(), [&](const BatteryCheck& check) { return is_asked_for(check, arguments.check); }));
  // One kernel is checked as a whole, or again.
  const bool one = kernels.size() == 1;
  LastWords last_words(static_cast<Index>(one ? checks : kernels.size()), one ? "checks" : "kernels",
                       one       ? ""
                       : journal ? "; --resume goes on"
                                 : "; with --output DIR, --resume would go on");
  auto finished = static_cast<Index>(known);
  if (!one) last_words.done(finished);
  for_each_parallel(static_cast<Index>(open.size()), threads, [&](Index i) {
    const std::size_t at = open[static_cast<std::size_t>(i)];
    const Kernel& kernel = *kernels[at];
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), seed, arguments.effort};
    const auto check_done = [&] {
      const std::lock_guard lock(guard);
      show_progress(++done, static_cast<Index>(open.size() * checks));
      if (one) last_words.done(done);
    };
    CaseRecord record = to_record(context, run_battery(context, arguments.check, threads_each, check_done),
                                  invoked_program());
    if (run.shard) record.index = numbers[at];
    const std::lock_guard lock(guard);
    if (journal) journal->add(static_cast<Index>(at), record);
    found[at] = std::move(record);
    if (++finished; !one) last_words.done(finished);
    end_progress();
    print_known();
  });
  end_progress();
  std::vector<CaseRecord> records;
  std::map<Verdict, Index> counts;
  std::int64_t kernel_ns = 0, judging_ns = 0;
  for (auto& record : found) {
    ++counts[record->verdict];
    kernel_ns += record->time->kernel_ns;
    judging_ns += std::max<std::int64_t>(0, record->time->total_ns - record->time->kernel_ns);
    records.push_back(std::move(*record));
  }
  std::cout << fmt::format(
      "\n{} kernel{}: {} pass, {} fail, {} suspect, {} undecided, {} not run; {} seed {}\n", records.size(),
      records.size() == 1 ? "" : "s", counts[Verdict::pass], counts[Verdict::fail], counts[Verdict::suspect],
      counts[Verdict::undecided], counts[Verdict::not_run],
      arguments.effort == Effort::quick ? "quick," : "full,", seed);
  std::cout << times_text(oracle_cache(), kernel_ns, judging_ns) << '\n';
  if (!arguments.output.empty()) write_records(arguments.output, run, records);
  if (!arguments.json.empty())
    write_file_atomically(arguments.json, in_json(records, seed, arguments.effort).dump(1) + "\n");
  return exit_of(counts[Verdict::pass], counts[Verdict::fail],
                 counts[Verdict::undecided] + counts[Verdict::suspect]);
}

int check_mutants(const BatteryArguments& arguments, const std::string& version) {
  refuse_unknown_check(arguments.check);
  const std::vector<const Mutant*> all = find_mutants(arguments.kernel);
  if (all.empty())
    throw BadInput("no mutant matches --kernel " + in_quotes(arguments.kernel) +
                   fmt::format(", expected a glob such as mutant.hla2.*; there are mutants of {}",
                               fmt::join(production_operators(), ", ")));
  if (!arguments.output.empty()) make_folder(arguments.output);  // before the minutes that follow
  const std::uint64_t seed = arguments.seed ? *arguments.seed : drawn_seed();
  std::vector<const Mutant*> chosen;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!arguments.shard || arguments.shard->holds(static_cast<Index>(i))) chosen.push_back(all[i]);
  if (arguments.shard)
    std::cout << fmt::format("shard {}: {} of {} mutants\n", to_text(*arguments.shard), chosen.size(),
                             all.size());
  const KillMatrix matrix = kill_matrix(chosen, arguments.effort, seed, threads_of(arguments.threads),
                                        show_progress, arguments.check);
  end_progress();
  std::cout << matrix_text(matrix);
  if (!arguments.output.empty()) {
    nlohmann::ordered_json document = matrix_json(matrix);
    if (arguments.shard)
      document["shard"] = to_json(shard_of_run(*arguments.shard, static_cast<Index>(all.size()), version,
                                               mutants_sha256(all, arguments.check)));
    write_file_atomically(std::filesystem::path(arguments.output) / kill_matrix_name,
                          document.dump(1) + "\n");
    const auto path = std::filesystem::path(arguments.output) / "kill_matrix.md";
    write_file_atomically(path, matrix_markdown(matrix));
    const auto page = std::filesystem::path(arguments.output) / "index.html";
    write_file_atomically(page, render_kill_page(to_table(matrix)));
    std::cout << "matrix: " << path.string() << "\npage:   " << page.string() << '\n';
  }
  return exit_code_of(matrix);
}

int exit_code_of(const KillMatrix& matrix) {
  for (const MatrixRow& row : matrix.rows)
    if (!row.killed() && equivalent_because(*row.mutant).empty()) return exit_failed;
  return matrix.rows.empty() ? exit_nothing_ran : exit_passed;
}

}  // namespace attest
