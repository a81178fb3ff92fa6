#include "fuzz/minimise.hpp"

#include <algorithm>
#include <set>

#include "fuzz/ask.hpp"
#include "fuzz/features.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// "kill KERNEL CHECK" and "cell ...": what a case is there for.
std::set<std::string> purposes(const CorpusCase& one, const std::vector<Subject>& subjects) {
  std::set<std::string> list;
  bool asked = false;
  for (const Subject& subject : subjects) {
    const Case& shape = one.input.shape;
    if (subject.kernel.op != shape.op || subject.kernel.variant != shape.variant) continue;
    asked = asked || subject.kernel.name == one.kernel;
    const Kernel kernel = subject.fresh();
    const BatteryContext context{kernel, operator_named(shape.op, shape.variant), shape.seed, Effort::quick};
    const Answer answer = ask(context, one.input);
    if (answer.failed())
      list.insert("kill " + kernel.name + ' ' + std::string(question_name(one.input.question)));
    if (answer.asked) list.insert("cell " + shape.op + ' ' + cell_of(context, one.input, *answer.asked));
  }
  if (!asked) list.insert("kernel " + one.kernel + ' ' + one.file);
  return list;
}

}  // namespace

Minimised minimise(const std::vector<CorpusCase>& corpus, const std::vector<Subject>& subjects) {
  std::vector<const CorpusCase*> order;
  for (const CorpusCase& one : corpus) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const CorpusCase* a, const CorpusCase* b) {
    return to_text(*a).size() < to_text(*b).size();
  });
  Minimised result;
  std::set<std::string> reached;
  for (const CorpusCase* one : order) {
    const std::size_t before = reached.size();
    for (const std::string& purpose : purposes(*one, subjects)) reached.insert(purpose);
    (reached.size() > before ? result.kept : result.dropped).push_back(one->file);
  }
  for (const std::string& purpose : reached) {
    result.kills += purpose.starts_with("kill "), result.cells += purpose.starts_with("cell ");
  }
  return result;
}

}  // namespace attest
