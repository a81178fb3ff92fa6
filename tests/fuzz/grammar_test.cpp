#include "fuzz/grammar.hpp"

#include <gmock/gmock.h>

#include <map>

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

TEST(Grammar, DrawsWithinTheLimitsOfTheKernel) {
  for (const char* limits : {"h=16", "b=3", "t=64..100", "d=4..8 dv=4 t=17", "h=3,6 b=2..4"}) {
    const Asked asked("cpu.linear.chunk16.fp32", limits);
    const Grammar grammar(asked.context);
    Random random(3);
    for (int i = 0; i < 300; ++i) {
      const FuzzInput drawn = i % 7 == 0 ? grammar.few_roundings(random) : grammar.draw(random);
      for (const FuzzInput& input : {drawn, grammar.mutate(drawn, random)})
        if (!is_battery(input.question)) {
          EXPECT_EQ(outside_limits(limits, input.shape), "") << to_text(input.shape);
        }
    }
  }
}

TEST(Grammar, DrawsWhatIsRareAndKeepsItSmall) {
  const Asked asked("cpu.gated_delta.chunk16.fp32");
  const Grammar grammar(asked.context);
  Random random(9);
  std::map<std::string, int> seen;
  const auto see = [&](const std::string& what, bool there) { seen[what] += there; };
  for (int i = 0; i < 4000; ++i) {
    const FuzzInput input = grammar.draw(random);
    const Case& c = input.shape;
    for (const Index d : {48, 64, 65, 128}) see("d" + std::to_string(d), c.key_dim == d);
    for (const Index d : {64, 65, 128, 129}) see("dv" + std::to_string(d), c.value_dim == d);
    see("three", c.heads == 3 * c.heads_q || c.heads == 3 * c.heads_k || c.heads == 3 * c.heads_v);
    see("sequences", c.packed.size() > 16);
    see("tokens", *c.tokens >= 400);
    see("linear gates", input.linear_gates);
  }
  for (const auto& [what, times] : seen) EXPECT_GT(times, 0) << what;
}

TEST(Grammar, LeavesALimitThatAdmitsNothingSmallToTheKernelsRefusal) {
  const Asked asked("cpu.linear.chunk16.fp32", "t=100000..200000");
  Random random(3);
  const FuzzInput input = Grammar(asked.context).draw(random);
  EXPECT_LT(*input.shape.tokens, 10000);
}

}  // namespace
}  // namespace attest
