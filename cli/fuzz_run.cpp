// One `attest fuzz`, on one or more ranks.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/battery.hpp"
#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/fuzz_arguments.hpp"
#include "cli/fuzz_print.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/version.hpp"
#include "fuzz/schedule.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "reference/cases/random.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reference/tensor/temporaries.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/hunt_json.hpp"
#include "reports/hunt_junit.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

// Interrupted once, the hunt ends with its report; interrupted again, the program ends, without leaving temporaries.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void interrupt(int number) {
  interrupted = true;
  remove_temporaries_on(number);
}

void stop_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {  // mpirun hands USR1 on and waits
    struct sigaction action {};
    action.sa_handler = interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(number, &action, nullptr);
  }
}

int exit_of_hunts(const std::vector<HuntReport>& reports) {
  std::map<Verdict, Index> counts;
  for (const HuntReport& r : reports) ++counts[r.verdict()];
  const ExitCode code = exit_of(counts[Verdict::pass], counts[Verdict::fail], counts[Verdict::undecided]);
  return interrupted && code != exit_failed ? exit_interrupted : code;
}

// Of two results of one name the first would be gone.
void check_results(const FuzzArguments& arguments) {
  refuse_same_file("--junit", arguments.junit, "--json", arguments.json);
  if (arguments.output.empty()) return;
  for (const std::string name : {"fuzz.json", "index.html", "journal.0.jsonl"}) {
    const std::string path = std::filesystem::path(arguments.output) / name;
    refuse_same_file("--json", arguments.json, "--output's " + name, path);
    refuse_same_file("--junit", arguments.junit, "--output's " + name, path);
  }
}

void check_arguments(const FuzzArguments& arguments, const DoorOptions& doors) {
  if (arguments.seconds && arguments.cases) throw BadInput("--time and --cases: expected one of the two");
  if (arguments.kernel.empty() && doors.plugins.empty() && doors.processes.empty())
    throw BadInput("--kernel, --plugin or --process: expected one of them, such as --kernel cpu.hla2.*");
  if (arguments.resume && arguments.output.empty())
    throw BadInput("--resume: goes on with what --output DIR holds, expected --output beside it");
  check_results(arguments);
  require_seed(arguments.shard, arguments.seed);
  if (arguments.shard && arguments.cases > 0 && arguments.cases < arguments.shard->of)
    throw BadInput(fmt::format("--cases {}: expected one at least for each of {} shards", arguments.cases,
                               arguments.shard->of));
  if (arguments.threads > 0 && launched_by_mpirun())
    throw BadInput("--threads: not with mpirun, whose ranks ask one case at a time, expected a rank a core");
  if (arguments.workers > 0 && launched_by_mpirun())
    throw BadInput("--workers: not with mpirun, whose ranks ask one case at a time, expected more ranks");
}

int threads_of(const FuzzArguments& arguments) {
  return arguments.threads > 0 ? arguments.threads
                               : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// A GPU has one worker unless more are asked for; a rank of mpirun asks one case at a time, on a GPU of its own.
DoorOptions with_workers(DoorOptions doors, const FuzzArguments& arguments) {
  if (launched_by_mpirun()) return doors.devices.clear(), doors;
  const bool gpu = !doors.devices.empty() || !visible_devices().empty();
  doors.workers = arguments.workers > 0 ? arguments.workers
                  : gpu                 ? 1
                                        : std::min<Index>(threads_of(arguments), arguments.batch);
  return doors;
}

class FuzzRun {
 public:
  FuzzRun(const FuzzArguments& arguments, const DoorOptions& doors)
      : arguments_(arguments), doors_(with_workers(doors, arguments)) {}

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
    if (not_written_.empty()) return exit_of_hunts(reports_);
    const auto others = std::ssize(not_written_) - 1;
    throw BadInput(not_written_[0] + (others > 0 ? fmt::format(" (and {} more)", others) : ""));
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
    subjects_ = subjects_of(arguments_.kernel, arguments_.op, doors_);
    facts_ = program_version() + '\n';
    for (const Subject& subject : subjects_) facts_ += kernel_identity(subject.kernel);
    identity_.kernels_sha256 = sha256(facts_);
    if (ranks_.rank() > 0) return;
    if (!arguments_.corpus.empty())
      require_writable(arguments_.corpus), corpus_ = read_corpus(arguments_.corpus);
    for (const std::string& why : corpus_.skipped) note("skipped: " + why);
    if (!arguments_.json.empty()) results_.push_back(std::make_unique<AtomicFile>(arguments_.json));
    if (!arguments_.junit.empty()) junit_ = std::make_unique<AtomicFile>(arguments_.junit);
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
    options_.threads = threads_of(arguments_), options_.workers = static_cast<int>(all_workers(doors_));
    if (arguments_.cases > 0)
      options_.cases = own_cases();
    else
      options_.seconds = arguments_.seconds.value_or(60) / static_cast<double>(subjects_.size());
    options_.stop = [] { return interrupted.load(); };
    options_.journal = journal_.get();
    if (ranks_.size() > 2 && options_.batch < 8 * ranks_.size() && ranks_.rank() == 0)
      note(fmt::format("--batch {} has {} ranks wait for one another, expected {} or more", options_.batch,
                       ranks_.size(), 16 * ranks_.size()));
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

  // "KERNEL-NUMBER SECONDS-LEFT TASK" (seconds "-": no time), and the reply; empty: not begun, or done in vain. With a journal a
  // line more, why it is not written.
  std::string work(const std::string& message) {
    const std::size_t one = message.find(' '), two = message.find(' ', one + 1);
    const std::size_t kernel = std::stoull(message.substr(0, one));
    HowToDo how{options_.seed, options_.most_shrinking, false, options_.stop, {}, options_.seconds};
    if (const std::string left = message.substr(one + 1, two - one - 1); left != "-")
      how.late = [end = end_of_hunt(kernel, std::stod(left))] { return Clock::now() >= end; };
    const HuntReply reply =
        do_noted(journal_.get(), subjects_.at(kernel), parse_task(message.substr(two + 1)), how);
    std::string line = reply.done || reply.cut ? to_line(reply) : "";
    if (journal_) line += '\n' + journal_->not_written();
    return line;
  }
  HuntReply read_reply(const std::string& message) {
    const std::size_t end = std::min(message.find('\n'), message.size());
    lost(message.substr(std::min(end + 1, message.size())));
    return end == 0 ? HuntReply{} : parse_reply(message.substr(0, end));
  }
  // A message may have waited here for long: of all that came of a kernel, the one that says the earliest was read soonest.
  Clock::time_point end_of_hunt(std::size_t kernel, double left) {
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(left));
    const auto at = ends_.emplace(kernel, end).first;
    return at->second = std::min(at->second, end);
  }
  int serve() {
    ranks_.serve([&](const std::string& message) { return work(message); });
    return exit_passed;
  }
  Crew crew_for(std::size_t kernel) {
    return
        [this, kernel](HuntSchedule& schedule, const std::function<std::optional<double>()>& seconds_left) {
          const auto next = [&]() -> std::optional<Ranks::Errand> {
            const auto errand = schedule.next();
            if (!errand) return std::nullopt;
            const auto seconds = seconds_left();
            const std::string left = seconds ? fmt::format("{:.6f}", *seconds) : "-";
            return Ranks::Errand{errand->ticket, fmt::format("{} {} {}", kernel, left, to_line(errand->task)),
                                 takes_seconds(errand->task)};
          };
          const auto answered = [&](std::size_t ticket, const std::string& reply) {
            schedule.answered(ticket, read_reply(reply));
          };
          ranks_.hand_out({next, answered, [&] { return schedule.finished(); }},
                          [this](const std::string& message) { return work(message); });
        };
  }

  void hunt_all() {
    if (arguments_.resume) print_resumed();
    for (std::size_t i = 0; i < subjects_.size() && !interrupted; ++i) {
      const Subject& subject = subjects_[i];
      {
        const Live live(subject.kernel.name, known(subject.kernel.name), isatty(STDERR_FILENO) != 0);
        options_.progress = [&](const HuntProgress& p) { live.show(p); };
        if (ranks_.size() > 1) options_.crew = crew_for(i);
        reports_.push_back(hunt(subject, corpus_.cases, options_));
      }
      remember(reports_.back());
      for (Finding& finding : reports_.back().findings) finding.replay = replay_words(subject, finding);
      print_report(reports_.back(), arguments_.objective,
                   std::min(known(subject.kernel.name), reports_.back().cases));
      std::cout << std::flush;
    }
  }

  // What was found, and with the objective error what came nearest to its bound, goes into the corpus.
  void remember(HuntReport& report) {
    if (arguments_.corpus.empty()) return;
    if (arguments_.objective == Objective::error && report.best_input && report.best_at > 0)
      add({*report.best_input,
           report.kernel,
           fmt::format("{}: error/bound {:.4g}", report.kernel, report.best),
           {}});
    for (Finding& finding : report.findings)
      if (finding.file.empty() && repeats(finding))
        finding.file = add({finding.shrunk, report.kernel, report.kernel + ": " + finding.reason, {}});
  }
  // Its path; empty: it is there already, or there is no room for it.
  std::string add(const CorpusCase& one) {
    std::string path;
    if_room([&] { path = add_to_corpus(arguments_.corpus, one).string(); });
    if (!path.empty()) added_.push_back(path);
    return path;
  }
  // The report of a hunt is complete whatever of it the disk has no room for.
  template <class Write>
  void if_room(Write&& write) {
    try {
      write();
    } catch (const BadInput& error) {
      lost(error.what());
    }
  }
  void lost(const std::string& why) {
    if (!why.empty() && std::ranges::find(not_written_, why) == not_written_.end())
      not_written_.push_back(why);
  }

  // So many cases of the kernel were answered before this run.
  Index known(const std::string& kernel) const {
    if (!journal_) return 0;
    const std::set<Index>& answered = journal_->answered(kernel);
    return std::distance(answered.upper_bound(0), answered.end());
  }

  void print_resumed() {
    Index known = 0;
    for (const Subject& subject : subjects_) {
      const std::set<Index>& answered = journal_->answered(subject.kernel.name);
      known += static_cast<Index>(answered.size());
      if (const std::string gaps = ranges_missing(answered, own_cases()); !gaps.empty())
        not_run_[subject.kernel.name] = gaps;
    }
    std::cout << fmt::format("resumed: {} answered before\n", plural(known, "case was", "cases were"));
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
    std::cout << fmt::format("\n{} of {}, {}, {} of {}; seed {}{}{}{}{}\n", reports_.size(),
                             plural(std::ssize(subjects_), "kernel", "kernels"),
                             plural(cases, "case", "cases"), plural(failures, "failure", "failures"),
                             plural(found, "cause", "causes"), identity_.seed,
                             arguments_.shard ? "; shard " + to_text(*arguments_.shard) : "",
                             ranks_.size() > 1 ? fmt::format("; {} ranks", ranks_.size()) : "",
                             workers() > 1 ? fmt::format("; {} workers", workers()) : "",
                             !interrupted ? ""
                             : journal_   ? "; interrupted, --resume goes on"
                                          : "; interrupted");
    if (!arguments_.corpus.empty())
      std::cout << fmt::format("corpus: {}, {} skipped, {} added\n",
                               plural(std::ssize(corpus_.cases), "case replayed where it applies",
                                      "cases replayed where they apply"),
                               corpus_.skipped.size(), added_.size());
    if (journal_) lost(journal_->not_written());
    const std::string text = results_.empty() ? "" : in_json().dump(1) + '\n';
    for (const auto& file : results_) if_room([&] { file->write(text), file->commit(); });
    const Hunts hunts{invoked_command(), interrupted, reports_};
    if (junit_) if_room([&] { junit_->write(render_hunt_junit(hunts)), junit_->commit(); });
    if (page_)
      if_room([&] {
        page_->write(render_fuzz_page(hunts)), page_->commit();
        std::cout << "page: "
                  << printable((std::filesystem::path(arguments_.output) / "index.html").string(), 4096)
                  << '\n';
      });
    for (const std::string& why : not_written_) std::cout << "not written: " << why << '\n';
    if (journal_ && !interrupted && not_written_.empty()) journal_->remove();
  }
  // Of a plug-in or process, if there is one: how what it keeps between its calls came about.
  Index workers() const {
    return std::ranges::any_of(subjects_, &Subject::fresh_costs) ? all_workers(doors_) : 1;
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
        {"workers", workers()},
        {"interrupted", interrupted.load()},
        {"kernels", kernels},
        {"corpus", {{"cases", corpus_.cases.size()}, {"skipped", corpus_.skipped}, {"added", added_}}}};
    if (!not_written_.empty()) all["not_written"] = not_written_;
    if (arguments_.resume) all["not_run_before"] = not_run_;
    if (arguments_.shard)
      all["shard"] = to_json(shard_of_run(*arguments_.shard, std::ssize(subjects_), program_version(),
                                          identity_.kernels_sha256));
    return all;
  }

  const FuzzArguments& arguments_;
  const DoorOptions doors_;
  Ranks ranks_;
  std::vector<Subject> subjects_;
  std::string facts_;  // what has to be the same for all ranks
  HuntIdentity identity_;
  Corpus corpus_;
  std::unique_ptr<HuntJournal> journal_;
  std::vector<std::unique_ptr<AtomicFile>> results_;
  std::unique_ptr<AtomicFile> page_, junit_;
  HuntOptions options_;
  std::map<std::size_t, Clock::time_point> ends_;  // of the hunt of a kernel, as this process knows it
  std::vector<HuntReport> reports_;
  std::vector<std::string> added_, not_written_;
  std::map<std::string, std::string> not_run_;
};

}  // namespace

int run_hunt(const FuzzArguments& arguments, const DoorOptions& doors) {
  return FuzzRun(arguments, doors).run();
}

}  // namespace attest
