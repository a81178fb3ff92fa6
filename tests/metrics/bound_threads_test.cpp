// Threads that work on one head add their parts in one order.
#include <gtest/gtest.h>

#include "reference/metrics/bound.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;

ErrorModel bound(const char* name, const Evaluation& how, const char* contract, int threads,
                 std::uint64_t seed = 3) {
  const Operator& op = *find_operator(name, "masked");
  const Contract c = parse_contract(contract);
  const Head<double> head = random_head(op.declaration(), {70, 6, 5, true, true, true}, c, seed);
  const std::vector<Index> rows{0, 15, 16, 40, 69};
  return error_model(op, head, how, c, {}, &rows, threads);
}

bool same_bits(const ErrorModel& a, const ErrorModel& b) {
  return a.deterministic == b.deterministic && a.accumulation == b.accumulation && a.variance == b.variance &&
         a.shares == b.shares && a.stages == b.stages;
}

TEST(BoundThreads, ChangeNoBitOfABound) {
  const char* const contract = "input=bf16 product=bf16 intermediate=bf16 output=bf16";
  for (const char* name :
       {"linear", "mamba2", "hla2", "ahla", "hla3", "log_linear_mamba2", "log_linear_gated_delta"})
    for (const Evaluation& how : {Evaluation{Form::chunk, 16, 0}, Evaluation{Form::stream, 0, 0}}) {
      const ErrorModel alone = bound(name, how, contract, 1);
      ASSERT_FALSE(alone.undecided) << alone.reason;
      for (const int threads : {2, 3, 16})
        EXPECT_TRUE(same_bits(bound(name, how, contract, threads), alone)) << name;
      EXPECT_FALSE(same_bits(bound(name, how, contract, 1, 4), alone)) << "the control: another input";
    }
}

}  // namespace
}  // namespace attest
