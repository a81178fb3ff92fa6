#include "fuzz/wide.hpp"

#include "gpu_checks/battery/width.hpp"

namespace attest {
namespace {

FuzzInput question_of(const WideInput& wide, Index before) {
  FuzzInput input;
  input.question = Question::lattice, input.shape = wide.shape, input.zeros = true;
  input.shape.options = wide.problem.options;
  input.shape.tokens = *wide.shape.tokens - before, input.before = before;
  for (const auto& [name, tensor] : wide.problem.fields) {
    const auto first = std::ssize(input.edits);
    spell(tensor, name, input.edits);
    if (before == 0 || name == "decay") continue;
    for (auto edit = input.edits.begin() + first; edit != input.edits.end(); ++edit)
      if (Index& token = edit->index[1]; token < before)
        edit->field = "before." + name;
      else
        token -= before;
  }
  return input;
}

}  // namespace

std::vector<FuzzInput> wide_questions(const BatteryContext& context) {
  std::vector<FuzzInput> questions;
  for (const WideInput& wide : wide_inputs(context)) {
    questions.push_back(question_of(wide, 0));
    if (wide.cut) questions.push_back(question_of(wide, *wide.cut));
  }
  return questions;
}

}  // namespace attest
