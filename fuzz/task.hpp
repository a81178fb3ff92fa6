// What a hunt gives to a thread or to another process, and what comes back. Tasks of one batch depend on nothing but
// themselves (and on what a kernel keeps between calls), so that any process may do any of them:
//   ask     one input: verdict, error/bound, cell of the grid
//   settle  a failure: asked again of a fresh kernel, shrunk with the same failing part
// As text: one line of JSON, with the input as in the corpus and numbers as hex floats.
#pragma once
#include <optional>

#include "fuzz/ask.hpp"
#include "fuzz/subject.hpp"

namespace attest {

struct HuntTask {
  enum class Kind { ask, settle } kind = Kind::ask;
  Index number = 0;  // of the case, from 1; 0: of the corpus
  FuzzInput input;
  std::string part;  // settle: what failed
};

struct HuntReply {
  bool done = false;  // false: the hunt was over before
  bool cut = false;   // and the kernel was at it: neither passed nor failed
  // Of ask.
  Verdict verdict = Verdict::not_run;
  double reached = 0;        // largest error/bound
  std::string reason, part;  // part: what failed
  bool single = false;       // of several calls, but one call fails as well: reason and part are those of one
  std::int64_t nanoseconds = 0;  // of CPU time
  // Of both: the cell of the input, or of the shrunk one.
  std::string cell;
  // Of settle, and reason (empty: as it was).
  FuzzInput first, shrunk;
  std::string after;
  Index shrinking = 0;
  bool shrinking_finished = true;

  bool failed() const { return verdict == Verdict::fail; }
  bool decided() const { return failed() || verdict == Verdict::pass; }
};

struct HowToDo {
  std::uint64_t seed = 0;
  Index most_shrinking = 0;
  bool first_failure_alone = false;  // a failure is not looked at closely
  std::function<bool()> stop = {};   // what a kernel has answered since counts no more
  std::function<bool()> late = {};   // no further question is begun, and no answer of a door is waited for
  // Of the hunt. So long each question of the corpus may take, however late it is.
  std::optional<double> seconds = {};
};
HuntReply do_task(const Subject& subject, const HuntTask& task, const HowToDo& how);

// How a kernel broke that crashed, hung or gave none of its outputs, without what it printed and without numbers, which go with
// the size of the input; empty: it did not.
std::string way_of_breaking(const std::string& reason);

std::string to_line(const HuntTask& task);
std::string to_line(const HuntReply& reply);
// BadInput for a line that is none.
HuntTask parse_task(const std::string& line);
HuntReply parse_reply(const std::string& line);

// A failure to settle, or a question that takes seconds.
bool takes_seconds(const HuntTask& task);

// Does the tasks of a schedule until it is finished; so many seconds are left until it is late, where the hunt has a time.
class HuntSchedule;
using Crew =
    std::function<void(HuntSchedule& schedule, const std::function<std::optional<double>()>& seconds_left)>;

}  // namespace attest
