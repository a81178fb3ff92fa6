#include "cli/battery.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/mutants/kill_matrix.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reports/check_record.hpp"
#include "reports/html.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct Judged {
  const Kernel* kernel = nullptr;
  std::vector<BatteryEntry> entries;
  Verdict verdict() const { return worst_verdict(entries); }
};

void print(const Judged& judged, bool table) {
  double seconds = 0;
  std::string reason;
  for (const BatteryEntry& entry : judged.entries) {
    seconds += static_cast<double>(entry.nanoseconds) * 1e-9;
    if (entry.outcome.verdict == judged.verdict() && reason.empty() && !entry.outcome.reason.empty())
      reason = fmt::format("{}: {}", entry.check->name, entry.outcome.reason);
  }
  if (judged.verdict() == Verdict::pass) reason.clear();
  std::string line = fmt::format("{:<9}  {:<43}  {:>6.2f} s  {}", verdict_words(judged.verdict()),
                                 judged.kernel->name, seconds, reason);
  line.erase(line.find_last_not_of(' ') + 1);
  std::cout << line << '\n';
  for (const BatteryEntry& entry : judged.entries) {
    const CheckOutcome& outcome = entry.outcome;
    if (!table && outcome.verdict != Verdict::fail && outcome.verdict != Verdict::suspect) continue;
    std::string row = fmt::format("           {:<12} {:<11} {:<10} {:>4} inputs {:>8} elements  {}",
                                  entry.check->name, entry.check->rule, verdict_words(outcome.verdict),
                                  outcome.inputs, outcome.compared, outcome.reason);
    row.erase(row.find_last_not_of(' ') + 1);
    std::cout << row << '\n';
  }
}

nlohmann::json in_json(const std::vector<Judged>& all, std::uint64_t seed, Effort effort) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const Judged& judged : all) {
    nlohmann::json checks = nlohmann::json::array();
    for (const BatteryEntry& entry : judged.entries) {
      nlohmann::json check{{"name", entry.check->name},
                           {"rule", entry.check->rule},
                           {"verdict", to_string(entry.outcome.verdict)},
                           {"inputs", entry.outcome.inputs},
                           {"undecided", entry.outcome.undecided},
                           {"compared", entry.outcome.compared},
                           {"violations", entry.outcome.violations}};
      if (!entry.outcome.reason.empty()) check["reason"] = entry.outcome.reason;
      checks.push_back(check);
    }
    kernels.push_back(
        {{"kernel", judged.kernel->name}, {"verdict", to_string(judged.verdict())}, {"checks", checks}});
  }
  return {{"schema", "attest.battery/1"},
          {"seed", seed},
          {"effort", effort == Effort::quick ? "quick" : "full"},
          {"kernels", kernels}};
}

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

void write_records(const std::filesystem::path& folder, const Run& run,
                   const std::vector<CaseRecord>& cases) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw BadInput("--output " + in_quotes(folder.native()) +
                   ": cannot be made, expected a folder to write to");
  Records records{run, cases, {}, true};
  for (const CaseRecord& record : cases) ++records.end.cases, records.end.count(record.verdict);
  records.end.cases = static_cast<std::int64_t>(cases.size());
  records.end.finished = now();
  RecordWriter writer(folder / "records.jsonl", run);
  for (const CaseRecord& record : cases) writer.add(record);
  writer.close(records.end.finished);
  AtomicFile page(folder / "index.html");
  page.write(render_html(records, {.title = "attest check: the battery"}));
  page.commit();
  writer.commit();
  std::cout << "records: " << (folder / "records.jsonl").string()
            << "\npage:    " << (folder / "index.html").string() << '\n';
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void show_progress(Index done, Index total) {
  if (isatty(STDERR_FILENO) != 0) std::cerr << fmt::format("\r\033[K{} of {}", done, total) << std::flush;
}
void end_progress() {
  if (isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K" << std::flush;
}

int threads_of(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int check_battery(const BatteryArguments& arguments, const Run& run) {
  const std::uint64_t seed = arguments.seed ? *arguments.seed : drawn_seed();
  const auto kernels = find_kernels(arguments.kernel, arguments.op);
  if (kernels.empty())
    throw BadInput("no kernel matches --kernel " + in_quotes(arguments.kernel) + " --operator " +
                   in_quotes(arguments.op) + ", expected globs such as cpu.hla2.*");
  std::vector<Judged> all(kernels.size());
  std::vector<CaseRecord> records(kernels.size());
  std::mutex guard;
  std::size_t next = 0;
  Index done = 0;
  // A kernel behind another door is one worker: it is asked one thing at a time.
  const bool registered =
      std::all_of(kernels.begin(), kernels.end(), [](const Kernel* k) { return k->source.empty(); });
  const int threads = registered ? threads_of(arguments.threads) : 1;
  for_each_parallel(static_cast<Index>(kernels.size()), threads, [&](Index i) {
    const auto at = static_cast<std::size_t>(i);
    const Kernel& kernel = *kernels[at];
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), seed, arguments.effort};
    Judged judged{nullptr, run_battery(context, arguments.check)};
    const std::lock_guard lock(guard);
    records[at] = to_record(context, judged.entries, invoked_program());
    all[at] = std::move(judged), all[at].kernel = &kernel;
    end_progress();
    for (; next < all.size() && all[next].kernel; ++next) print(all[next], kernels.size() == 1);
    show_progress(++done, static_cast<Index>(kernels.size()));
  });
  end_progress();
  std::map<Verdict, Index> counts;
  for (const Judged& judged : all) ++counts[judged.verdict()];
  std::cout << fmt::format(
      "\n{} kernels: {} pass, {} fail, {} suspect, {} undecided, {} not run; oracle {:.2f} s; {} seed {}\n",
      all.size(), counts[Verdict::pass], counts[Verdict::fail], counts[Verdict::suspect],
      counts[Verdict::undecided], counts[Verdict::not_run], static_cast<double>(oracle_nanoseconds()) * 1e-9,
      arguments.effort == Effort::quick ? "quick," : "full,", seed);
  if (!arguments.output.empty()) {
    Run with_seed = run;
    with_seed.seed = seed;
    write_records(arguments.output, with_seed, records);
  }
  if (!arguments.json.empty())
    write_file(arguments.json, in_json(all, seed, arguments.effort).dump(1) + "\n");
  if (counts[Verdict::fail] > 0) return exit_failed;
  if (counts[Verdict::suspect] + counts[Verdict::undecided] > 0) return exit_undecided;
  return counts[Verdict::pass] > 0 ? exit_passed : exit_nothing_ran;
}

int check_mutants(const BatteryArguments& arguments) {
  const std::uint64_t seed = arguments.seed ? *arguments.seed : drawn_seed();
  const KillMatrix matrix =
      kill_matrix(arguments.kernel, arguments.effort, seed, threads_of(arguments.threads), show_progress);
  end_progress();
  if (matrix.rows.empty())
    throw BadInput("no mutant matches --kernel " + in_quotes(arguments.kernel) +
                   ", expected a glob such as mutant.hla2.*");
  std::cout << matrix_text(matrix);
  if (!arguments.output.empty()) {
    std::error_code error;
    std::filesystem::create_directories(arguments.output, error);
    const auto path = std::filesystem::path(arguments.output) / "kill_matrix.md";
    write_file(path, matrix_markdown(matrix));
    std::cout << "matrix: " << path.string() << '\n';
  }
  for (const MatrixRow& row : matrix.rows)
    if (!row.killed() && equivalent_because(*row.mutant).empty()) return exit_failed;
  return exit_passed;
}

}  // namespace attest
