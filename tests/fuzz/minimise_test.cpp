#include "fuzz/minimise.hpp"

#include <gtest/gtest.h>

#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// Ones at the first token. All of them lie in one cell.
CorpusCase ones_in(Index tokens) {
  CorpusCase one;
  one.input.shape = parse_case("linear variant=masked T=2 d=1 dv=1 H=1 B=1 recipe=uniform seed=0");
  one.input.shape.tokens = tokens, one.input.zeros = true;
  for (const char* field : {"q", "k", "v"}) one.input.edits.push_back({field, {0, 0, 0, 0}, 1});
  one.kernel = "wrong", one.file = std::to_string(tokens) + ".case";
  return one;
}

// It fails o, but at T = 4 the final states.
TEST(Minimise, KeepsACaseOfEveryCauseAsAHuntTellsThemApart) {
  Kernel wrong = find_subjects("cpu.linear.chunk16.fp32", "", {}).at(0).kernel;
  wrong.name = "wrong";
  wrong.run = [run = wrong.run](const Problem& problem) {
    KernelResult result = run(problem);
    result.outputs.at(problem.tokens == 4 ? "final_state.S" : "o").data.at(0) += 1;
    return result;
  };
  const std::vector<Subject> subjects{{wrong, [&] { return wrong; }, true, false}};
  const Minimised thin = minimise({ones_in(3), ones_in(4), ones_in(5)}, subjects);
  EXPECT_EQ(thin.kept, (std::vector<std::string>{"3.case", "4.case"}));
  EXPECT_EQ(thin.dropped, std::vector<std::string>{"5.case"});
  EXPECT_EQ(thin.kills, 2u);
  EXPECT_EQ(thin.cells, 1u);
}

}  // namespace
}  // namespace attest
