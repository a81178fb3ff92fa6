#include "fuzz/hunt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "fuzz/features.hpp"
#include "fuzz/grammar.hpp"
#include "fuzz/opening.hpp"
#include "fuzz/schedule.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int candidates = 10;
// One draw of so many is of one token, the decode step, which the rarest of several hardly ever is.
constexpr int steps = 20;
// Failures of one check and part that are shrunk; the others count as duplicates of the last.
constexpr Index most_alike = 3;
// Batches after which a question that takes seconds is learnt from.
constexpr Index slow_lag = 32;

HowToDo how_to_do(const HuntOptions& options, Clock::time_point start) {
  std::function<bool()> late;
  if (options.seconds)
    late = [start, most = *options.seconds] {
      return std::chrono::duration<double>(Clock::now() - start).count() >= most;
    };
  return {options.seed, options.most_shrinking, options.until_first_failure, options.stop,
          late,         options.seconds};
}

struct Elite {
  FuzzInput input;
  double score = 0;
};

class Hunt : private HuntSteps {
 public:
  Hunt(const Subject& subject, const HuntOptions& options)
      : subject_(subject),
        op_(operator_named(subject.kernel.op, subject.kernel.variant)),
        context_{subject.kernel, op_, options.seed, Effort::quick},
        options_(options),
        how_(how_to_do(options, start_)),
        grammar_(context_, options.objective == Objective::error),
        random_(options.seed, "hunt " + subject.kernel.name),
        opening_(options.opening && options.objective == Objective::fail ? opening_inputs(context_, random_)
                                                                         : std::vector<FuzzInput>()) {
    report_.kernel = subject.kernel.name, report_.source = subject.kernel.source,
    report_.op = subject.kernel.op, report_.seed = options.seed;
  }

  HuntReport run(const std::vector<CorpusCase>& corpus) {
    of_corpus_ = corpus_tasks(corpus);
    const Index replays = std::ssize(of_corpus_);
    HuntSchedule schedule(*this, spread());
    if (options_.crew)
      options_.crew(schedule, [this] { return seconds_left(); });
    else
      work_off(schedule);
    schedule.close();
    report_.not_replayed = replays - report_.replayed - corpus_cut_;
    leave_out_wide();
    report_.stopped = options_.stop && options_.stop();
    report_.seconds = elapsed(), report_.cells = grid_.size();
    for (const auto& [cell, elite] : grid_) report_.grid[cell] = elites_[elite].score;
    return std::move(report_);
  }

 private:
  // What fails on a small input fails on more than 65,536 tokens as well, and reads better: it counts for the first cause.
  void leave_out_wide() {
    std::vector<Finding>& findings = report_.findings;
    const auto wide = [](const Finding& f) { return is_battery(f.first.question); };
    if (!std::ranges::all_of(findings, wide))
      std::erase_if(findings, [&](const Finding& f) {
        if (wide(f)) without_cause_ += 1 + f.duplicates;
        return wide(f);
      });
    if (findings.empty()) return;
    findings.front().duplicates += without_cause_, findings.front().unseen += without_cause_;
  }

  std::optional<double> seconds_left() const {
    return options_.seconds ? std::optional(std::max(0.0, *options_.seconds - elapsed())) : std::nullopt;
  }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool stopped() const { return options_.stop && options_.stop(); }
  bool late() const { return options_.seconds && elapsed() >= *options_.seconds; }
  bool has_failed() const { return options_.until_first_failure && report_.first_failure; }

  // Of this kernel's operator; a case of another one says nothing here.
  std::vector<HuntTask> corpus_tasks(const std::vector<CorpusCase>& corpus) {
    std::vector<HuntTask> tasks;
    for (const CorpusCase& one : corpus)
      if (one.input.shape.op == subject_.kernel.op && one.input.shape.variant == subject_.kernel.variant)
        tasks.push_back({HuntTask::Kind::ask, 0, one.input, ""}), files_.push_back(one.file);
    return tasks;
  }

  // The corpus, whatever the time; then what is drawn.
  std::vector<HuntTask> draw() override {
    if (!of_corpus_.empty()) return std::exchange(of_corpus_, {});
    std::vector<HuntTask> tasks;
    while (std::ssize(tasks) < options_.batch && (!options_.cases || drawn_ < *options_.cases) &&
           !(stopped() || late() || has_failed()))
      tasks.push_back({HuntTask::Kind::ask, ++drawn_, next_input(), ""});
    return tasks;
  }
  bool over(const HuntTask& task) const override {
    if (cut_ || stopped()) return true;
    const bool of_corpus = task.kind == HuntTask::Kind::ask && task.number == 0;
    return !of_corpus && (late() || has_failed());
  }
  std::optional<HuntReply> known(const HuntTask& task) const override {
    if (first_failing_ && task.number > *first_failing_) return HuntReply{};  // it counts no more
    // What takes seconds is not begun when fewer are left.
    if (options_.seconds && task.number > 0 && task.kind == HuntTask::Kind::ask && takes_seconds(task) &&
        *seconds_left() < longest_)
      return HuntReply{};
    return options_.journal ? options_.journal->known(subject_.kernel.name, task) : std::nullopt;
  }

  FuzzInput next_input() {
    if (options_.strategy == Strategy::plain) return grammar_.plain(random_);
    if (options_.strategy == Strategy::grammar) return grammar_.draw(random_);
    const bool climbs = options_.objective == Objective::error;
    if (opened_ < opening_.size()) {
      for (const std::uint64_t pair : pairs_of(opening_[opened_])) ++seen_[pair];
      return opening_[opened_++];
    }
    if (climbs && random_.one_in(2)) return grammar_.few_roundings(random_);
    if (!climbs && random_.one_in(steps)) return rarest([&] { return grammar_.draw(random_, 1); }, 3);
    if (!elites_.empty() && (climbs ? !random_.one_in(4) : random_.one_in(4))) {
      if (climbs && best_elite_ && random_.one_in(3))
        return grammar_.mutate_values(elites_[*best_elite_].input, random_);
      const Elite& parent = elites_[pick(climbs ? 4 : 1)];
      return random_.one_in(climbs ? 2 : 4)
                 ? grammar_.mutate_values(parent.input, random_)
                 : rarest([&] { return grammar_.mutate(parent.input, random_); }, climbs ? 1 : 3);
    }
    return rarest([&] { return grammar_.draw(random_); }, candidates);
  }
  // The best of so many kept ones.
  std::size_t pick(int among) {
    std::size_t chosen = random_.below(elites_.size());
    for (int i = 1; i < among; ++i)
      if (const std::size_t other = random_.below(elites_.size());
          elites_[other].score > elites_[chosen].score)
        chosen = other;
    return chosen;
  }
  // Of the drawn ones, that whose pairs of traits were seen least.
  template <class Draw>
  FuzzInput rarest(Draw&& draw, int among) {
    FuzzInput best;
    std::vector<std::uint64_t> best_pairs;
    double most = -1;
    for (int i = 0; i < among; ++i) {
      FuzzInput input = draw();
      std::vector<std::uint64_t> pairs = pairs_of(input);
      double rarity = 0;
      for (const std::uint64_t pair : pairs)
        if (const auto seen = seen_.find(pair); seen == seen_.end())
          rarity += 1;
        else
          rarity += 1.0 / static_cast<double>(1 + seen->second);
      rarity *= 1 + 2.0 / static_cast<double>(1 + seen_[pairs.front()]);  // no question waits for long
      if (input.question == Question::width) rarity = report_.first_failure ? 0 : rarity / 4;  // seconds
      if (*input.shape.tokens < 2 && !is_battery(input.question)) rarity /= 2;                 // says little
      if (rarity <= most) continue;
      most = rarity, best = std::move(input), best_pairs = std::move(pairs);
    }
    for (const std::uint64_t pair : best_pairs) ++seen_[pair];
    return best;
  }
  std::vector<std::uint64_t> pairs_of(const FuzzInput& input) const {
    return attest::pairs_of(traits_of(context_, input));
  }

  int hands() const {
    if (subject_.pure) return std::max(1, options_.threads);
    return subject_.fresh_costs ? options_.workers : 1;
  }
  HuntSpread spread() const {
    const bool each = !options_.crew && !subject_.pure;
    return {each ? hands() : 1, options_.crew || hands() > 1, options_.until_first_failure ? 0 : slow_lag};
  }
  // By threads of this process, each with a worker of its own where the kernel is behind a door.
  void work_off(HuntSchedule& schedule) {
    std::mutex mutex;
    std::condition_variable changed;
    bool failed = false;
    const auto work = [&](std::size_t queue) {
      std::unique_lock lock(mutex);
      while (!failed && !schedule.finished()) {
        const Index before = schedule.replies();
        const auto errand = schedule.next(queue);
        if (schedule.replies() != before) changed.notify_all();
        if (!errand) {
          if (!schedule.finished()) changed.wait(lock);
          continue;
        }
        lock.unlock();
        HuntReply reply = do_noted(options_.journal, subject_, errand->task, how_);
        lock.lock();
        schedule.answered(errand->ticket, std::move(reply));
        changed.notify_all();
      }
      changed.notify_all();
    };
    for_each_parallel(hands(), hands(), [&](Index hand) {
      const std::size_t queue = subject_.pure ? 0 : static_cast<std::size_t>(hand);
      const auto numbered = subject_.pure ? nullptr : std::make_unique<NumberedThread>(queue);
      try {
        work(queue);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = true;
        changed.notify_all();
        throw;
      }
    });
  }
  // What counts before it is learnt from.
  void note(const HuntTask& task, const HuntReply& reply) override {
    const bool of_corpus = task.kind == HuntTask::Kind::ask && task.number == 0;
    cut_ = cut_ || reply.cut, corpus_cut_ += of_corpus && reply.cut ? 1 : 0;
    if (takes_seconds(task) && task.kind == HuntTask::Kind::ask)
      longest_ = std::max(longest_, 1e-9 * static_cast<double>(reply.nanoseconds));
    if (options_.until_first_failure && task.number > 0 && reply.failed())
      first_failing_ = std::min(task.number, first_failing_.value_or(task.number));
  }

  // The failures that are looked at closely: of those that are much alike, the first. Of very wide inputs, which take minutes to
  // shrink, one, and none where a small input fails.
  std::map<std::size_t, HuntTask> settling(const std::vector<HuntTask>& tasks,
                                           const std::vector<HuntReply>& replies) override {
    std::map<std::size_t, HuntTask> close;
    for (std::size_t i = 0; i < tasks.size(); ++i)
      fails_small_ = fails_small_ || (replies[i].failed() && !is_battery(tasks[i].input.question));
    for (std::size_t i = 0; i < tasks.size() && !options_.until_first_failure; ++i) {
      if (!replies[i].done || !replies[i].failed() || (fails_small_ && is_battery(tasks[i].input.question)))
        continue;
      HuntTask task = tasks[i];
      task.kind = HuntTask::Kind::settle, task.part = replies[i].part;
      if (replies[i].single) task.input.question = *single_question(task.input.question);
      const Index most = is_battery(task.input.question) ? 1 : most_alike;
      if (++alike_[alike(task.input, task.part)] > most && task.number > 0) continue;
      close.emplace(i, std::move(task));
    }
    return close;
  }
  static std::string alike(const FuzzInput& input, const std::string& part) {
    return fmt::format("{} {}", question_name(input.question), part);
  }

  void learn(const HuntTask& task, const HuntReply& reply, const HuntReply* settled) override {
    const bool from_corpus = task.number == 0;
    const std::string file = from_corpus ? files_[corpus_learnt_++] : "";
    report_.unanswered += reply.cut ? 1 : 0;
    if (!reply.done || (!from_corpus && has_failed())) return;
    ++(from_corpus ? report_.replayed : report_.cases);
    learn(task, reply, settled, file);
  }
  void learn(const HuntTask& task, const HuntReply& reply, const HuntReply* settled,
             const std::string& file) {
    const FuzzInput& input = task.input;
    Tally& tally = report_.questions[input.question];
    ++tally.asked, tally.decided += reply.decided(), tally.failed += reply.failed();
    tally.nanoseconds += reply.nanoseconds;
    report_.decided += reply.decided();
    if (!reply.decided()) {
      const std::string kind = reply.reason.substr(0, reply.reason.find(':'));
      ++report_.undecided[kind], report_.undecided_first.try_emplace(kind, reply.reason);
    }
    if (reply.failed()) return found(task, reply, settled, file);
    if (reply.decided() && reply.reached > report_.best)
      report_.best = reply.reached, report_.best_input = input, report_.best_at = task.number;
    if (reply.decided() && !reply.cell.empty()) keep(input, reply.reached, reply.cell);
    if (options_.progress && Clock::now() - shown_ > std::chrono::milliseconds(200)) show();
  }
  void show() {
    shown_ = Clock::now();
    HuntProgress progress{report_.cases, grid_.size(), report_.findings.size(), report_.best, elapsed(), {}};
    for (const auto& [question, tally] : report_.questions)
      if (tally.failed > 0) progress.failed[question] = tally.failed;
    options_.progress(progress);
  }
  void keep(const FuzzInput& input, double score, const std::string& cell) {
    const auto [at, fresh] = grid_.try_emplace(cell, elites_.size());
    if (fresh)
      elites_.push_back({input, score});
    else if (score > elites_[at->second].score)
      elites_[at->second] = {input, score};
    else
      return;
    if (!best_elite_ || elites_[at->second].score > elites_[*best_elite_].score) best_elite_ = at->second;
  }

  void found(const HuntTask& task, const HuntReply& reply, const HuntReply* settled,
             const std::string& file) {
    if (file.empty())
      report_.first_failure = std::min(task.number, report_.first_failure.value_or(task.number));
    if (options_.until_first_failure) return;
    Finding finding;
    finding.first = task.input;
    if (reply.single) finding.first.question = *single_question(task.input.question);
    const Question asked = finding.first.question;
    const std::string words = alike(finding.first, reply.part);
    if (!settled) return count_alike(words);
    finding.shrunk = finding.first, finding.reason = reply.reason, finding.file = file;
    finding.at_case = task.number;
    finding.shrinking_finished = settled->done;
    if (settled->done) close(finding, *settled);
    finding.cause = cause_of(report_.op, asked, reply.part,
                             repeats(finding) ? settled->cell : std::string(does_not_repeat));
    last_cause_[words] = merge(std::move(finding));
    if (options_.progress) show();
  }
  // To the cause that the last one with these words turned out to be.
  void count_alike(const std::string& words) {
    const auto last = last_cause_.find(words);
    if (last == last_cause_.end()) return void(++without_cause_);
    Finding& cause = report_.findings[last->second];
    ++cause.duplicates, ++cause.unseen;
  }
  static void close(Finding& finding, const HuntReply& settled) {
    finding.first = settled.first, finding.shrunk = settled.shrunk, finding.after = settled.after;
    finding.shrinking = settled.shrinking, finding.shrinking_finished = settled.shrinking_finished;
    if (!settled.reason.empty()) finding.reason = settled.reason;
  }

  // The place of its cause.
  std::size_t merge(Finding finding) {
    std::vector<Finding>& findings = report_.findings;
    const auto known =
        std::ranges::find_if(findings, [&](const Finding& f) { return same_cause(finding, f); });
    const auto place = static_cast<std::size_t>(known - findings.begin());
    if (known == findings.end()) return findings.push_back(std::move(finding)), place;
    const Index duplicates = known->duplicates + 1, unseen = known->unseen;
    if (known->file.empty()) known->file = finding.file;
    if (repeats(finding) && !repeats(*known)) *known = std::move(finding);
    known->duplicates = duplicates, known->unseen = unseen;
    return place;
  }

  const Clock::time_point start_ = Clock::now();
  const Subject& subject_;
  const Operator& op_;
  const BatteryContext context_;
  const HuntOptions& options_;
  const HowToDo how_;
  const Grammar grammar_;
  Random random_;
  const std::vector<FuzzInput> opening_;
  std::size_t opened_ = 0, corpus_learnt_ = 0;
  std::vector<HuntTask> of_corpus_;  // until it is drawn
  Index drawn_ = 0;                  // cases
  bool cut_ = false;                 // an answer: nothing is begun any more
  Index corpus_cut_ = 0;
  double longest_ = 1;  // seconds that a question like width has taken
  std::optional<Index> first_failing_;
  HuntReport report_;
  std::map<std::string, std::size_t> grid_;  // cell -> elite
  std::vector<Elite> elites_;
  std::optional<std::size_t> best_elite_;
  std::unordered_map<std::uint64_t, Index> seen_;
  std::map<std::string, Index> alike_;
  std::map<std::string, std::size_t> last_cause_;  // by the same words
  Index without_cause_ = 0;                        // failures that were not looked at
  bool fails_small_ = false;                       // another check than width has failed
  std::vector<std::string> files_;
  Clock::time_point shown_ = Clock::now();
};

}  // namespace

HuntReport hunt(const Subject& subject, const std::vector<CorpusCase>& corpus, const HuntOptions& options) {
  return Hunt(subject, options).run(corpus);
}

}  // namespace attest
