// The delta rules on the GPU against the processor's recurrence. What runs on the device is run here as well, a lane for
// every column, so that its arithmetic, its plan and its errors are tested where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gpu_checks/oracle/delta_plan.hpp"
#include "gpu_checks/oracle/gpu_oracle.hpp"
#include "tests/oracle/random_numbers.hpp"

namespace attest {
namespace {

using namespace gpu_oracle;

struct OneLane {
  static constexpr int lanes = 1, entries = 40;
  static int lane() { return 0; }
  static void join(Sum&) {}
  static double add(double x) { return x; }
  static Value broadcast(Value x, int) { return x; }
  static void sync() {}
};

struct Columns {
  std::vector<double> high, low, error, norm;
  Columns(int64_t groups, Index columns, Index key_dim)
      : high(static_cast<std::size_t>(groups * columns * key_dim)),
        low(high.size()),
        error(static_cast<std::size_t>(groups * columns)),
        norm(error.size()) {}
  DeltaColumns view() { return {high.data(), low.data(), error.data(), norm.data(), 0}; }
};

struct DeltaProblem {
  std::vector<double> q, k, v, beta, scales, initial;
  CertifiedDelta input;

  DeltaProblem(Index n, Index d, Index dv, const std::string& kind, double key_length = 1) {
    std::mt19937_64 random(7);
    q = numbers(random, n * d), k = numbers(random, n * d), v = numbers(random, n * dv),
    beta = numbers(random, n, 0, 2), scales = numbers(random, n * 20, -2, 2),
    initial = numbers(random, d * dv);
    for (Index t = 0; t < n; ++t) {
      double squares = 0;
      for (Index i = 0; i < d; ++i) squares += k[at(t * d + i)] * k[at(t * d + i)];
      for (Index i = 0; i < d; ++i) k[at(t * d + i)] *= key_length / std::sqrt(squares);
    }
    input.tokens = n, input.key_dim = d, input.value_dim = dv;
    input.q = q.data(), input.k = k.data(), input.v = v.data(), input.beta = beta.data();
    if (kind.find("gates") != std::string::npos) {
      input.gates.high = numbers(random, n, 0.5, 1);
      for (std::size_t t = 0; t < input.gates.high.size(); t += 37) input.gates.high[t] = 0;
      for (const double g : input.gates.high)
        input.gates.low.push_back(g * 0x1p-55), input.gates.error.push_back(g * 0x1p-108);
    }
    if (kind.find("levels") != std::string::npos) input.level_scales = scales.data(), input.levels = 20;
    if (kind.find("initial") != std::string::npos) input.initial = {initial.data()};
    if (kind.find("scale") != std::string::npos)
      input.scale = 1.0 / 3, input.scale_low = 0x1p-56, input.scale_error = 0x1p-110;
  }
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
};

// As delta_rule.cu, in loops. `spoil` may change the states between the scan and the rows.
class Emulated : public CertifiedEngine {
 public:
  explicit Emulated(double spoil = 0) : spoil_(spoil) {}
  bool masked_linear(const CertifiedOperand&, const CertifiedOperand&, const CertifiedOperand&, Index,
                     const CertifiedWeights&, Index, CertifiedTable&) const override {
    return false;
  }
  bool delta_rule(const CertifiedDelta& input, CertifiedRows& rows) const override {
    const DeltaPlan plan = delta_plan(input.tokens, input.level_scales != nullptr);
    const DeltaUnits units = delta_units(DeltaPrecision::pair, input.key_dim, 1);
    const std::vector<DeltaFactors> factors = delta_factors(input, units);
    const Index d = input.key_dim, dv = input.value_dim;
    DeltaHead head{input.q,
                   input.k,
                   input.v,
                   input.beta,
                   input.gates.high.empty() ? nullptr : input.gates.high.data(),
                   input.gates.low.empty() ? nullptr : input.gates.low.data(),
                   input.level_scales,
                   factors.data(),
                   input.tokens,
                   static_cast<int>(d),
                   static_cast<int>(dv),
                   static_cast<int>(input.levels),
                   units.dot,
                   norm_inflation(d),
                   {input.scale, input.scale_low, input.scale_error, delta_outer(64)}};
    const auto states = static_cast<int64_t>(plan.links.size());
    Columns phi(plan.chunks(), d, d), added(plan.chunks(), dv, d), state(states, dv, d);
    for (Index c = 0; c < dv && !input.initial.empty(); ++c) {
      double squares = 0;
      for (Index a = 0; a < d; ++a) {
        const double x = input.initial[0][a * dv + c];
        state.high[static_cast<std::size_t>(c * d + a)] = x, squares += x * x;
      }
      state.norm[static_cast<std::size_t>(c)] = norm_from(squares, norm_inflation(d));
    }
    for (int64_t chunk = 0; chunk < plan.chunks(); ++chunk)
      for (int c = 0; c < d + dv; ++c) transition<OneLane>(head, chunk, c, phi.view(), added.view());
    const std::vector<DeltaFactors> chunks = chunk_factors(factors, phi.error, phi.norm, d);
    for (int c = 0; c < dv; ++c)
      scan<OneLane>(head, c, plan.links.data(), plan.sources.data(), states, chunks.data(), units.add,
                    phi.view(), added.view(), state.view());
    if (!state.high.empty()) state.low.back() += state.high.back() * spoil_;
    for (int64_t chunk = 0; chunk < plan.chunks(); ++chunk)
      for (int c = 0; c < dv; ++c)
        rows_of_chunk<OneLane>(head, chunk, c, state.view(), plan.first_state.data(), plan.level.data(),
                               rows.high.data(), rows.low.data(), rows.radius.data());
    return true;
  }

 private:
  double spoil_;
};

// The entries on which two certified results contradict each other, and those of `a` with too large a radius.
Index contradictions_of_deltas(const CertifiedRows& a, const CertifiedRows& b) {
  double largest = 0;
  for (const double x : b.high) largest = std::max(largest, std::fabs(x));
  Index count = 0;
  for (std::size_t i = 0; i < a.high.size(); ++i) {
    const double apart = std::fabs((a.high[i] - b.high[i]) + (a.low[i] - b.low[i]));
    count += !(apart <= (a.radius[i] + b.radius[i]) * (1 + 0x1p-40)) || !(a.radius[i] <= 0x1p-70 * largest);
  }
  return count;
}

void compare(const CertifiedEngine& engine, const DeltaProblem& problem) {
  DeltaOptions here, there;
  here.magnitude = there.magnitude = false, there.engine = &engine;
  const CertifiedRows device = certified_delta(problem.input, there),
                      processor = certified_delta(problem.input, here);
  ASSERT_TRUE(device.by_engine);
  EXPECT_EQ(contradictions_of_deltas(device, processor), 0);
}

const char* const kinds[] = {"", "gates", "gates levels", "levels scale", "gates initial scale"};

TEST(DeltaRuleByChunks, AgreesWithTheRecurrence) {
  for (const char* kind : kinds)
    for (const auto& [n, d, dv] :
         {std::tuple(1, 1, 1), {63, 3, 2}, {64, 5, 3}, {65, 8, 17}, {200, 33, 5}, {700, 6, 4}}) {
      SCOPED_TRACE(std::string(kind) + " n " + std::to_string(n));
      compare(Emulated(), DeltaProblem(n, d, dv, kind));
    }
}

TEST(DeltaRuleByChunks, AgreesForKeysThatAreNoUnitVectors) {
  for (const double length : {0.25, 1.25, 0x1p-300})
    compare(Emulated(), DeltaProblem(150, 6, 4, "gates", length));
}

TEST(DeltaRuleByChunks, IsNotBelievedWhereTheProcessorDisagrees) {
  const DeltaProblem problem(300, 6, 4, "gates initial");
  DeltaOptions options;
  const Emulated right, far(1e-3), near(0x1p-60);
  options.engine = &right;
  EXPECT_NO_THROW(certified_delta(problem.input, options));
  for (const Emulated* wrong : {&far, &near}) {
    options.engine = wrong;
    EXPECT_THROW(certified_delta(problem.input, options), std::runtime_error);
  }
}

TEST(GpuOracle, DeltaRulesAgreeWithTheProcessor) {
  std::string why;
  const CertifiedEngine* const gpu = gpu_engine(why);
  if (!gpu) GTEST_SKIP() << "not run: " << why;
  for (const char* kind : kinds)
    for (const auto& [n, d, dv] : {std::tuple(1, 1, 1),
                                   {63, 3, 2},
                                   {64, 32, 8},
                                   {65, 33, 9},
                                   {200, 64, 64},
                                   {1000, 128, 130},
                                   {3000, 40, 20},
                                   {500, 256, 16}}) {
      SCOPED_TRACE(std::string(kind) + " n " + std::to_string(n));
      compare(*gpu, DeltaProblem(n, d, dv, kind));
    }
}

}  // namespace
}  // namespace attest
