#include "fuzz/shrink.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/ask.hpp"
#include "fuzz/hunt.hpp"
#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// hla2 by a scan over tokens: prefixes (S, F) of the segments, each read after its own token was included. The operator
// that joins two segments, F_AB = F_A + F_B + S_A C_B, forgets the cross term S_A C_B where it is told to.
KernelResult scan_of_hla2(const Problem& problem, bool forgets_cross_term) {
  const Operator& op = operator_named("hla2", "masked");
  Contract contract;
  const Kernel right = cpu_kernel(op, {Form::stream, 0, 0}, "right", contract);
  if (!forgets_cross_term) return right.run(problem);
  KernelResult result;
  const Tensor &q = problem.fields.at("q"), &k = problem.fields.at("k"), &v = problem.fields.at("v");
  const Index T = problem.tokens, H = problem.heads, d = problem.key_dim, dv = problem.value_dim;
  Tensor o{{problem.batch, T, H, dv}, std::vector<double>(v.data.size(), 0.0)};
  for (Index b = 0; b < problem.batch; ++b)
    for (Index h = 0; h < H; ++h) {
      const auto row = [&](const Tensor& x, Index t, Index size) {
        return x.data.data() + ((b * T + t) * H + h) * size;
      };
      Matrix<float> S(d, d), F(d, dv);  // of the tokens before t
      for (Index t = 0; t < T; ++t) {
        const double *qt = row(q, t, d), *kt = row(k, t, d), *vt = row(v, t, dv);
        double* ot = o.data.data() + ((b * T + t) * H + h) * dv;
        Matrix<float> own(d, dv), included = F;  // (k k^T) q v^T, and with S q v^T
        float key_query = 0;
        for (Index a = 0; a < d; ++a) key_query += static_cast<float>(kt[a] * qt[a]);
        for (Index a = 0; a < d; ++a) {
          float Sq = 0;
          for (Index c = 0; c < d; ++c) Sq += S(a, c) * static_cast<float>(qt[c]);
          for (Index c = 0; c < dv; ++c) {
            own(a, c) = static_cast<float>(kt[a]) * key_query * static_cast<float>(vt[c]);
            included(a, c) += own(a, c) + Sq * static_cast<float>(vt[c]);
          }
        }
        for (Index a = 0; a < d; ++a)
          for (Index c = 0; c < dv; ++c)
            ot[c] += static_cast<double>(static_cast<float>(qt[a]) * included(a, c));
        for (Index c = 0; c < dv; ++c) ot[c] = static_cast<double>(static_cast<float>(ot[c]));
        F = F + own;  // without S q v^T
        for (Index a = 0; a < d; ++a)
          for (Index c = 0; c < d; ++c) S(a, c) += static_cast<float>(kt[a] * kt[c]);
      }
    }
  result.outputs["o"] = std::move(o);
  return result;
}

Kernel scan_kernel(bool forgets_cross_term) {
  Kernel kernel = cpu_kernel(operator_named("hla2", "masked"), {Form::stream, 0, 0}, "scan", Contract());
  kernel.name = "test.hla2.scan", kernel.door = "mutant", kernel.features = "deterministic";
  kernel.run = [forgets_cross_term](const Problem& p) {
    const bool decayed = p.field("decay") || p.options.decay.value_or(1) != 1;
    if (decayed || p.options.ridge != 0 || p.options.scale || p.options.normalize)
      return KernelResult{KernelStatus::unsupported, "plain hla2 alone", {}, 0};
    return scan_of_hla2(p, forgets_cross_term);
  };
  return kernel;
}

std::vector<double> values_of(const FuzzInput& input) {
  std::vector<double> values;
  for (const ValueEdit& edit : input.edits) values.push_back(edit.value);
  return values;
}

TEST(Shrink, ACrossTermForgottenByAScanNeedsThreeTokensWithOneEntryEach) {
  const Kernel wrong = scan_kernel(true);
  HuntOptions options;
  options.cases = 150, options.seed = 1;
  const HuntReport report = hunt({wrong, [] { return scan_kernel(true); }, false, false}, {}, options);
  ASSERT_FALSE(report.findings.empty());
  for (const Finding& finding : report.findings) {
    SCOPED_TRACE(finding.cause + '\n' + finding.reason + '\n' + finding.after + '\n' +
                 to_text({finding.shrunk, "", "", ""}));
    EXPECT_EQ(finding.shrunk.shape.tokens, 3);
    EXPECT_EQ(finding.shrunk.shape.key_dim, 1);
    EXPECT_EQ(finding.shrunk.shape.value_dim, 1);
    EXPECT_EQ(finding.shrunk.edits.size(),
              4u);  // k of the first token, q and v of the second, q of the third
    EXPECT_EQ(values_of(finding.shrunk), std::vector<double>(4, 1.0));
    EXPECT_EQ(finding.shrunk.question, finding.first.question);
    EXPECT_TRUE(finding.shrinking_finished);
  }
}

TEST(Shrink, TheScanWithItsCrossTermIsNotFaulted) {
  HuntOptions options;
  options.cases = 150, options.seed = 1;
  const HuntReport report =
      hunt({scan_kernel(false), [] { return scan_kernel(false); }, false, false}, {}, options);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_GT(report.decided, 20);
}

// The predicate alone: what it keeps is kept, everything else goes away.
TEST(Shrink, KeepsWhatTheFailureNeedsAndNothingElse) {
  const Kernel& kernel = *find_kernels("cpu.linear.stream.fp32", "").at(0);
  const BatteryContext context{kernel, operator_named("linear", "masked"), 1, Effort::quick};
  FuzzInput input;
  input.shape = parse_case("linear T=40 d=6 dv=5 H=4 B=2 Hk=2 scale=3/4 recipe=gaussian seed=3");
  const auto fails = [&](const FuzzInput& x) {
    const Built built = build(context, x);
    const Tensor& q = built.problem->fields.at("q");
    return built.problem->tokens >= 7 &&
           std::count_if(q.data.begin(), q.data.end(), [](double v) { return v != 0; }) >= 2;
  };
  const Shrunk shrunk = shrink(context, input, fails, 4000);
  EXPECT_TRUE(shrunk.finished);
  EXPECT_EQ(shrunk.input.shape.tokens, 7);
  EXPECT_EQ(shrunk.input.shape.heads, 1);
  EXPECT_EQ(shrunk.input.shape.batch, 1);
  EXPECT_FALSE(shrunk.input.shape.options.scale);
  EXPECT_EQ(values_of(shrunk.input), (std::vector<double>{1, 1}));
}

// linear by chunks of 16: a last chunk of one token, behind others, is not added to the state.
Kernel drops_a_last_chunk_of_one_token() {
  Kernel kernel = *find_kernels("cpu.linear.chunk16.fp32", "").at(0);
  kernel.run = [run = kernel.run](const Problem& problem) {
    KernelResult result = run(problem);
    const Index tokens = problem.tokens;
    if (tokens % 16 != 1 || tokens == 1 || !problem.cu_seqlens.empty()) return result;
    Problem without = problem;
    for (const char* field : {"k", "v"}) {
      std::vector<double>& data = without.fields.at(field).data;
      const std::size_t row = data.size() / static_cast<std::size_t>(problem.batch * tokens);
      for (std::size_t i = 0; i < data.size(); ++i)
        if (i / row % static_cast<std::size_t>(tokens) == static_cast<std::size_t>(tokens - 1)) data[i] = 0;
    }
    const KernelResult dropped = run(without);
    if (const auto state = dropped.outputs.find("final_state.S"); state != dropped.outputs.end())
      result.outputs["final_state.S"] = state->second;
    return result;
  };
  return kernel;
}

// Neither a half nor a quarter less leaves one token in the last chunk.
TEST(Shrink, AFaultOfTheLastChunkLosesWholeChunks) {
  const Kernel wrong = drops_a_last_chunk_of_one_token();
  HuntOptions options;
  options.cases = 40, options.seed = 1;
  const HuntReport report = hunt({wrong, [&] { return wrong; }, true, false}, {}, options);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].shrunk.shape.tokens, 17);
  EXPECT_GT(report.findings[0].duplicates, 2);
  const BatteryContext context{wrong, operator_named("linear", "masked"), 1, Effort::quick};
  FuzzInput input;
  for (const Index tokens : {33, 49, 65, 145}) {
    input.shape = parse_case("linear T=" + std::to_string(tokens) + " d=1 dv=1 H=1 B=1 seed=3");
    const auto fails = [](const FuzzInput& x) { return *x.shape.tokens % 16 == 1 && x.shape.tokens != 1; };
    EXPECT_EQ(shrink(context, input, fails, 4000).input.shape.tokens, 17) << tokens;
  }
}

TEST(Shrink, ATokenBehindAStateIsTwoTokensWhereTheStateDoesNotMatter) {
  const Kernel& kernel = *find_kernels("cpu.linear.chunk16.fp32", "").at(0);
  const BatteryContext context{kernel, operator_named("linear", "masked"), 1, Effort::quick};
  for (const bool needs_state : {false, true}) {
    FuzzInput input;
    input.shape = parse_case("linear T=1 d=2 dv=1 H=1 B=2 seed=3"), input.before = 2;
    // k of the token before the last one matters.
    const auto fails = [&](const FuzzInput& x) {
      const bool state = x.before > 0;
      const Index at = state ? x.before - 1 : *x.shape.tokens - 2;
      if (at < 0 || (needs_state && !state)) return false;
      return !x.zeros || std::any_of(x.edits.begin(), x.edits.end(), [&](const ValueEdit& edit) {
        return edit.field == (state ? "before.k" : "k") && edit.index == std::vector<Index>{0, at, 0, 0};
      });
    };
    const FuzzInput shown = shrink(context, input, fails, 4000).input;
    EXPECT_EQ(shown.before, needs_state ? 1 : 0);
    EXPECT_EQ(shown.shape.tokens, needs_state ? 0 : 2);
    ASSERT_EQ(shown.edits.size(), 1u);
    EXPECT_EQ(shown.edits[0].field, needs_state ? "before.k" : "k");
    EXPECT_EQ(shown.edits[0].index, (std::vector<Index>{0, 0, 0, 0}));
  }
}

// A kernel of one head dimension is asked nothing smaller, and no other size is shown.
TEST(Shrink, ShowsTheSizesThatTheKernelWasAsked) {
  Kernel kernel = *find_kernels("cpu.linear.stream.fp32", "").at(0);
  kernel.limits = "d=8..8 dv=4..16";
  const BatteryContext context{kernel, operator_named("linear", "masked"), 1, Effort::quick};
  FuzzInput input;
  input.shape = parse_case("linear T=9 d=6 dv=9 H=2 B=1 recipe=gaussian seed=3");
  const auto fails = [&](const FuzzInput& x) { return build(context, x).problem->tokens >= 2; };
  const Case shown = shrink(context, input, fails, 4000).input.shape;
  EXPECT_EQ(shown.tokens, 2);
  EXPECT_EQ(shown.key_dim, 8);
  EXPECT_EQ(shown.value_dim, 4);
  EXPECT_EQ(shown.heads, 1);
}

TEST(Shrink, StopsAtItsLimitWithAnInputThatFails) {
  const Kernel& kernel = *find_kernels("cpu.linear.stream.fp32", "").at(0);
  const BatteryContext context{kernel, operator_named("linear", "masked"), 1, Effort::quick};
  FuzzInput input;
  input.shape = parse_case("linear T=40 d=6 dv=5 H=1 B=1 recipe=gaussian seed=3");
  Index asked = 0;
  const auto fails = [&](const FuzzInput& x) { return ++asked, *x.shape.tokens >= 3; };
  const Shrunk shrunk = shrink(context, input, fails, 5);
  EXPECT_EQ(shrunk.asked, 5);
  EXPECT_EQ(asked, 5);
  EXPECT_FALSE(shrunk.finished);
  EXPECT_GE(*shrunk.input.shape.tokens, 3);
}

// The gradient of a gate that is summed over its chunk alone: a token behind the border, and one before it.
TEST(Shrink, AFaultOfABackwardKernelNeedsFewValues) {
  HuntOptions options;
  options.cases = 1, options.seed = 1;
  const HuntReport report =
      hunt(find_subjects("mutant.hla2.backward_state_not_carried", "", {}).at(0), {}, options);
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& finding = report.findings[0];
  SCOPED_TRACE(to_text({finding.first, "", "", ""}) + to_text({finding.shrunk, "", "", ""}) + finding.reason);
  EXPECT_EQ(finding.shrunk.question, Question::gradient);
  EXPECT_TRUE(finding.shrinking_finished);
  EXPECT_LE(finding.shrunk.edits.size(), 5u);
  EXPECT_EQ(finding.shrunk.shape.key_dim, 1);
  EXPECT_EQ(finding.shrunk.shape.heads, 1);
}

}  // namespace
}  // namespace attest
