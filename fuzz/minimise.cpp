#include "fuzz/minimise.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "fuzz/ask.hpp"
#include "fuzz/features.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// Of the cases found on a kernel, the one of the largest error/bound.
struct Place {
  double reached = 0;
  std::string file;
};
using Worst = std::map<std::string, Place>;

// "kill KERNEL CHECK" and "cell ...": what a case is there for.
std::set<std::string> purposes(const CorpusCase& one, const std::vector<Subject>& subjects, Worst& worst) {
  std::set<std::string> list;
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
    if (answer.failed())
      list.insert("kill " + kernel.name + ' ' + std::string(question_name(one.input.question)));
    if (answer.asked) list.insert("cell " + shape.op + ' ' + cell_of(context, one.input, *answer.asked));
  }
  if (!asked) list.insert("kernel " + one.kernel + ' ' + one.file);
  return list;
}

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
  std::vector<std::set<std::string>> all;
  for (const CorpusCase* one : order) {
    all.push_back(purposes(*one, subjects, worst));
    if (asked) asked(all.size());
  }
  std::set<std::string> reached;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const CorpusCase* one = order[i];
    const std::size_t before = reached.size();
    reached.insert(all[i].begin(), all[i].end());
    if (worst[one->kernel].file == one->file) reached.insert("worst " + one->kernel);
    (reached.size() > before ? result.kept : result.dropped).push_back(one->file);
  }
  for (const std::string& purpose : reached) {
    result.kills += purpose.starts_with("kill "), result.cells += purpose.starts_with("cell ");
  }
  return result;
}

}  // namespace attest
