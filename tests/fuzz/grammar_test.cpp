#include "fuzz/grammar.hpp"

#include <gmock/gmock.h>

#include "fuzz/subject.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// A kernel and what the grammar asks of it.
struct Asked {
  explicit Asked(const std::string& name, const std::string& limits = "")
      : kernel(find_subjects(name, "", {}).at(0).kernel),
        context{kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick} {
    if (!limits.empty()) kernel.limits = limits;
  }
  Kernel kernel;
  BatteryContext context;
};

FuzzInput spelled_integers(const Kernel& kernel, Question question) {
  FuzzInput input;
  input.question = question, input.zeros = true;
  input.shape = parse_case(kernel.op + " T=3 d=2 dv=1 seed=5");
  input.edits = {{"q", {0, 0, 0, 0}, 1}, {"k", {0, 0, 0, 0}, 1}, {"v", {0, 0, 0, 0}, 1}};
  return input;
}

TEST(Grammar, ChangesEvenAnInputOfWhichNoValueCanBeChanged) {
  const Asked asked("cpu.linear.chunk16.fp32");
  const Grammar grammar(asked.context);
  Random random(7);
  for (const Question question : all_questions)
    for (int i = 0; i < 20; ++i) {
      const FuzzInput input = spelled_integers(asked.kernel, question);
      for (const FuzzInput& changed : {grammar.mutate(input, random), grammar.mutate_values(input, random)}) {
        EXPECT_EQ(changed.shape.op, "linear");
        EXPECT_TRUE(!is_battery(question) || changed.shape.seed != input.shape.seed);
      }
    }
}

}  // namespace
}  // namespace attest
