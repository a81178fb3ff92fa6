#include "gpu_checks/oracle/oracle_cache.hpp"

#include <gtest/gtest.h>

#include "gpu_checks/check.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

const Operator& op_of(const char* name) { return operator_named(name, "masked"); }

Problem problem_of_seed(const char* op, std::uint64_t seed) {
  Case c;
  c.op = op, c.tokens = 24, c.key_dim = c.value_dim = 4, c.seed = seed;
  return draw_problem(c, op_of(op).declaration());
}

TEST(OracleCache, ComputesTheSameContentOnceAndAnythingElseAnew) {
  OracleCache cache(1 << 20);
  Problem problem = problem_of_seed("linear", 1);
  const OracleRequest request;
  const auto first = cache.get(op_of("linear"), problem, request);
  EXPECT_EQ(first, cache.get(op_of("linear"), problem_of_seed("linear", 1), request));
  EXPECT_EQ(cache.computed(), 1);
  problem.fields.at("v").data[3] += 1;  // one element
  EXPECT_NE(first, cache.get(op_of("linear"), problem, request));
  Problem optioned = problem_of_seed("linear", 1);
  optioned.options.scale = Rational(1) / 2;
  EXPECT_NE(first, cache.get(op_of("linear"), optioned, request));
  EXPECT_NE(first, cache.get(op_of("retention"), problem_of_seed("linear", 1), request));  // the same fields
  OracleRequest other;
  other.magnitude = false;
  EXPECT_NE(first, cache.get(op_of("linear"), problem_of_seed("linear", 1), other));
  EXPECT_EQ(cache.computed(), 5);
  EXPECT_GT(cache.nanoseconds(), 0);
}

TEST(OracleCache, ForgetsTheLeastRecentlyUsedBeyondItsLimit) {
  OracleCache sizes(1 << 20);
  sizes.get(op_of("linear"), problem_of_seed("linear", 1), {});
  const std::size_t one = sizes.bytes();
  ASSERT_GT(one, 0u);
  OracleCache cache(2 * one);
  for (const std::uint64_t seed : {1, 2, 1, 3})
    cache.get(op_of("linear"), problem_of_seed("linear", seed), {});
  EXPECT_LE(cache.bytes(), 2 * one);
  EXPECT_EQ(cache.computed(), 3);
  cache.get(op_of("linear"), problem_of_seed("linear", 1), {});
  EXPECT_EQ(cache.computed(), 3) << "1 was used after 2";
  cache.get(op_of("linear"), problem_of_seed("linear", 2), {});
  EXPECT_EQ(cache.computed(), 4);
}

TEST(OracleCache, OfThreadsThatAskAtOnceComputesOnce) {
  OracleCache cache(1 << 20);
  for_each_parallel(8, 4, [&](Index) { cache.get(op_of("hla2"), problem_of_seed("hla2", 1), {}); });
  EXPECT_EQ(cache.computed(), 1);
}

TEST(OracleCache, KernelsOfOneOperatorShareTheOracleOfOneRoundedInput) {
  CheckSource source;
  source.input.op = "hla2", source.input.tokens = 20, source.input.seed = 987654;
  source.input.key_dim = source.input.value_dim = 5, source.lengths = {20};
  for (const Kernel* kernel : find_kernels("cpu.hla2.*", "hla2"))
    if (kernel->variant == "masked" && kernel->contract.input == fp32) source.kernels.push_back(kernel);
  ASSERT_GE(source.kernels.size(), 4u);
  const Index before = oracle_cache().computed();
  Index judged = 0;
  const CheckListener listener{[&](const Checked&) { ++judged; }};
  check({source, source}, 1, listener);  // the same input on two command lines
  EXPECT_EQ(judged, static_cast<Index>(2 * source.kernels.size()));
  EXPECT_LE(oracle_cache().computed() - before, 2)
      << "the sums, and the intervals where a bound asks for them";
}

}  // namespace
}  // namespace attest
