// attest fuzz: the hunt for the worst input. attest replay: cases of the corpus, one by one.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/battery.hpp"
#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/version.hpp"
#include "fuzz/hunt.hpp"
#include "fuzz/minimise.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "gpu_checks/check.hpp"
#include "reference/cases/random.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/hunt_json.hpp"
#include "reports/record.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct Arguments {
  std::string kernel, op, corpus, json, output;
  Objective objective = Objective::fail;
  std::optional<double> seconds;
  Index cases = 0, batch = 16;
  std::optional<std::uint64_t> seed;
  int threads = 0;
  std::optional<Shard> shard;
  bool minimise = false, resume = false;
  std::vector<std::string> files;  // of replay
};

// Interrupted once, the hunt ends with its report; interrupted again, the program ends.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void interrupt(int) { interrupted = true; }

void stop_on_signals() {
  give_up_answers_when([] { return interrupted.load(); });
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {  // mpirun hands USR1 on and waits
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

// Where little was decided, the commonest reason.
void print_undecided(const HuntReport& r) {
  const Index asked = r.cases + r.replayed;
  if (r.undecided.empty() || 2 * r.decided >= asked) return;
  const auto most = std::ranges::max_element(r.undecided, {}, [](const auto& one) { return one.second; });
  std::cout << fmt::format("  not decided: {} of {}, most of all ({}): {}\n", asked - r.decided, asked,
                           most->second, r.undecided_first.at(most->first));
}

void print_report(const Subject& subject, const HuntReport& r, Objective objective) {
  const Index failed = static_cast<Index>(r.findings.size());
  std::cout << fmt::format(
      "{:<9}  {:<43} {:>7} cases {:>6.0f}/s {:>5.0f} % decided {:>4} cells  error/bound {:.3g}{}{}\n",
      failed > 0      ? "FAIL"
      : r.decided > 0 ? "no fault"
                      : "UNDECIDED",
      r.kernel, r.cases, r.seconds > 0 ? static_cast<double>(r.cases) / r.seconds : 0,
      100.0 * static_cast<double>(r.decided) / static_cast<double>(std::max<Index>(1, r.cases + r.replayed)),
      r.cells, r.best, failed > 0 ? " of what passed" : "", r.stopped ? "  (interrupted)" : "");
  print_undecided(r);
  for (const Finding& finding : r.findings) print_finding(subject, finding);
  if (objective == Objective::error && r.best_input)
    std::cout << fmt::format("  largest error/bound {:.4g}, {}:\n{}", r.best,
                             r.best_at == 0 ? "of the corpus" : fmt::format("case {}", r.best_at),
                             indented(*r.best_input));
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
  const auto subjects = subjects_of(all, doors);
  const bool shown = isatty(STDERR_FILENO) != 0;
  const Minimised result = minimise(corpus.cases, subjects, [&](std::size_t asked) {
    if (shown)
      std::cerr << fmt::format("\r\033[K{} of {} cases asked", asked, corpus.cases.size()) << std::flush;
  });
  if (shown) std::cerr << "\r\033[K" << std::flush;
  for (const std::string& file : result.dropped) {
    std::filesystem::remove(file);
    std::cout << "removed " << file << '\n';
  }
  std::cout << fmt::format("{} cases kept, {} removed, {} skipped; {} kills, {} cells as before\n",
                           result.kept.size(), result.dropped.size(), corpus.skipped.size(), result.kills,
                           result.cells);
  return exit_passed;
}

void check_arguments(const Arguments& arguments, const DoorOptions& doors) {
  if (arguments.seconds && arguments.cases) throw BadInput("--time and --cases: expected one of the two");
  if (arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty())
    throw BadInput("--kernel, --plugin or --process: expected one of them, such as --kernel cpu.hla2.*");
  if (arguments.resume && arguments.output.empty())
    throw BadInput("--resume: goes on with what --output DIR holds, expected --output beside it");
  require_seed(arguments.shard, arguments.seed);
  if (arguments.shard && arguments.cases > 0 && arguments.cases < arguments.shard->of)
    throw BadInput(fmt::format("--cases {}: expected one at least for each of {} shards", arguments.cases,
                               arguments.shard->of));
  if (arguments.threads > 0 && launched_by_mpirun())
    throw BadInput("--threads: not with mpirun, whose ranks ask one case at a time, expected a rank a core");
}

// One `attest fuzz`, on one or more ranks.
class FuzzRun {
 public:
  FuzzRun(const Arguments& arguments, const DoorOptions& doors) : arguments_(arguments), doors_(doors) {}

  int run() {
    ranks_.take_own_gpu();
    if (const std::string why = wrong_with(&FuzzRun::prepare); !why.empty()) return refuse(why);
    identity_.seed = std::stoull(ranks_.told(std::to_string(identity_.seed)));
    for (const auto step : {&FuzzRun::open_journal, &FuzzRun::write_journal})
      if (const std::string why = wrong_with(step); !why.empty()) return refuse(why);
    stop_on_signals();
    how_to_hunt();
    if (ranks_.rank() > 0) return serve();
    hunt_all();
    ranks_.dismiss();
    finish();
    return exit_of(reports_);
  }

 private:
  // Done by all ranks; what any of them has to say against it.
  std::string wrong_with(void (FuzzRun::*step)()) {
    std::string wrong;
    try {
      (this->*step)();
    } catch (const BadInput& error) {
      wrong = error.what();
    }
    return ranks_.agree(facts_, wrong);
  }
  int refuse(const std::string& why) const {
    if (ranks_.rank() > 0) return exit_passed;  // rank 0 says it
    throw BadInput(why);
  }

  void prepare() {
    check_arguments(arguments_, doors_);
    open_kernels(doors_);
    subjects_ = subjects_of(arguments_, doors_);
    facts_ = program_version() + '\n';
    for (const Subject& subject : subjects_) facts_ += kernel_identity(subject.kernel);
    identity_.kernels_sha256 = sha256(facts_);
    if (ranks_.rank() > 0) return;
    if (!arguments_.corpus.empty())
      require_writable(arguments_.corpus), corpus_ = read_corpus(arguments_.corpus);
    for (const std::string& why : corpus_.skipped) note("skipped: " + why);
    if (!arguments_.json.empty()) results_.push_back(std::make_unique<AtomicFile>(arguments_.json));
    identity_.seed = arguments_.seed ? *arguments_.seed : drawn_seed();
    if (arguments_.resume) go_on();
  }
  // With the seed and the corpus of the hunt that was killed.
  void go_on() {
    const auto before = HuntJournal::identity_in(arguments_.output);
    if (!before) return;
    if (!arguments_.seed) identity_.seed = before->seed;
    std::erase_if(corpus_.cases, [&](const CorpusCase& one) {
      return std::ranges::find(before->corpus, one.file) == before->corpus.end();
    });
  }
  // Rank 0 reads or removes what is there; then all write.
  void open_journal() {
    if (arguments_.output.empty()) return;
    identity_.command = invoked_command_of_all_shards(), identity_.version = program_version();
    if (arguments_.shard) identity_.command += " --shard " + to_text(*arguments_.shard);
    for (const CorpusCase& one : corpus_.cases) identity_.corpus.push_back(one.file);
    journal_ = std::make_unique<HuntJournal>(arguments_.output, identity_);
    if (ranks_.rank() > 0) return;
    const auto before = std::filesystem::path(arguments_.output) / hunt_name;
    if (arguments_.resume) {
      if (!HuntJournal::identity_in(arguments_.output) && std::filesystem::exists(before))
        throw BadInput("--resume: the hunt is already finished, its results are in " +
                       printable(before.string(), 200) + ", expected one that was killed");
      journal_->take_up();
    } else if (journal_->start_anew() > 0) {
      note("the answers of a hunt that was killed are dropped from " + printable(arguments_.output, 200) +
           ", --resume would have gone on with them");
    }
    results_.push_back(std::make_unique<AtomicFile>(std::filesystem::path(arguments_.output) / hunt_name));
    page_ = std::make_unique<AtomicFile>(std::filesystem::path(arguments_.output) / "index.html");
  }
  void write_journal() {
    if (journal_) journal_->write_as(ranks_.rank());
  }

  void how_to_hunt() {
    options_.objective = arguments_.objective;
    options_.seed = seed_of_shard(), options_.batch = arguments_.batch;
    options_.opening = !arguments_.shard || arguments_.shard->index == 1;
    options_.threads = arguments_.threads > 0
                           ? arguments_.threads
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    if (arguments_.cases > 0)
      options_.cases = own_cases();
    else
      options_.seconds = arguments_.seconds.value_or(60) / static_cast<double>(subjects_.size());
    options_.stop = [] { return interrupted.load(); };
    options_.journal = journal_.get();
    if (ranks_.size() > 2 && options_.batch < 16 * ranks_.size() && ranks_.rank() == 0)
      note(fmt::format("--batch {} has {} ranks wait for one another, expected {} or more", options_.batch,
                       ranks_.size(), 64 * ranks_.size()));
  }

  // A shard is a hunt of its own, of as many cases as the others or one more.
  std::uint64_t seed_of_shard() const {
    return arguments_.shard ? Random(identity_.seed, "shard " + to_text(*arguments_.shard)).bits() >> 1
                            : identity_.seed;
  }
  Index own_cases() const {
    if (!arguments_.shard) return arguments_.cases;
    const Shard& shard = *arguments_.shard;
    return (arguments_.cases - shard.index + shard.of) / shard.of;
  }

  // "KERNEL-NUMBER TASK", and the reply; empty: not done.
  std::string work(const std::string& message) const {
    const std::size_t space = message.find(' ');
    const Subject& subject = subjects_.at(std::stoull(message.substr(0, space)));
    HowToDo how{options_.seed, options_.most_shrinking, false, options_.stop, {}};
    // A rank does not know when the hunt of this kernel began: it shrinks no longer than that may last.
    if (options_.seconds)
      how.late = [begun = std::chrono::steady_clock::now(), most = *options_.seconds] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() >= most;
      };
    const HuntReply reply = do_noted(journal_.get(), subject, parse_task(message.substr(space + 1)), how);
    return reply.done ? to_line(reply) : "";
  }
  int serve() const {
    ranks_.serve([&](const std::string& message) { return work(message); });
    return exit_passed;
  }
  Crew crew_for(std::size_t kernel) const {
    return [this, kernel](const std::vector<HuntTask>& tasks, const std::function<bool()>& over) {
      std::vector<std::string> messages;
      for (const HuntTask& task : tasks) messages.push_back(fmt::format("{} {}", kernel, to_line(task)));
      std::vector<HuntReply> replies;
      for (const std::string& reply : ranks_.hand_out(
               messages, [this](const std::string& message) { return work(message); }, over))
        replies.push_back(reply.empty() ? HuntReply{} : parse_reply(reply));
      return replies;
    };
  }

  void hunt_all() {
    if (arguments_.resume) print_resumed();
    for (std::size_t i = 0; i < subjects_.size() && !interrupted; ++i) {
      const Subject& subject = subjects_[i];
      {
        const Live live(subject.kernel.name, isatty(STDERR_FILENO) != 0);
        options_.progress = [&](const HuntProgress& p) { live.show(p); };
        if (ranks_.size() > 1) options_.crew = crew_for(i);
        reports_.push_back(hunt(subject, corpus_.cases, options_));
      }
      remember(arguments_.corpus, arguments_.objective, reports_.back(), added_);
      print_report(subject, reports_.back(), arguments_.objective);
      std::cout << std::flush;
    }
  }

  void print_resumed() {
    Index known = 0;
    for (const Subject& subject : subjects_) {
      const std::set<Index>& answered = journal_->answered(subject.kernel.name);
      known += static_cast<Index>(answered.size());
      if (const std::string gaps = ranges_missing(answered, own_cases()); !gaps.empty())
        not_run_[subject.kernel.name] = gaps;
    }
    std::cout << fmt::format("resumed: {} cases were answered before\n", known);
    for (const auto& [kernel, gaps] : not_run_) std::cout << fmt::format("  not run: {} {}\n", kernel, gaps);
    for (const TaskBegun& one : journal_->open())
      std::cout << fmt::format("  begun and not answered: {} {} {}, rank {}\n", one.kernel,
                               one.task == "ask" ? "case" : "shrinking of case", one.number, one.rank);
  }
  // "3, 7-16" of 1 .. all.
  static std::string ranges_missing(const std::set<Index>& there, Index all) {
    std::string text;
    const auto add = [&text](Index from, Index to) {
      if (from > to) return;
      text += (text.empty() ? "" : ", ") +
              (from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to));
    };
    Index next = 1;
    for (const Index number : there)
      if (number <= all) add(next, number - 1), next = number + 1;
    add(next, all);
    return text;
  }

  void finish() {
    Index cases = 0, found = 0, failures = 0;
    for (const HuntReport& r : reports_) {
      cases += r.cases, found += static_cast<Index>(r.findings.size());
      for (const Finding& finding : r.findings) failures += 1 + finding.duplicates;
    }
    const std::string causes = found == 1 ? "1 cause" : fmt::format("{} causes", found);
    std::cout << fmt::format("\n{} of {} kernels, {} cases, {} failures of {}; seed {}{}{}{}\n",
                             reports_.size(), subjects_.size(), cases, failures, causes, identity_.seed,
                             arguments_.shard ? "; shard " + to_text(*arguments_.shard) : "",
                             ranks_.size() > 1 ? fmt::format("; {} ranks", ranks_.size()) : "",
                             !interrupted ? ""
                             : journal_   ? "; interrupted, --resume goes on"
                                          : "; interrupted");
    if (!arguments_.corpus.empty())
      std::cout << fmt::format("corpus: {} cases replayed where they apply, {} skipped, {} added\n",
                               corpus_.cases.size(), corpus_.skipped.size(), added_.size());
    const std::string text = results_.empty() ? "" : in_json().dump(1) + '\n';
    for (const auto& file : results_) file->write(text), file->commit();
    if (page_) {
      page_->write(render_fuzz_page(reports_, invoked_command()));
      page_->commit();
      std::cout << "page: " << (std::filesystem::path(arguments_.output) / "index.html").string() << '\n';
    }
    if (journal_ && !interrupted) journal_->remove();
  }
  nlohmann::ordered_json in_json() const {
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const HuntReport& r : reports_) kernels.push_back(to_json(r));
    nlohmann::ordered_json all{
        {"schema", hunt_schema},
        {"command", invoked_command()},
        {"seed", identity_.seed},
        {"objective", arguments_.objective == Objective::fail ? "fail" : "error"},
        {"ranks", ranks_.size()},
        {"interrupted", interrupted.load()},
        {"kernels", kernels},
        {"corpus", {{"cases", corpus_.cases.size()}, {"skipped", corpus_.skipped}, {"added", added_}}}};
    if (arguments_.resume) all["not_run_before"] = not_run_;
    if (arguments_.shard)
      all["shard"] = to_json(shard_of_run(*arguments_.shard, std::ssize(subjects_), program_version(),
                                          identity_.kernels_sha256));
    return all;
  }

  const Arguments& arguments_;
  const DoorOptions& doors_;
  Ranks ranks_;
  std::vector<Subject> subjects_;
  std::string facts_;  // what has to be the same for all ranks
  HuntIdentity identity_;
  Corpus corpus_;
  std::unique_ptr<HuntJournal> journal_;
  std::vector<std::unique_ptr<AtomicFile>> results_;
  std::unique_ptr<AtomicFile> page_;
  HuntOptions options_;
  std::vector<HuntReport> reports_;
  std::vector<std::string> added_;
  std::map<std::string, std::string> not_run_;
};

int run_fuzz(const Arguments& arguments, const DoorOptions& doors) {
  if (!arguments.minimise) return FuzzRun(arguments, doors).run();
  const std::pair<bool, const char*> meaningless[] = {{!arguments.json.empty(), "--json"},
                                                      {!arguments.output.empty(), "--output"},
                                                      {arguments.resume, "--resume"},
                                                      {arguments.seconds.has_value(), "--time"},
                                                      {arguments.cases > 0, "--cases"}};
  for (const auto& [given, option] : meaningless)
    if (given) throw BadInput(fmt::format("--minimise: no hunt, expected no {} beside it", option));
  if (launched_by_mpirun()) throw BadInput("--minimise: the work of one process, expected no mpirun");
  if (arguments.shard) throw BadInput("--minimise: a corpus is thinned as a whole, expected no --shard");
  open_kernels(doors);
  return run_minimise(arguments, doors);
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
      "cases drawn before the first of them is answered; the same --batch finds the same, whatever the "
      "number of threads and ranks (16; for many ranks 64 a rank)");
  add_threads(command, arguments->threads);
  command->footer(
      std::string(exit_codes) +
      "No fault found is no proof: attest check --battery asks what is known to matter. Interrupted once, it "
      "ends "
      "with its report. mpirun -n N attest fuzz ... shares the work among N ranks (fuzz/CLUSTER.md).\n"
      "Example: attest fuzz --kernel cpu.hla2.chunk64.direct.bf16 --objective error --time 60s --seed 1");
  command->callback([arguments, doors, &exit_code] { exit_code = run_fuzz(*arguments, *doors); });
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
