#include "fuzz/journal.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "fuzz/hunt.hpp"
#include "reference/tensor/bad_input.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

HuntIdentity identity() { return {"attest fuzz", 7, "1", "x", {"a.case"}}; }

HuntTask task_of(Index number) {
  HuntTask task;
  task.number = number, task.input.shape.op = "hla2", task.input.shape.tokens = 3;
  return task;
}

TEST(HuntJournals, KnowWhatWasAnsweredAndWhatWasBegunAlone) {
  const TemporaryFolder folder;
  HuntReply reply;
  reply.done = true, reply.verdict = Verdict::pass, reply.reached = 0.1, reply.cell = "cell";
  for (const int rank : {0, 2}) {
    HuntJournal journal(folder / "run", identity());
    journal.write_as(rank);
    journal.begin("k", task_of(rank + 1)), journal.answer("k", task_of(rank + 1), reply);
    journal.begin("k", task_of(rank + 2));
  }
  std::ofstream(folder / "run" / "journal.2.jsonl", std::ios::app) << "{\"answer\":\"k\",\"tas";  // torn
  HuntJournal after(folder / "run", identity());
  after.take_up();
  EXPECT_EQ(HuntJournal::identity_in(folder / "run")->seed, 7u);
  EXPECT_THAT(HuntJournal::identity_in(folder / "run")->corpus, testing::ElementsAre("a.case"));
  EXPECT_THAT(after.answered("k"), testing::ElementsAre(1, 3));
  ASSERT_TRUE(after.known("k", task_of(3)));
  EXPECT_EQ(after.known("k", task_of(3))->reached, 0.1);
  EXPECT_FALSE(after.known("k", task_of(2)));
  EXPECT_FALSE(after.known("other", task_of(3)));
  ASSERT_EQ(after.open().size(), 2u);
  EXPECT_EQ(after.open()[1].number, 4);
  EXPECT_EQ(after.open()[1].rank, 2);
  // Goes on after the torn line.
  after.write_as(2);
  after.answer("k", task_of(4), reply);
  HuntJournal last(folder / "run", identity());
  EXPECT_THROW(last.take_up(), BadInput) << "another one writes to it";
}

TEST(HuntJournals, RefuseAnotherHuntAndLinesThatCannotBeRead) {
  const TemporaryFolder folder;
  { HuntJournal(folder / "run", identity()).write_as(0); }
  const auto why = [&](const HuntIdentity& one) -> std::string {
    try {
      HuntJournal(folder / "run", one).take_up();
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why(identity()), "");
  HuntIdentity other = identity();
  other.seed = 8;
  EXPECT_THAT(why(other), testing::HasSubstr("journal.0.jsonl: is of seed 7, not 8"));
  other = identity(), other.version = "2";
  EXPECT_THAT(why(other), testing::HasSubstr("is of attest 1"));
  other = identity(), other.kernels_sha256 = "y";
  EXPECT_THAT(why(other), testing::HasSubstr("other kernels"));
  for (const char* line :
       {"x", "[]", "{\"begin\":\"k\"}", "{\"answer\":\"k\",\"key\":\"a\",\"task\":\"ask\",\"number\":1}",
        "{\"answer\":\"k\",\"key\":\"a\",\"task\":\"ask\",\"number\":1,\"reply\":\"{}\"}"}) {
    std::filesystem::remove(folder / "run" / "journal.0.jsonl");
    { HuntJournal(folder / "run", identity()).write_as(0); }
    std::ofstream(folder / "run" / "journal.0.jsonl", std::ios::app) << line << '\n';
    EXPECT_THAT(why(identity()), testing::Not(testing::IsEmpty())) << line;
  }
}

// Answered before, a case is not asked again, and the hunt goes the same way.
TEST(HuntJournals, AHuntGoesOnAsIfItHadNotEnded) {
  const TemporaryFolder folder;
  const Subject subject = find_subjects("mutant.hla2.cross_dropped", "", {}).at(0);
  HuntOptions options;
  options.cases = 40, options.seed = 11;
  const HuntReport whole = hunt(subject, {}, options);
  HuntJournal first(folder / "run", identity());
  first.write_as(0);
  options.journal = &first, options.cases = 23;
  hunt(subject, {}, options);
  options.cases = 40;
  Index asked = 0;
  Subject counted = subject;
  counted.kernel.run = [&](const Problem& problem) { return ++asked, subject.kernel.run(problem); };
  HuntOptions plain;
  plain.cases = 40, plain.seed = 11;
  hunt(counted, {}, plain);
  const Index in_whole = asked;
  HuntJournal second(folder / "other", identity());
  std::filesystem::create_directories(folder / "other");
  std::filesystem::copy(folder / "run" / "journal.0.jsonl", folder / "other" / "journal.0.jsonl");
  second.take_up();
  second.write_as(1);
  options.journal = &second, asked = 0;
  const HuntReport resumed = hunt(counted, {}, options);
  EXPECT_LT(asked, in_whole * 3 / 4);
  EXPECT_GT(asked, 0);
  EXPECT_EQ(resumed.cases, 40);
  EXPECT_EQ(resumed.cells, whole.cells);
  EXPECT_EQ(resumed.best, whole.best);
  ASSERT_EQ(resumed.findings.size(), whole.findings.size());
  for (std::size_t i = 0; i < whole.findings.size(); ++i) {
    EXPECT_EQ(resumed.findings[i].cause, whole.findings[i].cause);
    EXPECT_EQ(resumed.findings[i].duplicates, whole.findings[i].duplicates);
    EXPECT_EQ(to_text({resumed.findings[i].shrunk, "", "", ""}),
              to_text({whole.findings[i].shrunk, "", "", ""}));
  }
}

// Answers that are known are taken by whichever worker comes to them, and give the others something to do.
TEST(HuntJournals, AHuntOfSeveralWorkersGoesOnWhateverIsKnown) {
  const TemporaryFolder folder;
  Subject subject = find_subjects("cpu.linear.stream.fp32", "", {}).at(0);
  subject.pure = false, subject.fresh_costs = true;  // as behind a door
  HuntOptions options;
  options.seed = 3, options.workers = 2;
  for (const Index known : {1, 20, 75, 150, 160}) {
    SCOPED_TRACE(known);
    const auto run = folder / std::to_string(known);
    {
      HuntJournal journal(run, identity());
      journal.write_as(0);
      options.journal = &journal, options.cases = known;
      hunt(subject, {}, options);
    }
    HuntJournal journal(run, identity());
    journal.take_up();
    journal.write_as(1);
    options.journal = &journal, options.cases = 160;
    auto resumed = std::async(std::launch::async, [&] { return hunt(subject, {}, options).cases; });
    if (resumed.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      std::cerr << "the workers wait for one another\n";
      std::abort();  // which nothing else ends
    }
    EXPECT_EQ(resumed.get(), 160);
  }
}

}  // namespace
}  // namespace attest
