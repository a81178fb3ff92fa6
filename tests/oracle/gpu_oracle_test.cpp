// The GPU oracle against the processor's on the same tables: every kind of weight, operand and shape. Not run without a
// GPU. The control: the same comparison notices an entry that is off by its smallest visible amount.
#include "gpu_checks/oracle/gpu_oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "reference/numeric/double_double.hpp"
#include "tests/oracle/random_numbers.hpp"

namespace attest {
namespace {

const CertifiedEngine* engine_or_skip(std::string& why) { return gpu_engine(why); }

struct SumProblem {
  Index tokens, key_dim, value_dim;
  std::vector<double> q, k, v, gate, gate_low, scales;
  CertifiedInput input;
  CertifiedWeights& weights() { return input.weights; }

  SumProblem(Index n, Index d, Index dv, std::uint64_t seed) : tokens(n), key_dim(d), value_dim(dv) {
    std::mt19937_64 random(seed);
    q = numbers(random, n * d), k = numbers(random, n * d), v = numbers(random, n * dv);
    gate = numbers(random, n, 0.5, 1), scales = numbers(random, n * 20, -2, 2);
    for (const double g : gate) gate_low.push_back(g * 0x1p-55);
    input.tokens = n, input.key_dim = d, input.value_dim = dv;
    input.q = q.data(), input.k = k.data(), input.v = v.data();
  }
  void set(const std::string& kind) {
    if (kind.find("gates") != std::string::npos)
      weights().gate_high = gate.data(), weights().gate_low = gate_low.data(),
      weights().gate_error = 0x1p-100;
    if (kind.find("decay") != std::string::npos) weights().decay = {0.96875, 0, 0};
    if (kind.find("levels") != std::string::npos)
      weights().level_scales = scales.data(), weights().levels = 20;
  }
};

// The number of entries on which two certified results contradict each other; `off` is added to the first, in radii.
Index contradictions(const CertifiedRows& a, const CertifiedRows& b, double off = 0) {
  Index count = 0;
  for (std::size_t i = 0; i < a.high.size(); ++i) {
    const double apart = std::fabs((a.high[i] - b.high[i]) + (a.low[i] - b.low[i]));
    const double room = (a.radius[i] + b.radius[i]) * (1 + 0x1p-40);
    count += !(apart + off * room <= room) || !std::isfinite(a.radius[i]) || !std::isfinite(b.radius[i]);
    const double ratio = a.magnitude[i] / b.magnitude[i];
    count += !(std::fabs(ratio - 1) <= 0x1p-30);
  }
  return count;
}

using Operator = CertifiedRows (*)(const CertifiedInput&, const CertifiedOptions&);

void compare(Operator op, const SumProblem& problem, Index first, Index last) {
  std::string why;
  CertifiedOptions here, there;
  here.first_row = there.first_row = first, here.last_row = there.last_row = last;
  there.engine = gpu_engine(why);
  const CertifiedRows processor = op(problem.input, here), device = op(problem.input, there);
  ASSERT_EQ(processor.high.size(), device.high.size());
  EXPECT_EQ(contradictions(device, processor), 0);
  for (std::size_t i = 0; i < device.high.size(); ++i)
    ASSERT_LE(device.radius[i], std::ldexp(device.magnitude[i], -70));
}

#define NEEDS_A_GPU() \
  std::string why;    \
  if (!engine_or_skip(why)) GTEST_SKIP() << "not run: " << why

TEST(GpuOracle, AgreesWithTheProcessorForEveryKindOfWeight) {
  NEEDS_A_GPU();
  for (const char* kind : {"", "decay", "gates", "levels", "gates levels"})
    for (const auto& [n, d, dv] : {std::tuple(1, 1, 1),
                                   {31, 3, 2},
                                   {32, 16, 16},
                                   {33, 17, 129},
                                   {64, 64, 64},
                                   {65, 20, 5},
                                   {200, 128, 128},
                                   {1000, 40, 130}}) {
      SCOPED_TRACE(std::string(kind) + " n " + std::to_string(n));
      SumProblem problem(n, d, dv, 7);
      problem.set(kind);
      compare(&certified_linear, problem, 0, n);
    }
}

TEST(GpuOracle, AgreesWithTheProcessorForCompositions) {
  NEEDS_A_GPU();
  for (const char* kind : {"", "decay"})
    for (const Operator op : {&certified_hla2, &certified_ahla, &certified_hla3, &certified_hla2_unmasked,
                              &certified_hla3_unmasked}) {
      SumProblem problem(300, 24, 40, 11);
      problem.set(kind);
      compare(op, problem, 0, 300);
    }
}

TEST(GpuOracle, GivesAnyRangeOfRows) {
  NEEDS_A_GPU();
  for (const auto& [first, last] : {std::pair(0, 1), {1, 70}, {63, 65}, {40, 300}, {299, 300}, {150, 150}}) {
    SumProblem problem(300, 8, 8, 5);
    problem.set("gates");
    compare(&certified_linear, problem, first, last);
  }
}

TEST(GpuOracle, ComparisonNoticesAnEntryThatIsOff) {
  SumProblem problem(40, 4, 4, 3);
  const CertifiedRows rows = certified_linear(problem.input);
  EXPECT_EQ(contradictions(rows, rows), 0);
  EXPECT_GT(contradictions(rows, rows, 1.01), 0);
}

TEST(GpuOracle, SaysWhyThereIsNone) {
  std::string why;
  EXPECT_TRUE(gpu_engine(why) != nullptr || !why.empty());
}

}  // namespace
}  // namespace attest
