#include "fuzz/hunt.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "fuzz/features.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "reference/forms/load_problem.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

HuntReport hunt_for(const std::string& kernel, Index cases, int threads = 1,
                    Strategy strategy = Strategy::search) {
  HuntOptions options;
  options.cases = cases, options.seed = 11, options.threads = threads, options.strategy = strategy;
  options.opening = false;
  return hunt(find_subjects(kernel, "", {}).at(0), {}, options);
}

std::string in_text(const HuntReport& r) {
  std::string text = std::to_string(r.cells) + ' ' + std::to_string(r.best) + '\n';
  for (const Finding& f : r.findings)
    text += f.cause + ' ' + std::to_string(f.at_case) + '\n' + to_text({f.first, "", "", ""}) +
            to_text({f.shrunk, "", "", ""});
  if (r.best_input) text += to_text({*r.best_input, "", "", ""});
  return text;
}

TEST(Hunt, ASeedFindsTheSameWhateverTheNumberOfThreads) {
  for (const char* name : {"cpu.hla2.chunk16.direct.fp32", "mutant.ahla.race_stale_state"}) {
    const std::string first = in_text(hunt_for(name, 20));
    EXPECT_EQ(first, in_text(hunt_for(name, 20)));
    EXPECT_EQ(first, in_text(hunt_for(name, 20, 3)));
  }
}

// A batch that takes many times as long to draw, let alone to answer.
TEST(Hunt, EndsWithItsTimeWhileItDraws) {
  HuntOptions options;
  options.seconds = 0.3, options.batch = 1 << 20;
  const auto start = std::chrono::steady_clock::now();
  hunt(find_subjects("cpu.linear.stream.fp32", "", {}).at(0), {}, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

// A kernel that is wrong, and slow from its first wrong answer on.
// A whole shrinking would take hundreds of questions of several calls each, half a minute and more.
TEST(Hunt, EndsWithItsTimeWhileItShrinks) {
  const Kernel wrong = find_subjects("mutant.hla2.decay_late", "", {}).at(0).kernel;
  Kernel slow = wrong;
  slow.run = [run = wrong.run](const Problem& problem) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return run(problem);
  };
  HuntOptions options;
  options.seconds = 1.5;
  const auto start = std::chrono::steady_clock::now();
  const HuntReport report = hunt({slow, [&] { return slow; }, false, false}, {}, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_FALSE(report.findings.back().shrinking_finished);
}

DoorOptions hostile_process(const std::string& how) {
  set_worker_program(std::getenv("ATTEST_PROGRAM"));
  DoorOptions doors;
  doors.processes = {"python3 tests/adapters/plugins/hostile.py " + how};
  return doors;
}
// With kernels of the door alone.
HuntReport hunt_process(const std::string& how, double time_limit, const HuntOptions& options,
                        const std::vector<CorpusCase>& corpus = {}) {
  DoorOptions doors = hostile_process(how);
  doors.seconds = time_limit, doors.workers = options.workers;
  const auto fresh = [doors] { return open_doors(doors).at(0); };
  return hunt({fresh(), fresh, false, true}, corpus, options);
}

// It is neither a pass nor a failure: nobody knows what it would have answered.
TEST(Hunt, AnAnswerThatIsNotThereAtTheEndIsCountedAsNotAnswered) {
  HuntOptions options;
  options.seconds = 1.5, options.seed = 1;
  const HuntReport cut = hunt_process("is_silent", 60, options);
  EXPECT_LT(cut.seconds, 10);
  EXPECT_EQ(cut.unanswered, 1);
  EXPECT_EQ(cut.cases, 0);
  EXPECT_TRUE(cut.findings.empty());
  // Within its time a kernel that hangs fails.
  options.seconds = 6;
  const HuntReport hangs = hunt_process("is_silent", 1, options);
  ASSERT_EQ(hangs.findings.size(), 1u);
  EXPECT_THAT(hangs.findings[0].reason, testing::HasSubstr("did not answer within 1 s"));
  EXPECT_GT(hangs.cases, 0);
}

TEST(Hunt, OfTheCorpusWhatFollowsAnAnswerThatIsNotThereAtTheEndIsNotAsked) {
  FuzzInput small;
  small.shape = parse_case("linear variant=masked T=2 d=1 dv=1 H=1 B=1 seed=1");
  const std::vector<CorpusCase> corpus(5, CorpusCase{small, "", "", "small.case"});
  HuntOptions options;
  options.seconds = 1;
  const HuntReport cut = hunt_process("is_silent", 60, options, corpus);
  EXPECT_EQ(cut.unanswered, 1);
  EXPECT_EQ(cut.replayed, 0);
  EXPECT_EQ(cut.not_replayed, 4);
  EXPECT_LT(cut.seconds, 10);
  // What answers is asked whole, even when it takes longer than the hunt: here 0.3 s each.
  const HuntReport whole = hunt_process("slow_correct", 60, options, corpus);
  EXPECT_GT(whole.seconds, 1.2);
  EXPECT_EQ(whole.replayed, 5);
  EXPECT_EQ(whole.not_replayed + whole.unanswered, 0);
}

// With the kernel of that name of a plug-in of the tests.
HuntReport hunt_plugin(const std::string& library, const std::string& kernel, const HuntOptions& options,
                       const std::vector<CorpusCase>& corpus = {}) {
  const std::filesystem::path program = std::getenv("ATTEST_PROGRAM");
  set_worker_program(program);
  DoorOptions doors;
  doors.plugins = {(program.parent_path() / "plugins" / (library + ".so")).string() + ":" + kernel};
  doors.workers = options.workers;
  const auto fresh = [doors] { return open_doors(doors).at(0); };
  return hunt({fresh(), fresh, false, true}, corpus, options);
}
HuntReport hunt_by_workers(const std::string& library, const std::string& kernel, int workers) {
  HuntOptions options;
  options.cases = 16, options.seed = 7, options.workers = workers, options.opening = false;
  options.most_shrinking = 40;
  return hunt_plugin(library, kernel, options);
}

TEST(Hunt, ASeedFindsTheSameOfAPlugInWhateverTheNumberOfItsWorkers) {
  const HuntReport alone = hunt_by_workers("hostile", "drops_last_token", 1);
  EXPECT_FALSE(alone.findings.empty());
  EXPECT_EQ(in_text(alone), in_text(hunt_by_workers("hostile", "drops_last_token", 3)));
}

// Its failures depend on how many calls this worker had before.
TEST(Hunt, WhatAKernelKeepsBetweenItsCallsIsTheSameAgainWithTheSameNumberOfWorkers) {
  const auto failures = [](int workers) {
    std::string text;
    const HuntReport report = hunt_by_workers("neighbours", "fails_every_fifth_call", workers);
    for (const auto& [question, tally] : report.questions)
      text += fmt::format("{} {} {}, ", question_name(question), tally.asked, tally.failed);
    return text;
  };
  const std::string once = failures(3);
  EXPECT_EQ(once, failures(3));
  EXPECT_NE(once, failures(1));
}

TEST(Hunt, WorkersAreAskedAtATime) {
  const TemporaryFolder folder;
  setenv("ATTEST_MEETING", (folder / "").c_str(), 1);
  FuzzInput small;
  small.shape = parse_case("linear variant=masked T=2 d=1 dv=1 H=1 B=1 seed=1");
  const std::vector<CorpusCase> corpus(2, CorpusCase{small, "", "", "small.case"});
  HuntOptions options;
  options.cases = 1, options.seconds = 0.5;
  const HuntReport alone = hunt_plugin("neighbours", "meets_another", options, corpus);
  EXPECT_EQ(alone.unanswered, 1);
  EXPECT_EQ(alone.replayed, 0);
  options.seconds = 60, options.workers = 2;
  const HuntReport two = hunt_plugin("neighbours", "meets_another", options, corpus);
  unsetenv("ATTEST_MEETING");
  EXPECT_EQ(two.unanswered, 0);
  EXPECT_EQ(two.replayed, 2);
}

TEST(Hunt, AKernelThatBreaksIsOneCauseForEachWayInWhichItDoes) {
  Kernel kernel = find_subjects("cpu.linear.chunk16.fp32", "", {}).at(0).kernel;
  kernel.run = [run = kernel.run](const Problem& problem) -> KernelResult {
    if (problem.tokens > 20) return {KernelStatus::failed, "the kernel was ended by SIGSEGV", {}, 0};
    if (problem.tokens > 10) return {KernelStatus::failed, "the kernel did not return within 60 s", {}, 0};
    return run(problem);
  };
  HuntOptions options;
  options.cases = 40, options.seed = 2;
  const HuntReport report = hunt({kernel, [&] { return kernel; }, true, false}, {}, options);
  EXPECT_EQ(report.findings.size(), 2u);
}

TEST(Hunt, AsksForTheDecodeStep) {
  Kernel kernel = find_subjects("cpu.linear.chunk16.fp32", "", {}).at(0).kernel;
  std::atomic<Index> calls = 0, steps = 0, continued = 0;
  kernel.run = [&, run = kernel.run](const Problem& problem) {
    const bool step = problem.tokens == 1;
    ++calls, steps += step, continued += step && problem.field("initial_state.S") != nullptr;
    return run(problem);
  };
  const Subject subject{kernel, [&] { return kernel; }, true, false};
  HuntOptions options;
  options.cases = 16, options.seed = 1;
  hunt(subject, {}, options);
  EXPECT_GE(steps, 2) << "in the opening";
  EXPECT_GE(continued, 1);
  calls = steps = continued = 0, options.opening = false, options.cases = 200;
  hunt(subject, {}, options);
  EXPECT_GT(50 * steps, calls);
  EXPECT_LT(5 * steps, calls) << "most questions are of more tokens";
  EXPECT_GE(continued, 1);
}

// A fault beyond what small inputs reach: 255 chunks of 16, then nothing is written.
TEST(Hunt, WhatFailsOnAWideInputAloneIsMadeSmallToo) {
  HuntOptions options;
  options.cases = 4, options.seed = 1;
  const Subject subject = find_subjects("mutant.hla2.width_chunk_8", "", {}).at(0);
  const HuntReport report = hunt(subject, {}, options);
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.first.question, Question::width);
  EXPECT_EQ(finding.shrunk.question, Question::lattice);
  EXPECT_EQ(*finding.shrunk.shape.tokens, 255 * 16 + 1);
  EXPECT_LE(finding.shrunk.edits.size(), 3u);
  // One token less passes.
  const BatteryContext context{subject.kernel, operator_named("hla2", "masked"), 1, Effort::quick};
  FuzzInput shorter = finding.shrunk;
  EXPECT_TRUE(ask(context, shorter).failed());
  --*shorter.shape.tokens;
  EXPECT_EQ(ask(context, shorter).outcome.verdict, Verdict::pass);
}

TEST(Hunt, WhereSmallInputsFailAWideOneIsNoCause) {
  HuntOptions options;
  options.cases = 16, options.seed = 1;
  const HuntReport report = hunt(find_subjects("mutant.hla2.cross_dropped", "", {}).at(0), {}, options);
  EXPECT_GT(report.questions.at(Question::width).failed, 0);
  for (const Finding& finding : report.findings) EXPECT_NE(finding.first.question, Question::width);
}

// Three checks fail the same two tokens, one of them on a token after another's state first.
TEST(Hunt, OneFaultThatSeveralChecksFindIsOneCause) {
  HuntOptions options;
  options.cases = 60, options.seed = 2;
  const HuntReport report = hunt(find_subjects("mutant.hla2.cross_dropped", "", {}).at(0), {}, options);
  for (const Question question : {Question::value, Question::lattice, Question::loud_lattice})
    EXPECT_GT(report.questions.at(question).failed, 0) << question_name(question);
  ASSERT_EQ(report.findings.size(), 1u);
  Index failed = 0;
  for (const auto& [question, tally] : report.questions) failed += tally.failed;
  EXPECT_EQ(report.findings[0].duplicates, failed - 1) << "every failure counts, whichever check found it";
  EXPECT_GT(failed, 9) << "more than are looked at";
}

TEST(Hunt, AnotherSeedAsksSomethingElse) {
  HuntOptions options;
  options.cases = 20;
  const Subject subject = find_subjects("cpu.hla2.chunk16.direct.fp32", "", {}).at(0);
  options.seed = 1;
  const std::string first = in_text(hunt(subject, {}, options));
  options.seed = 2;
  EXPECT_NE(first, in_text(hunt(subject, {}, options)));
}

// One mutant of several kinds, and what must be said of it.
TEST(Hunt, FindsFaultsOfManyKinds) {
  const struct {
    const char *name, *check;
  } kinds[] = {{"mutant.hla2.tail_decay_full_chunk", ""},
               {"mutant.gated_delta.exp_start_anchor", ""},
               {"mutant.hla3.packed_no_reset", ""},
               {"mutant.ahla.state_transposed", ""},
               {"mutant.log_linear_mamba2.level_clamped", ""},
               {"mutant.hla2.cache_by_address", "lattice_again"},
               {"mutant.ahla.race_order", "again"},
               {"mutant.hla2.packed_chunks_global", "separate"},
               {"mutant.hla2.nan_to_zero", "containment"},
               {"mutant.hla2.inputs_changed", ""},
               {"mutant.hla3.backward_state_not_carried", "gradient"}};
  for (const auto& kind : kinds) {
    HuntOptions options;
    options.cases = *kind.check ? 150 : 300, options.seed = 3, options.most_shrinking = 0;
    options.until_first_failure = *kind.check == 0;
    const HuntReport report = hunt(find_subjects(kind.name, "", {}).at(0), {}, options);
    ASSERT_TRUE(report.first_failure) << kind.name;
    bool by_check = *kind.check == 0;
    for (const Finding& finding : report.findings)
      by_check = by_check || question_name(finding.first.question) == kind.check;
    EXPECT_TRUE(by_check) << kind.name;
  }
}

TEST(Hunt, TheUneditedKernelsHaveNoFault) {
  for (const Kernel& kernel : unedited_kernels()) {
    HuntOptions options;
    options.cases = 20, options.seed = 4, options.opening = false;
    const HuntReport report = hunt({kernel, [&] { return kernel; }, false, false}, {}, options);
    EXPECT_TRUE(report.findings.empty()) << kernel.name << ": " << report.findings.at(0).reason << '\n'
                                         << to_text({report.findings[0].shrunk, "", "", ""});
    EXPECT_GT(report.decided, 10) << kernel.name;
  }
}

// What fails only after other calls is said to, and is not blamed on its own values.
TEST(Hunt, AFailureThatAFreshKernelDoesNotRepeatIsFoundByItsCalls) {
  const HuntReport report = hunt_for("mutant.hla2.memo_of_first_call", 20);
  ASSERT_FALSE(report.findings.empty());
  const BatteryContext context{find_subjects("mutant.hla2.memo_of_first_call", "", {}).at(0).kernel,
                               operator_named("hla2", "masked"), 1, Effort::quick};
  for (const Finding& finding : report.findings) {
    if (!repeats(finding)) continue;
    const Kernel fresh = find_subjects("mutant.hla2.memo_of_first_call", "", {}).at(0).fresh();
    EXPECT_TRUE(ask({fresh, context.op, 1, Effort::quick}, finding.shrunk).failed()) << finding.cause;
  }
}

TEST(Hunt, TheCorpusIsAskedFirst) {
  const HuntReport found = hunt_for("mutant.hla2.cross_dropped", 12);
  ASSERT_FALSE(found.findings.empty());
  std::vector<CorpusCase> corpus{{found.findings[0].shrunk, "", "", "known.case"}};
  HuntOptions options;
  options.cases = 1, options.seed = 77;
  const HuntReport again = hunt(find_subjects("mutant.hla2.cross_dropped", "", {}).at(0), corpus, options);
  EXPECT_EQ(again.replayed, 1);
  ASSERT_FALSE(again.findings.empty());
  EXPECT_EQ(again.findings[0].at_case, 0);
  EXPECT_EQ(again.findings[0].file, "known.case");
  // Of another operator it says nothing.
  EXPECT_EQ(hunt(find_subjects("cpu.ahla.stream.fp32", "", {}).at(0), corpus, options).replayed, 0);
}

TEST(Hunt, StopsWhenItIsTold) {
  HuntOptions options;
  options.cases = 100000, options.seed = 1;
  int asked = 0;
  options.stop = [&] { return ++asked > 200; };
  const HuntReport report = hunt(find_subjects("cpu.linear.stream.fp32", "", {}).at(0), {}, options);
  EXPECT_TRUE(report.stopped);
  EXPECT_LT(report.cases, 200);
}

TEST(Features, TellInputsApartByTheirPlaceInTheGrid) {
  const Kernel& kernel = *find_kernels("cpu.gated_delta.chunk16.fp32", "").at(0);
  const BatteryContext context{kernel, operator_named("gated_delta", "masked"), 1, Effort::quick};
  const auto cell = [&](const std::string& line) {
    FuzzInput input;
    input.shape = parse_case("gated_delta " + line);
    return cell_of(context, input, *build(context, input).problem);
  };
  const std::string base = cell("T=17 d=3 dv=2 H=1 B=1 gates=published seed=1");
  EXPECT_THAT(base, testing::HasSubstr("value T=C+1 one_sequence"));
  EXPECT_THAT(cell("T=31 d=3 dv=2 H=1 B=1 seed=1"), testing::HasSubstr("T=2C-1"));
  EXPECT_THAT(cell("T=17 d=3 dv=2 H=1 B=1 gates=none seed=1"), testing::HasSubstr("open"));
  EXPECT_THAT(cell("T=17 d=3 dv=2 H=1 B=1 gates=extreme seed=1"), testing::HasSubstr("mixed"));
  EXPECT_NE(base, cell("T=17 d=3 dv=2 H=1 B=1 recipe=range gates=published seed=1"));
}

// Pairs that share a number are counted as one, and a seed then draws other inputs. The numbers: SplitMix64 in Python.
TEST(Features, TraitsHaveTheSameNumbersOnEveryMachine) {
  const std::vector<std::uint64_t> pairs = pairs_of({"lattice", "nC+1", ""});
  EXPECT_EQ(pairs,
            (std::vector<std::uint64_t>{0x5bdb5a9479543881u, 0x285d03ece5ff3a2au, 0x3a33aee98c45e84eu,
                                        0x5601d0a315577752u, 0x222dbe3748c2c7b2u, 0xa246c87583c7cd1au}));
  EXPECT_NE(pairs_of({"nC+1", "lattice", ""}), pairs) << "a word in another place is another trait";
}

}  // namespace
}  // namespace attest
