#include "fuzz/schedule.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "reference/cases/random.hpp"

namespace attest {
namespace {

// Notes what the schedule asks of it. Every fifth task fails, every seventh takes seconds.
class Noted : public HuntSteps {
 public:
  explicit Noted(Index batches) : batches_(batches) {}

  std::vector<HuntTask> draw() override {
    log.push_back("draw");
    std::vector<HuntTask> tasks;
    for (int i = 0; drawn_ < 8 * batches_ && i < 8; ++i) {
      HuntTask task;
      task.number = ++drawn_;
      task.input.question = task.number % 7 == 0 ? Question::width : Question::value;
      Case& shape = task.input.shape;
      shape.tokens = 1 + task.number % 3, shape.batch = shape.heads = shape.key_dim = shape.value_dim = 1;
      tasks.push_back(task);
    }
    return tasks;
  }
  std::map<std::size_t, HuntTask> settling(const std::vector<HuntTask>& tasks,
                                           const std::vector<HuntReply>& replies) override {
    std::map<std::size_t, HuntTask> close;
    for (std::size_t i = 0; i < tasks.size(); ++i)
      if (replies[i].failed()) {
        close[i] = tasks[i], close[i].kind = HuntTask::Kind::settle;
        log.push_back(fmt::format("settle {}", tasks[i].number));
      }
    return close;
  }
  void learn(const HuntTask& task, const HuntReply& reply, const HuntReply* settled) override {
    log.push_back(fmt::format("learn {} {} {}", task.number, reply.done, settled ? settled->done : false));
  }
  std::optional<HuntReply> known(const HuntTask& task) const override {
    return task.number % 11 == 0 ? std::optional(reply_to(task)) : std::nullopt;
  }
  bool over(const HuntTask&) const override { return ended; }
  void note(const HuntTask&, const HuntReply& reply) override { failures += reply.failed() ? 1 : 0; }

  static HuntReply reply_to(const HuntTask& task) {
    HuntReply reply;
    reply.done = true, reply.verdict = task.number % 5 == 0 ? Verdict::fail : Verdict::pass;
    return reply;
  }

  std::vector<std::string> log;
  bool ended = false;
  Index failures = 0;

 private:
  const Index batches_;
  Index drawn_ = 0;
};

struct Ran {
  std::vector<std::string> log;
  std::vector<std::vector<std::string>> queues;  // the tasks of each, in the order in which they were given
  std::size_t most_out = 0;
  Index widest = 0;  // the largest distance of two numbers that were out at once
};

// Hands that answer in any order.
Ran run(int queues, std::size_t hands, std::uint64_t seed) {
  Noted noted(20);
  HuntSchedule schedule(noted, {queues, true, 3});
  Random random(seed, "hands");
  Ran ran;
  ran.queues.resize(static_cast<std::size_t>(queues));
  std::map<std::size_t, HuntTask> out;
  std::multiset<Index> numbers;
  while (!schedule.finished()) {
    const std::size_t queue = random.below(ran.queues.size());
    std::optional<HuntSchedule::Errand> errand;
    if (out.size() < hands && !random.one_in(3)) errand = schedule.next(queue);
    if (errand) {
      ran.queues[queue].push_back(fmt::format("{} {}", errand->task.number, takes_seconds(errand->task)));
      numbers.insert(errand->task.number);
      ran.widest = std::max(ran.widest, *numbers.rbegin() - *numbers.begin());
      out.emplace(errand->ticket, errand->task);
      ran.most_out = std::max(ran.most_out, out.size());
    } else if (!out.empty()) {
      const auto one = std::next(out.begin(), static_cast<std::ptrdiff_t>(random.below(out.size())));
      numbers.erase(numbers.find(one->second.number));
      schedule.answered(one->first, Noted::reply_to(one->second));
      out.erase(one);
    }
  }
  schedule.close();
  ran.log = noted.log;
  return ran;
}

TEST(HuntSchedule, DrawsSettlesAndLearnsAlikeWhateverTheHandsDo) {
  const Ran one = run(1, 1, 0);
  EXPECT_EQ(std::ranges::count_if(one.log, [](const std::string& line) { return line[0] == 'l'; }), 160);
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    const Ran many = run(1, 1 + seed % 20, seed);
    ASSERT_EQ(many.log, one.log) << seed;
    ASSERT_EQ(many.queues, one.queues) << seed;
  }
}

TEST(HuntSchedule, GivesEachWorkerItsTasksInOneOrder) {
  const Ran one = run(3, 1, 0);
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    const Ran many = run(3, 1 + seed % 20, seed);
    ASSERT_EQ(many.log, one.log) << seed;
    ASSERT_EQ(many.queues, one.queues) << seed;
  }
  EXPECT_NE(run(2, 1, 0).queues, one.queues);
}

// More than a batch is out at once, and a question that takes seconds while its batch and the next are learnt from.
TEST(HuntSchedule, DoesNotWaitForTheLastOfABatch) {
  Ran most;
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    const Ran ran = run(1, 20, seed);
    most.most_out = std::max(most.most_out, ran.most_out), most.widest = std::max(most.widest, ran.widest);
  }
  EXPECT_GT(most.most_out, 8u);
  EXPECT_GT(most.widest, 16);
}

TEST(HuntSchedule, LearnsFromWhatIsSlowBeforeTheBatchThatIsDue) {
  const std::vector<std::string> log = run(1, 4, 1).log;
  const auto place = [&](Index number) {
    return std::ranges::find(log, fmt::format("learn {} true {}", number, number % 5 == 0)) - log.begin();
  };
  // Number 7 is of batch 0: before batch 3, which begins with 25, and after batch 2.
  EXPECT_LT(place(24), place(7));
  EXPECT_LT(place(7), place(25));
  EXPECT_LT(place(154), static_cast<std::ptrdiff_t>(log.size()));  // those of the last batches too
}

TEST(HuntSchedule, LearnsFromWhatWasAnsweredWhenItIsOver) {
  Noted noted(20);
  HuntSchedule schedule(noted, {1, false, 3});
  std::vector<HuntSchedule::Errand> out;
  for (int i = 0; i < 6; ++i) out.push_back(*schedule.next());
  schedule.answered(out[4].ticket, Noted::reply_to(out[4].task));  // 5 fails
  schedule.answered(out[1].ticket, Noted::reply_to(out[1].task));
  noted.ended = true;
  EXPECT_FALSE(schedule.next().has_value());
  EXPECT_FALSE(schedule.finished());
  for (const int i : {0, 2, 3, 5}) schedule.answered(out[static_cast<std::size_t>(i)].ticket, {});
  EXPECT_TRUE(schedule.finished());
  schedule.close();
  EXPECT_THAT(noted.log, testing::IsSupersetOf({"learn 2 true false", "learn 5 true false", "settle 5",
                                                "learn 1 false false", "learn 16 false false"}));
}

}  // namespace
}  // namespace attest
