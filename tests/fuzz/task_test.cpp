#include "fuzz/task.hpp"

#include <gmock/gmock.h>

#include "fuzz/grammar.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

TEST(HuntTasks, AndRepliesAreTheSameAfterBeingText) {
  const Subject subject = find_subjects("mutant.hla2.decay_late", "", {}).at(0);
  const BatteryContext context{subject.kernel, operator_named("hla2", "masked"), 3, Effort::quick};
  const Grammar grammar(context);
  Random random(3, "tasks");
  Index failed = 0;
  for (Index number = 1; number <= 30; ++number) {
    HuntTask task{HuntTask::Kind::ask, number, grammar.mutate_values(grammar.draw(random), random), ""};
    EXPECT_EQ(to_line(parse_task(to_line(task))), to_line(task));
    const HowToDo how{3, 50, false, {}, {}};
    const HuntReply reply = do_task(subject, task, how);
    const HuntReply read = do_task(subject, parse_task(to_line(task)), how);
    EXPECT_EQ(read.reached, reply.reached);
    EXPECT_EQ(read.reason, reply.reason);
    EXPECT_EQ(to_line(parse_reply(to_line(reply))), to_line(reply));
    if (!reply.failed() || ++failed > 3) continue;
    task.kind = HuntTask::Kind::settle, task.part = reply.part;
    const HuntReply settled = do_task(subject, task, how);
    const HuntReply again = do_task(subject, parse_task(to_line(task)), how);
    EXPECT_EQ(to_line(parse_reply(to_line(settled))), to_line(again));
  }
  EXPECT_GT(failed, 0);
}

// What cannot be written could neither be handed to another process nor kept in a corpus.
TEST(HuntTasks, OfEveryInputThatTheGrammarDrawsCanBeText) {
  for (const char* name :
       {"cpu.hla2.chunk16.direct.fp32", "cpu.gated_delta.chunk16.fp32", "cpu.linear.stream.fp32"}) {
    const Subject subject = find_subjects(name, "", {}).at(0);
    const BatteryContext context{subject.kernel, operator_named(subject.kernel.op, subject.kernel.variant), 3,
                                 Effort::quick};
    const Grammar grammar(context);
    Random random(3, "texts");
    for (Index number = 1; number <= 700; ++number) {
      FuzzInput input = number % 7 == 0 ? grammar.plain(random) : grammar.draw(random);
      if (number % 3 == 0) input = grammar.mutate(input, random);
      const std::string line = to_line(HuntTask{HuntTask::Kind::ask, number, input, ""});
      ASSERT_NO_THROW(EXPECT_EQ(to_line(parse_task(line)), line)) << line;
    }
  }
}

TEST(HuntTasks, RefuseWhatIsNone) {
  for (const char* line : {"", "{}", "[1]", "{\"task\":\"ask\",\"number\":1,\"input\":\"x\"}",
                           "{\"verdict\":\"fine\",\"reached\":\"0x0p+0\",\"ns\":1}"}) {
    EXPECT_THROW(parse_task(line), BadInput) << line;
    EXPECT_THROW(parse_reply(line), BadInput) << line;
  }
}

// What is asked while it is shrunk keeps o wrong; a fresh one breaks on few tokens, which is another fault: it is shrunk
// again, by fresh ones.
TEST(HuntTasks, WhatAFreshKernelDoesNotRepeatIsShrunkByFreshOnes) {
  const Kernel right = find_subjects("cpu.linear.chunk16.fp32", "", {}).at(0).kernel;
  const auto wrong = [right](Index breaks_below) {
    Kernel kernel = right;
    kernel.run = [run = right.run, breaks_below](const Problem& problem) {
      if (problem.tokens < breaks_below) return KernelResult{KernelStatus::failed, "the kernel broke", {}, 0};
      KernelResult result = run(problem);
      for (double& x : result.outputs.at("o").data) x += 1;
      return result;
    };
    return kernel;
  };
  HuntTask task{HuntTask::Kind::settle, 1, {}, "o"};
  task.input.shape = parse_case("linear variant=masked T=9 d=2 dv=2 H=1 B=1 recipe=gaussian seed=1");
  for (const Index breaks_below : {4, 0}) {
    const Subject subject{wrong(0), [&] { return wrong(breaks_below); }, false, true};
    const HuntReply reply = do_task(subject, task, {1, 100, false, {}, {}});
    EXPECT_EQ(reply.shrunk.shape.tokens, breaks_below > 0 ? 4 : 1);
    EXPECT_EQ(reply.after, "");
    EXPECT_TRUE(reply.shrinking_finished);
  }
}

// Fresh ones that fail by turns: the first, then none on what it was shrunk to.
TEST(HuntTasks, AnInputThatIsNotShrunkSaysSo) {
  const Kernel right = find_subjects("cpu.linear.chunk16.fp32", "", {}).at(0).kernel;
  const auto wrong_by = [right](double error) {
    Kernel kernel = right;
    kernel.run = [run = right.run, error](const Problem& problem) {
      KernelResult result = run(problem);
      for (double& x : result.outputs.at("o").data) x += error;
      return result;
    };
    return kernel;
  };
  HuntTask task{HuntTask::Kind::settle, 1, {}, "o"};
  task.input.shape = parse_case("linear variant=masked T=9 d=2 dv=2 H=1 B=1 recipe=gaussian seed=1");
  for (const bool by_turns : {true, false}) {
    Index started = 0;
    const auto fresh = [&] { return wrong_by(by_turns && ++started > 1 ? 0 : 1); };
    const HuntReply reply = do_task({wrong_by(1), fresh, false, true}, task, {1, 100, false, {}, {}});
    EXPECT_EQ(reply.shrunk.shape.tokens, by_turns ? 9 : 1);
    EXPECT_EQ(reply.after.starts_with("not shrunk: "), by_turns) << reply.after;
  }
}

// Under load a process may not have printed anything yet.
TEST(HuntTasks, AKernelBreaksInOneWayWhateverItPrintedAndWhateverTheInput) {
  const std::string way = "the kernel failed: the process did not answer within ";
  for (const char* rest :
       {"", "; it printed: \"compiling ...\"", " (T=3 d=1)", "; it printed: \"x\" (T=3 d=1)"})
    EXPECT_EQ(way_of_breaking("on 1 of 2 inputs: " + way + "1 s" + rest), way + "N s") << rest;
  const auto shape = [](const std::string& rest) {
    return way_of_breaking("the kernel failed: tensor \"o\": " + rest);
  };
  EXPECT_EQ(shape("shape [2, 49, 4, 64], expected [2, 49, 4, 65]"),
            shape("shape [8, 8, 63], expected [8, 8, 64]"));
  EXPECT_NE(shape("dtype F64, expected F32"), shape("dtype F16, expected F32"));
  EXPECT_EQ(way_of_breaking("1 of 3 elements differ (T=3)"), "");
}

}  // namespace
}  // namespace attest
