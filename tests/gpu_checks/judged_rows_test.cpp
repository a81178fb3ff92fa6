// Long sequences: a choice of rows is held to its bound, and the verdict says so.
#include "gpu_checks/judged_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/check.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

struct LittleWork {
  LittleWork() { set_bound_work(1); }
  ~LittleWork() { set_bound_work(usual_bound_work); }
};

Checked judged(const char* name, const std::string& line,
               const std::function<void(std::vector<double>&)>& change = {}) {
  Kernel kernel = *find_kernels(name, "").at(0);
  kernel.run = [run = kernel.run, change](const Problem& problem) {
    KernelResult result = run(problem);
    if (change) change(result.outputs["o"].data);
    return result;
  };
  const Case c = parse_case(line);
  return check_one(kernel, c, problem_of(c, operator_named(c.op, c.variant).declaration()));
}

std::vector<Index> rows_of(const Operator& op, Index tokens, Index chunk = 16) {
  return *judged_rows(op.declaration(), {tokens, 4, 4}, {Form::chunk, chunk, 0}, 5, 0);
}

TEST(JudgedRows, HoldBothEndsAndLeaveNoLongRunUnseen) {
  const LittleWork little;
  const std::vector<Index> rows = rows_of(operator_named("ahla", "masked"), 5000);
  EXPECT_GE(rows.size(), 60u);
  EXPECT_LE(rows.size(), 64u);
  EXPECT_EQ(rows.front(), 0);
  EXPECT_EQ(rows.back(), 4999);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i] - rows[i - 1], 2 * 5000 / 32);
  EXPECT_EQ(rows, rows_of(operator_named("ahla", "masked"), 5000));
}

TEST(JudgedRows, AreAllWhereTheBoundOfAllIsCheap) {
  const Declaration& ahla = operator_named("ahla", "masked").declaration();
  EXPECT_FALSE(judged_rows(ahla, {2048, 128, 128}, {Form::chunk, 64, 0}, 1, 0));
  EXPECT_TRUE(judged_rows(ahla, {4096, 128, 128}, {Form::chunk, 64, 0}, 1, 0));
  EXPECT_FALSE(judged_rows(ahla, {1 << 20, 128, 128}, {Form::stream, 64, 0}, 1, 0));
  EXPECT_FALSE(judged_rows(operator_named("mamba2", "masked").declaration(), {1 << 20, 128, 128},
                           {Form::chunk, 64, 0}, 1, 0));
}

TEST(JudgedRows, PassSaysHowManyAndAnErrorInOneOfThemFails) {
  const LittleWork little;
  const char* line = "ahla T=600 d=4 dv=4 seed=5";
  const Checked right = judged("cpu.ahla.chunk16.fp32", line);
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_THAT(right.reason, HasSubstr(" of 600 rows judged"));
  ASSERT_TRUE(right.judged);
  EXPECT_EQ(right.judgement.compared, *right.judged * 4);
  const std::vector<Index> rows =
      *judged_rows(operator_named("ahla", "masked").declaration(), {600, 4, 4}, {Form::chunk, 16, 0}, 5, 0);
  const auto spoil = [](Index row, double factor) {
    return [=](std::vector<double>& o) { o[static_cast<std::size_t>(row * 4 + 1)] *= factor; };
  };
  for (const Index row : {rows[3], rows.back()})
    EXPECT_EQ(judged("cpu.ahla.chunk16.fp32", line, spoil(row, 2)).verdict, Verdict::fail) << row;
  Index other = 0;  // the first row that is not judged: its error is not seen, but it has to be finite
  while (std::find(rows.begin(), rows.end(), other) != rows.end()) ++other;
  EXPECT_EQ(judged("cpu.ahla.chunk16.fp32", line, spoil(other, 2)).verdict, Verdict::pass);
  const Checked lost =
      judged("cpu.ahla.chunk16.fp32", line, spoil(other, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(lost.verdict, Verdict::fail);
  EXPECT_THAT(lost.reason, HasSubstr("not finite"));
}

TEST(JudgedRows, LongDeltaRulesAreJudgedByTheRecurrenceInDouble) {
  for (const char* name : {"gated_delta", "log_linear_gated_delta"}) {
    const std::string line = std::string(name) + " T=1100 d=4 dv=3 seed=5";
    const std::string kernel = "cpu." + std::string(name) + ".chunk64.fp32";
    const Checked right = judged(kernel.c_str(), line);
    EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
    EXPECT_EQ(right.oracle_method, "double");
    EXPECT_LT(right.judgement.radius_over_bound, 0x1p-20);
    const Checked wrong = judged(kernel.c_str(), line, [](std::vector<double>& o) { o[3001] *= 1.01; });
    EXPECT_EQ(wrong.verdict, Verdict::fail);
  }
  // A kernel in double is beyond that radius.
  const Checked sharp = judged("cpu.gated_delta.chunk64.fp64", "gated_delta T=1100 d=4 dv=3 seed=5");
  EXPECT_EQ(sharp.oracle_method, "double-double") << sharp.reason;
  EXPECT_LT(sharp.judgement.radius_over_bound, 0x1p-10);
}

}  // namespace
}  // namespace attest
