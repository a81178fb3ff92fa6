// The hunt: asks one kernel about very many inputs and keeps those that matter.
//   search   a grid of cells (features.hpp) that keeps in each the input of the largest error/bound (Mouret and Clune 2015,
//            "Illuminating search spaces by mapping elites"). A new input is a fresh one, the rarest by pairs of traits among
//            several drawn (adaptive random testing: Chen, Leung and Mak 2004), or a kept one with a few changes.
//   grammar  fresh inputs of the same grammar, no memory; plain: the yardstick (grammar.hpp)
// A failure is asked again of a fresh kernel, shrunk with the same failing check, and merged with failures of one cause:
// operator, check, failed part, and the cell of the shrunk input. Inputs are drawn in batches and learnt from in their order
// (schedule.hpp), so that a seed finds the same whatever the number of threads or processes.
// Which worker of a door asks which of them depends on the inputs alone: what a kernel keeps between its calls is the same again
// with the same number of workers.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "fuzz/finding.hpp"
#include "fuzz/journal.hpp"
#include "fuzz/subject.hpp"
#include "fuzz/task.hpp"

namespace attest {

enum class Strategy { search, grammar, plain };
enum class Objective { fail, error };

struct HuntProgress {
  Index cases = 0;
  std::size_t cells = 0, findings = 0;
  double best = 0, seconds = 0;
  std::map<Question, Index> failed;  // by check, where any has
};

struct HuntOptions {
  Strategy strategy = Strategy::search;
  Objective objective = Objective::fail;
  std::optional<Index> cases;  // one of the two at least
  std::optional<double> seconds;
  std::uint64_t seed = 0;
  int threads = 1;   // of a registered kernel
  int workers = 1;   // of a door that was opened with as many
  Index batch = 16;  // inputs drawn at once: what one of them teaches counts from the next batch but one on
  Index most_shrinking = 4000;  // questions for one failure
  bool opening = true;          // of the search for failures: first the inputs of opening.hpp
  bool until_first_failure = false;
  std::function<bool()> stop = {};
  Crew crew = {};                  // other than empty: does the tasks in the place of threads
  HuntJournal* journal = nullptr;  // knows what was answered before
  std::function<void(const HuntProgress&)> progress = {};
};

struct Tally {
  Index asked = 0, decided = 0, failed = 0;
  std::int64_t nanoseconds = 0;  // of CPU time, without what a door's process takes
  Tally& operator+=(const Tally& other) {
    asked += other.asked, decided += other.decided, failed += other.failed, nanoseconds += other.nanoseconds;
    return *this;
  }
};

struct HuntReport {
  std::string kernel, op;
  std::string source;  // what opens its door, as on the command line; empty: registered
  std::uint64_t seed = 0;
  Index cases = 0, decided = 0, replayed = 0;
  Index unanswered =
      0;  // begun, and cut by the end of the hunt: neither passed nor failed, and among no other count
  Index not_replayed = 0;  // of the corpus, after one that was cut
  double seconds = 0;
  std::size_t cells = 0;
  std::map<std::string, double> grid;  // cell (features.hpp) -> largest error/bound
  double best = 0;                     // largest error/bound of an input that passed
  std::optional<FuzzInput> best_input;
  Index best_at = 0;
  std::optional<Index> first_failure;  // number of the case
  std::map<Question, Tally> questions;
  std::map<std::string, Index> undecided;              // by reason, up to its colon
  std::map<std::string, std::string> undecided_first;  // the whole of the first of them
  std::vector<Finding> findings;
  bool stopped = false;

  // Of all cases: pass where none failed and some were decided, not run where the kernel took none.
  Verdict verdict() const {
    const auto refused = undecided.find("unsupported");
    const Index none = refused == undecided.end() ? 0 : refused->second;
    if (!findings.empty()) return Verdict::fail;
    if (decided > 0) return Verdict::pass;
    return unanswered == 0 && none == cases + replayed ? Verdict::not_run : Verdict::undecided;
  }
};

HuntReport hunt(const Subject& subject, const std::vector<CorpusCase>& corpus, const HuntOptions& options);

}  // namespace attest
