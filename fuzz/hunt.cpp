#include "fuzz/hunt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "fuzz/features.hpp"
#include "fuzz/grammar.hpp"
#include "fuzz/shrink.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Index batch_size = 16;
constexpr int candidates = 10;
constexpr Index first_expensive = 20;  // number of the case
// Failures of one check and part that are shrunk; the others count as duplicates of the last.
constexpr Index most_alike = 3;

std::int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

struct Elite {
  FuzzInput input;
  double score = 0;
};

class Hunt {
 public:
  Hunt(const Subject& subject, const HuntOptions& options)
      : subject_(subject),
        op_(operator_named(subject.kernel.op, subject.kernel.variant)),
        context_{subject.kernel, op_, options.seed, Effort::quick},
        options_(options),
        grammar_(context_, options.objective == Objective::error),
        random_(options.seed, "hunt " + subject.kernel.name) {
    report_.kernel = subject.kernel.name, report_.op = subject.kernel.op, report_.seed = options.seed;
  }

  HuntReport run(const std::vector<CorpusCase>& corpus) {
    replay(corpus);
    while (!over()) {
      std::vector<FuzzInput> inputs;
      const Index room = options_.cases ? *options_.cases - report_.cases : batch_size;
      for (asked_ahead_ = 0; asked_ahead_ < std::min(room, batch_size); ++asked_ahead_)
        inputs.push_back(next_input());
      ask_all(inputs, false);
    }
    report_.stopped = options_.stop && options_.stop();
    report_.seconds = elapsed(), report_.cells = grid_.size();
    for (const auto& [cell, elite] : grid_) report_.grid[cell] = elites_[elite].score;
    return std::move(report_);
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool over() const {
    if (options_.stop && options_.stop()) return true;
    if (options_.until_first_failure && report_.first_failure) return true;
    if (options_.cases && report_.cases >= *options_.cases) return true;
    return options_.seconds && elapsed() >= *options_.seconds;
  }

  // Of this kernel's operator; a case of another one says nothing here.
  void replay(const std::vector<CorpusCase>& corpus) {
    std::vector<FuzzInput> inputs;
    for (const CorpusCase& one : corpus)
      if (one.input.shape.op == subject_.kernel.op && one.input.shape.variant == subject_.kernel.variant)
        inputs.push_back(one.input), files_.push_back(one.file);
    report_.replayed = static_cast<Index>(inputs.size());
    ask_all(inputs, true);
  }

  FuzzInput next_input() {
    if (options_.strategy == Strategy::plain) return grammar_.plain(random_);
    if (options_.strategy == Strategy::grammar) return grammar_.draw(random_);
    const bool climbs = options_.objective == Objective::error;
    if (!climbs && !report_.first_failure && report_.cases + asked_ahead_ == first_expensive &&
        cannot_ask(context_, Question::width).empty())
      return expensive();
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
  // What the grammar draws rarely, because it takes seconds, is asked once for certain.
  FuzzInput expensive() { return grammar_.of_battery(Question::width, random_); }
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
    std::vector<std::string> best_pairs;
    double most = -1;
    for (int i = 0; i < among; ++i) {
      FuzzInput input = draw();
      std::vector<std::string> pairs = pairs_of(input);
      double rarity = 0;
      for (const std::string& pair : pairs)
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
    for (const std::string& pair : best_pairs) ++seen_[pair];
    return best;
  }
  std::vector<std::string> pairs_of(const FuzzInput& input) const {
    const std::vector<std::string> traits = traits_of(context_, input);
    std::vector<std::string> pairs;
    for (std::size_t i = 0; i < traits.size(); ++i)
      for (std::size_t j = i; j < traits.size(); ++j)
        pairs.push_back(fmt::format("{} {} {} {}", i, traits[i], j, traits[j]));
    return pairs;
  }

  void ask_all(const std::vector<FuzzInput>& inputs, bool from_corpus) {
    std::vector<Answer> answers(inputs.size());
    std::vector<std::string> cells(inputs.size());
    std::vector<char> asked(inputs.size(), 0);
    std::vector<std::int64_t> took(inputs.size());
    const auto one = [&](Index i) {
      if (options_.stop && options_.stop()) return;
      if (!from_corpus && options_.seconds && elapsed() >= *options_.seconds) return;
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t before = thread_nanoseconds();
      answers[at] = ask(context_, inputs[at]);
      took[at] = thread_nanoseconds() - before;
      if (answers[at].asked) cells[at] = cell_of(context_, inputs[at], *answers[at].asked);
      answers[at].asked.reset();
      asked[at] = 1;
    };
    const bool at_once = subject_.pure && options_.threads > 1;
    if (at_once) for_each_parallel(static_cast<Index>(inputs.size()), options_.threads, one);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!from_corpus && over()) return;
      if (!at_once) one(static_cast<Index>(i));
      if (!asked[i] || (options_.stop && options_.stop()))
        return;  // what a signal did to a kernel is no failure
      if (!from_corpus) ++report_.cases;
      report_.questions[inputs[i].question].nanoseconds += took[i];
      learn(inputs[i], answers[i], cells[i], from_corpus ? files_[i] : "");
    }
  }

  void learn(const FuzzInput& input, const Answer& answer, const std::string& cell, const std::string& file) {
    Tally& tally = report_.questions[input.question];
    ++tally.asked, tally.decided += answer.decided(), tally.failed += answer.failed();
    report_.decided += answer.decided();
    if (!answer.decided())
      ++report_.undecided[answer.outcome.reason.substr(0, answer.outcome.reason.find(':'))];
    if (answer.failed()) return found(input, answer, file);
    if (answer.decided() && answer.reached > report_.best)
      report_.best = answer.reached, report_.best_input = input,
      report_.best_at = file.empty() ? report_.cases : 0;
    if (answer.decided() && !cell.empty()) keep(input, answer.reached, cell);
    if (options_.progress && Clock::now() - shown_ > std::chrono::milliseconds(200)) show();
  }
  void show() {
    shown_ = Clock::now();
    options_.progress({report_.cases, grid_.size(), report_.findings.size(), report_.best, elapsed()});
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

  Answer ask_kernel(const Kernel& kernel, const FuzzInput& input) const {
    return ask({kernel, op_, options_.seed, Effort::quick}, input);
  }
  Answer ask_afresh(const FuzzInput& input) const {
    const Kernel fresh = subject_.fresh();
    return ask_kernel(fresh, input);
  }

  // A failure that one call shows as well is that of one call.
  void found(const FuzzInput& input, const Answer& answer, const std::string& file) {
    if (file.empty() && !report_.first_failure) report_.first_failure = report_.cases;
    if (options_.until_first_failure) return;
    if (file.empty() && (input.question == Question::again || input.question == Question::new_data)) {
      FuzzInput single = input;
      single.question = Question::value;
      if (const Answer one = ask_afresh(single); one.failed()) return record(single, one, file);
    }
    record(input, answer, file);
  }

  void record(const FuzzInput& input, const Answer& answer, const std::string& file) {
    const std::string part = failed_part(answer),
                      alike = fmt::format("{} {}", question_name(input.question), part);
    if (++alike_[alike] > most_alike && file.empty()) {
      for (auto one = report_.findings.rbegin(); one != report_.findings.rend(); ++one)
        if (one->cause.starts_with(report_.op + ' ' + alike)) return void(++one->duplicates);
      return;
    }
    Finding finding;
    finding.first = finding.shrunk = input, finding.reason = answer.outcome.reason, finding.file = file;
    finding.at_case = file.empty() ? report_.cases : 0;
    settle(finding, part);
    merge(std::move(finding), alike);
    if (options_.progress) show();
  }

  // Asked again of a fresh kernel; if it passes there, the calls before mattered: the questions that make several.
  bool repeats(Finding& finding, std::string& part) const {
    const Answer answer = ask_afresh(finding.first);
    if (fails_in(answer, part)) return true;
    if (is_battery(finding.first.question)) return false;
    for (const Question question : {Question::new_data, Question::again}) {
      FuzzInput several = finding.first;
      several.question = question;
      if (!cannot_ask(context_, question).empty()) continue;
      const Answer after = ask_afresh(several);
      if (!after.failed()) continue;
      part = failed_part(after);
      finding.first = finding.shrunk = several;
      finding.after = "found by another check, repeated with other calls before";
      return true;
    }
    return false;
  }

  void settle(Finding& finding, std::string part) {
    if (!repeats(finding, part)) {
      finding.after = "a fresh kernel passes it: the failure depends on the calls before";
      return;
    }
    const Question question = finding.first.question;
    const bool afresh = !subject_.pure && (!subject_.fresh_costs || question == Question::again ||
                                           question == Question::new_data);
    const auto fails = [&](const FuzzInput& candidate) {
      const Answer answer = afresh ? ask_afresh(candidate) : ask_kernel(subject_.kernel, candidate);
      return fails_in(answer, part);
    };
    const Shrunk shrunk = shrink(context_, finding.first, fails, options_.most_shrinking, options_.stop);
    finding.shrinking = shrunk.asked, finding.shrinking_finished = shrunk.finished;
    const Answer last = ask_afresh(shrunk.input);
    if (!last.failed()) return;  // of a kernel that was not asked afresh
    finding.shrunk = shrunk.input, finding.reason = last.outcome.reason;
  }

  void merge(Finding finding, const std::string& alike) {
    const Built built = is_battery(finding.shrunk.question) ? Built() : build(context_, finding.shrunk);
    finding.cause = report_.op + ' ' + alike + ": " +
                    (built.problem ? cell_of(context_, finding.shrunk, *built.problem) : "");
    for (Finding& known : report_.findings)
      if (known.cause == finding.cause) {
        ++known.duplicates;
        if (known.file.empty()) known.file = finding.file;
        return;
      }
    report_.findings.push_back(std::move(finding));
  }

  const Subject& subject_;
  const Operator& op_;
  const BatteryContext context_;
  const HuntOptions& options_;
  const Grammar grammar_;
  Random random_;
  HuntReport report_;
  Index asked_ahead_ = 0;                    // drawn, not yet asked
  std::map<std::string, std::size_t> grid_;  // cell -> elite
  std::vector<Elite> elites_;
  std::optional<std::size_t> best_elite_;
  std::map<std::string, Index> seen_, alike_;
  std::vector<std::string> files_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = Clock::now();
};

}  // namespace

HuntReport hunt(const Subject& subject, const std::vector<CorpusCase>& corpus, const HuntOptions& options) {
  return Hunt(subject, options).run(corpus);
}

}  // namespace attest
