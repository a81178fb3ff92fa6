// attest fuzz: the hunt for the worst input. attest replay: cases of the corpus, one by one.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/options.hpp"
#include "fuzz/hunt.hpp"
#include "fuzz/minimise.hpp"
#include "gpu_checks/check.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/record.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct Arguments {
  std::string kernel, op, corpus, json, output;
  Objective objective = Objective::fail;
  std::optional<double> seconds;
  Index cases = 0;
  std::optional<std::uint64_t> seed;
  int threads = 0;
  bool minimise = false;
  std::vector<std::string> files;  // of replay
};

// Interrupted once, the hunt ends with its report; interrupted again, the program ends.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void interrupt(int) { interrupted = true; }

void stop_on_signals() {
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(number, &action, nullptr);
  }
}

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

std::vector<Subject> subjects_of(const Arguments& arguments, const DoorOptions& doors) {
  auto found = find_subjects(arguments.kernel, arguments.op, doors);
  if (found.empty())
    throw BadInput(
        fmt::format("no kernel matches --kernel {} --operator {}, expected globs such as cpu.hla2.* or "
                    "mutant.hla2.* (attest list --kernels)",
                    in_quotes(arguments.kernel), in_quotes(arguments.op)));
  return found;
}

// The input in few lines, as its file would have it.
std::string indented(const FuzzInput& input) {
  constexpr std::size_t most_values = 24;
  std::string text, rest = to_text(CorpusCase{input, {}, {}, {}});
  std::size_t values = 0;
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    rest.erase(0, line.size() + 1);
    if (line.find('[') != std::string::npos && ++values > most_values) continue;
    text += "      " + line + '\n';
  }
  if (values > most_values) text += fmt::format("      (and {} more values)\n", values - most_values);
  return text;
}

std::string size_words(const FuzzInput& input) {
  const Case& c = input.shape;
  return fmt::format("T={} d={} dv={} H={} B={}{}", *c.tokens, c.key_dim, c.value_dim, c.heads, c.batch,
                     input.zeros ? fmt::format(", {} values other than 0", input.edits.size()) : "");
}

std::string replay_words(const Subject& subject, const std::string& file) {
  return fmt::format("{} replay {}--kernel {} {}", invoked_program(),
                     subject.kernel.source.empty() ? "" : subject.kernel.source + ' ', subject.kernel.name,
                     shell_word(file));
}

void print_finding(const Subject& subject, const Finding& finding) {
  std::cout << fmt::format("  {}\n    {}\n    first:  {}, check {}, {}\n    shrunk: {}, in {} questions{}\n",
                           finding.cause, finding.reason, size_words(finding.first),
                           question_name(finding.first.question),
                           finding.at_case == 0 ? "of the corpus" : fmt::format("case {}", finding.at_case),
                           size_words(finding.shrunk), finding.shrinking,
                           finding.shrinking_finished ? "" : " (stopped before the end)");
  if (!finding.after.empty()) std::cout << "    note:   " << finding.after << '\n';
  if (finding.duplicates > 0) std::cout << fmt::format("    {} more of this cause\n", finding.duplicates);
  if (finding.file.empty())
    std::cout << indented(finding.shrunk);
  else
    std::cout << "    replay: " << replay_words(subject, finding.file) << '\n';
}

void print_report(const Subject& subject, const HuntReport& r, Objective objective) {
  const Index failed = static_cast<Index>(r.findings.size());
  std::cout << fmt::format(
      "{:<9}  {:<43} {:>7} cases {:>6.0f}/s {:>5.0f} % decided {:>4} cells  error/bound {:.3g}{}\n",
      failed > 0      ? "FAIL"
      : r.decided > 0 ? "no fault"
                      : "UNDECIDED",
      r.kernel, r.cases, r.seconds > 0 ? static_cast<double>(r.cases) / r.seconds : 0,
      100.0 * static_cast<double>(r.decided) / static_cast<double>(std::max<Index>(1, r.cases + r.replayed)),
      r.cells, r.best, r.stopped ? "  (interrupted)" : "");
  for (const Finding& finding : r.findings) print_finding(subject, finding);
  if (objective == Objective::error && r.best_input)
    std::cout << fmt::format("  largest error/bound {:.4g}, {}:\n{}", r.best,
                             r.best_at == 0 ? "of the corpus" : fmt::format("case {}", r.best_at),
                             indented(*r.best_input));
}

nlohmann::json in_json(const Finding& f) {
  return {{"cause", f.cause},
          {"check", question_name(f.shrunk.question)},
          {"reason", f.reason},
          {"at_case", f.at_case},
          {"first", to_text({f.first, {}, {}, {}})},
          {"shrunk", to_text({f.shrunk, {}, {}, {}})},
          {"shrinking_questions", f.shrinking},
          {"shrinking_finished", f.shrinking_finished},
          {"duplicates", f.duplicates},
          {"note", f.after},
          {"file", f.file}};
}

nlohmann::json in_json(const HuntReport& r) {
  nlohmann::json checks = nlohmann::json::object(), findings = nlohmann::json::array();
  for (const auto& [question, tally] : r.questions)
    checks[std::string(question_name(question))] = {
        {"asked", tally.asked},
        {"decided", tally.decided},
        {"failed", tally.failed},
        {"cpu_seconds", static_cast<double>(tally.nanoseconds) * 1e-9}};
  for (const Finding& finding : r.findings) findings.push_back(in_json(finding));
  nlohmann::json json{{"kernel", r.kernel},      {"cases", r.cases},        {"replayed", r.replayed},
                      {"decided", r.decided},    {"seconds", r.seconds},    {"cells", r.cells},
                      {"largest_ratio", r.best}, {"checks", checks},        {"undecided", r.undecided},
                      {"findings", findings},    {"interrupted", r.stopped}};
  if (r.first_failure) json["first_failure"] = *r.first_failure;
  if (r.best_input) json["worst_input"] = to_text({*r.best_input, {}, {}, {}});
  return json;
}

class Live {
 public:
  Live(std::string kernel, bool shown) : kernel_(std::move(kernel)), shown_(shown) {}
  ~Live() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }
  void show(const HuntProgress& p) const {
    if (shown_)
      std::cerr << fmt::format("\r\033[K{}: {} cases, {:.0f}/s, {} cells, error/bound {:.3g}, {} found",
                               kernel_, p.cases, static_cast<double>(p.cases) / std::max(p.seconds, 1e-9),
                               p.cells, p.best, p.findings)
                << std::flush;
  }

 private:
  std::string kernel_;
  bool shown_;
};

// What was found, and with the objective error what came nearest to its bound, goes into the corpus.
void remember(const std::string& folder, Objective objective, HuntReport& report,
              std::vector<std::string>& added) {
  if (folder.empty()) return;
  if (objective == Objective::error && report.best_input && report.best_at > 0) {
    const auto path =
        add_to_corpus(folder, {*report.best_input,
                               report.kernel,
                               fmt::format("{}: error/bound {:.4g}", report.kernel, report.best),
                               {}});
    if (!path.empty()) added.push_back(path.string());
  }
  for (Finding& finding : report.findings) {
    if (!finding.file.empty()) continue;
    const auto path =
        add_to_corpus(folder, {finding.shrunk, report.kernel, report.kernel + ": " + finding.reason, {}});
    if (path.empty()) continue;
    finding.file = path.string(), added.push_back(finding.file);
  }
}

int exit_of(const std::vector<HuntReport>& reports) {
  Index failed = 0, decided = 0, cases = 0;
  for (const HuntReport& r : reports)
    failed += static_cast<Index>(r.findings.size()), decided += r.decided, cases += r.cases + r.replayed;
  return failed > 0 ? exit_failed : decided > 0 ? exit_passed : cases > 0 ? exit_undecided : exit_nothing_ran;
}

int run_minimise(const Arguments& arguments, const DoorOptions& doors) {
  if (arguments.corpus.empty()) throw BadInput("--minimise: expected --corpus DIR beside it");
  require_writable(arguments.corpus);
  const Corpus corpus = read_corpus(arguments.corpus);
  for (const std::string& why : corpus.skipped) note("skipped: " + why);
  Arguments all = arguments;
  if (all.kernel.empty() && doors.plugins.empty() && doors.processes.empty()) all.kernel = "mutant.*";
  const Minimised result = minimise(corpus.cases, subjects_of(all, doors));
  for (const std::string& file : result.dropped) {
    std::filesystem::remove(file);
    std::cout << "removed " << file << '\n';
  }
  std::cout << fmt::format("{} cases kept, {} removed, {} skipped; {} kills, {} cells as before\n",
                           result.kept.size(), result.dropped.size(), corpus.skipped.size(), result.kills,
                           result.cells);
  return exit_passed;
}

int run_fuzz(const Arguments& arguments, const DoorOptions& doors) {
  if (arguments.minimise) return run_minimise(arguments, doors);
  if (arguments.seconds && arguments.cases) throw BadInput("--time and --cases: expected one of the two");
  if (arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty())
    throw BadInput("--kernel, --plugin or --process: expected one of them, such as --kernel cpu.hla2.*");
  std::vector<Subject> subjects = subjects_of(arguments, doors);
  Corpus corpus;
  if (!arguments.corpus.empty()) require_writable(arguments.corpus), corpus = read_corpus(arguments.corpus);
  for (const std::string& why : corpus.skipped) note("skipped: " + why);
  std::unique_ptr<AtomicFile> json;
  if (!arguments.json.empty()) json = std::make_unique<AtomicFile>(arguments.json);
  std::unique_ptr<AtomicFile> page;
  if (!arguments.output.empty()) {
    require_writable(arguments.output, "--output");
    page = std::make_unique<AtomicFile>(std::filesystem::path(arguments.output) / "index.html");
  }

  HuntOptions options;
  options.objective = arguments.objective;
  options.seed = arguments.seed ? *arguments.seed : drawn_seed();
  options.threads = arguments.threads > 0
                        ? arguments.threads
                        : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (arguments.cases > 0)
    options.cases = arguments.cases;
  else
    options.seconds = arguments.seconds.value_or(60) / static_cast<double>(subjects.size());
  options.stop = [] { return interrupted.load(); };
  stop_on_signals();

  std::vector<HuntReport> reports;
  std::vector<std::string> added;
  for (const Subject& subject : subjects) {
    if (interrupted) break;
    {
      const Live live(subject.kernel.name, isatty(STDERR_FILENO) != 0);
      options.progress = [&](const HuntProgress& p) { live.show(p); };
      reports.push_back(hunt(subject, corpus.cases, options));
    }
    remember(arguments.corpus, arguments.objective, reports.back(), added);
    print_report(subject, reports.back(), arguments.objective);
    std::cout << std::flush;
  }
  Index cases = 0, found = 0;
  for (const HuntReport& r : reports) cases += r.cases, found += static_cast<Index>(r.findings.size());
  std::cout << fmt::format("\n{} of {} kernels, {} cases, {} causes of failure; seed {}{}\n", reports.size(),
                           subjects.size(), cases, found, options.seed, interrupted ? "; interrupted" : "");
  if (!arguments.corpus.empty())
    std::cout << fmt::format("corpus: {} cases replayed where they apply, {} skipped, {} added\n",
                             corpus.cases.size(), corpus.skipped.size(), added.size());
  if (page) {
    page->write(render_fuzz_page(reports, invoked_command()));
    page->commit();
    std::cout << "page: " << (std::filesystem::path(arguments.output) / "index.html").string() << '\n';
  }
  if (json) {
    nlohmann::json kernels = nlohmann::json::array();
    for (const HuntReport& r : reports) kernels.push_back(in_json(r));
    const nlohmann::json all{
        {"schema", "attest.fuzz/1"},
        {"command", invoked_command()},
        {"seed", options.seed},
        {"objective", arguments.objective == Objective::fail ? "fail" : "error"},
        {"interrupted", interrupted.load()},
        {"kernels", kernels},
        {"corpus", {{"cases", corpus.cases.size()}, {"skipped", corpus.skipped}, {"added", added}}}};
    json->write(all.dump(1) + '\n');
    json->commit();
  }
  return exit_of(reports);
}

int run_replay(const Arguments& arguments, const DoorOptions& doors) {
  std::map<Verdict, Index> counts;
  for (const std::string& file : arguments.files) {
    const CorpusCase one = read_corpus_case(file);
    const bool own = arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty();
    Arguments asked = arguments;
    if (own) asked.kernel = one.kernel;
    Index of_operator = 0;
    for (const Subject& subject : subjects_of(asked, doors)) {
      const Case& shape = one.input.shape;
      if (subject.kernel.op != shape.op || subject.kernel.variant != shape.variant) continue;
      ++of_operator;
      const BatteryContext context{subject.kernel, operator_named(shape.op, shape.variant), shape.seed,
                                   Effort::quick};
      const Answer answer = ask(context, one.input);
      ++counts[answer.outcome.verdict];
      std::cout << fmt::format("{:<9}  {:<43} {}  error/bound {:.3g}  {}\n",
                               verdict_words(answer.outcome.verdict), subject.kernel.name,
                               std::filesystem::path(file).filename().string(), answer.reached,
                               answer.outcome.reason);
    }
    if (of_operator == 0)
      throw BadInput(fmt::format("{}: no kernel of --kernel {} computes {} ({})", printable(file, 200),
                                 in_quotes(asked.kernel), one.input.shape.op, one.input.shape.variant));
  }
  if (counts[Verdict::fail] > 0) return exit_failed;
  if (counts[Verdict::undecided] + counts[Verdict::suspect] > 0) return exit_undecided;
  return counts[Verdict::pass] > 0 ? exit_passed : exit_nothing_ran;
}

}  // namespace

void add_fuzz(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("fuzz", "hunt for the input on which a kernel is worst, and make it small");
  auto arguments = std::make_shared<Arguments>();
  const auto doors = add_door_options(*command);
  command->add_option(
      "--kernel", arguments->kernel,
      "glob of kernel names, such as cpu.hla2.* (also mutant.hla2.*, deliberately wrong ones)");
  command->add_option("--operator", arguments->op, "glob of operators, such as *delta; all by default");
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
  add_path(command, "--output", arguments->output,
           "folder for index.html, the page of the hunt, made if it is not there");
  add_threads(command, arguments->threads);
  command->footer(
      std::string(exit_codes) +
      "No fault found is no proof: attest check --battery asks what is known to matter. Interrupted once, it "
      "ends "
      "with its report.\n"
      "Example: attest fuzz --kernel cpu.hla2.chunk64.direct.bf16 --objective error --time 60s --seed 1");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    exit_code = run_fuzz(*arguments, *doors);
  });
}

void add_replay(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("replay", "ask kernels about cases of the corpus (attest fuzz --corpus)");
  auto arguments = std::make_shared<Arguments>();
  const auto doors = add_door_options(*command);
  command->add_option("FILE", arguments->files, "files that attest fuzz has written")->required();
  command->add_option("--kernel", arguments->kernel,
                      "glob of kernel names; by default the kernel on which the case was found");
  command->footer(std::string(exit_codes) + "Example: attest replay fuzz/corpus/*.case --kernel 'cpu.*'");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    exit_code = run_replay(*arguments, *doors);
  });
}

}  // namespace attest
