#include "fuzz/minimise.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "fuzz/ask.hpp"
#include "fuzz/features.hpp"
#include "fuzz/finding.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// Of the cases found on a kernel, the one of the largest error/bound.
struct Place {
  double reached = 0;
  std::string file;
};
using Worst = std::map<std::string, Place>;

// "cell ...", "kernel ..." and how kernels fail: what a case is there for.
struct Purposes {
  std::set<std::string> list;
  std::map<std::string, Finding> kills;  // by kernel
};

Finding kill_of(const CorpusCase& one, const Answer& answer, const std::string& cell) {
  Finding kill;
  kill.cause = cause_of(one.input.shape.op, one.input.question, failed_part(answer), cell);
  kill.shrunk = one.input, kill.reason = answer.outcome.reason;
  return kill;
}

Purposes purposes(const CorpusCase& one, const std::vector<Subject>& subjects, Worst& worst) {
  Purposes purposes;
  bool asked = false;
  for (const Subject& subject : subjects) {
    const Case& shape = one.input.shape;
    if (subject.kernel.op != shape.op || subject.kernel.variant != shape.variant) continue;
    const bool own = subject.kernel.name == one.kernel;
    asked = asked || own;
    const Kernel kernel = subject.fresh();
    const BatteryContext context{kernel, operator_named(shape.op, shape.variant), shape.seed, Effort::quick};
    const Answer answer = ask(context, one.input);
    if (Place& place = worst[one.kernel]; own && answer.decided() && answer.reached > place.reached)
      place = {answer.reached, one.file};
    const std::string cell = answer.asked ? cell_of(context, one.input, *answer.asked) : "";
    if (answer.failed()) purposes.kills[kernel.name] = kill_of(one, answer, cell);
    if (answer.asked) purposes.list.insert("cell " + shape.op + ' ' + cell);
  }
  if (!asked) purposes.list.insert("kernel " + one.kernel + ' ' + one.file);
  return purposes;
}

// By kernel, one failure of every cause.
class Kills {
 public:
  // Whether any of them has a cause that was not there.
  bool add(std::map<std::string, Finding> kills) {
    const std::size_t before = count_;
    for (auto& [kernel, kill] : kills) {
      std::vector<Finding>& known = known_[kernel];
      if (std::ranges::any_of(known, [&](const Finding& other) { return same_cause(kill, other); })) continue;
      known.push_back(std::move(kill)), ++count_;
    }
    return count_ > before;
  }
  std::size_t count() const { return count_; }

 private:
  std::map<std::string, std::vector<Finding>> known_;
  std::size_t count_ = 0;
};

}  // namespace

Minimised minimise(const std::vector<CorpusCase>& corpus, const std::vector<Subject>& subjects,
                   const std::function<void(std::size_t)>& asked) {
  std::vector<const CorpusCase*> order;
  for (const CorpusCase& one : corpus) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const CorpusCase* a, const CorpusCase* b) {
    return to_text(*a).size() < to_text(*b).size();
  });
  Minimised result;
  Worst worst;
  std::vector<Purposes> all;
  for (const CorpusCase* one : order) {
    all.push_back(purposes(*one, subjects, worst));
    if (asked) asked(all.size());
  }
  std::set<std::string> reached;
  Kills kills;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const CorpusCase* one = order[i];
    const std::size_t before = reached.size();
    reached.insert(all[i].list.begin(), all[i].list.end());
    if (worst[one->kernel].file == one->file) reached.insert("worst " + one->kernel);
    const bool kills_more = kills.add(std::move(all[i].kills));
    (reached.size() > before || kills_more ? result.kept : result.dropped).push_back(one->file);
  }
  result.kills = kills.count();
  for (const std::string& purpose : reached) result.cells += purpose.starts_with("cell ");
  return result;
}

}  // namespace attest
