// What a kernel computes is told from its output alone: every registered fp32 kernel is itself, a kernel with a usual
// fault is named as what it is, and one that is only nearly right is not said to compute what it resembles.
#include "gpu_checks/identify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "gpu_checks/mutants/production.hpp"
#include "gpu_checks/near_misses.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

const Kernel& registered(const std::string& name) { return *find_kernels(name, "").at(0); }

std::string masked(const std::string& op) { return op + " (masked)"; }

// What the answer is, or a copy of it.
bool answers(const Identification& found, const std::string& name) {
  const Candidate* answer = found.answer();
  if (!answer) return false;
  for (const Candidate& c : found.candidates)
    if (c.name == name && (&c == answer || c.same_as == answer->name)) return true;
  return false;
}

std::string said(const Identification& found) {
  std::string text = found.failure + " likeness " + std::to_string(static_cast<int>(found.likeness)) + ' ' +
                     found.confidence + '\n';
  for (std::size_t i = 0; i < std::min<std::size_t>(6, found.candidates.size()); ++i) {
    const Candidate& c = found.candidates[i];
    text += c.name + " error " + std::to_string(c.error) + " quarter " + std::to_string(c.quarter) +
            " ratio " + std::to_string(c.worst_ratio) + " same as " + c.same_as + " " + c.undecided + '\n';
  }
  return text;
}

TEST(Identify, NamesEveryRegisteredKernelOfFp32) {
  int identified = 0;
  for (const Kernel* kernel : find_kernels("*.fp32", "")) {
    const Identification found = identify(*kernel, {1, "T=40"});
    ASSERT_EQ(found.failure, "") << kernel->name;
    EXPECT_EQ(found.likeness, Likeness::computes) << kernel->name << ' ' << said(found);
    EXPECT_TRUE(answers(found, found.declared)) << kernel->name << ' ' << said(found);
    EXPECT_TRUE(found.as_declared) << kernel->name << ' ' << found.states << said(found);
    EXPECT_EQ(found.matching().size(), 1) << kernel->name << ' ' << said(found);
    EXPECT_THAT(found.confidence, testing::StartsWith("high")) << kernel->name << ' ' << said(found);
    ++identified;
  }
  EXPECT_GT(identified, 30);
}

TEST(Identify, OfCoarseContractsSaysNoMoreThanTheirBoundsDo) {
  for (const char* name :
       {"cpu.hla2.chunk64.direct.bf16", "cpu.hla2.stream.direct.bf16state", "cpu.ahla.chunk64.bf16",
        "cpu.gated_delta.chunk64.bf16", "cpu.log_linear_mamba2.chunk64.fp16"}) {
    const Kernel& kernel = registered(name);
    const Identification found = identify(kernel, {});
    EXPECT_TRUE(answers(found, masked(kernel.op))) << name << ' ' << said(found);
    EXPECT_TRUE(found.likeness == Likeness::computes || found.likeness == Likeness::likely)
        << name << said(found);
    EXPECT_EQ(found.likeness == Likeness::likely, found.answer()->fit == Fit::open) << name;
  }
}

TEST(Identify, AsksMoreTokensThanTwoChunksAndTwoBatchEntriesAndHeadsAndSaysSo) {
  const Identification found = identify(registered("cpu.linear.chunk64.fp32"), {});
  EXPECT_THAT(found.compared, HasSubstr("3 inputs of T=131, d=4, dv=3, H=2, B=2"));
  const Identification asked = identify(registered("cpu.linear.chunk64.fp32"), {1, "T=40,H=1,d=5"});
  EXPECT_THAT(asked.compared, HasSubstr("T=40, d=5, dv=3, H=1, B=2"));
  EXPECT_THAT(asked.compared, HasSubstr("no border of its chunks of 64 is crossed"));
}

TEST(Identify, CallsWhatHasTheSameValuesTheSame) {
  const Identification found = identify(registered("cpu.linear.stream.fp32"), {});
  int copies = 0;
  for (const Candidate& c : found.candidates)
    if (c.name == "retention (masked)" || c.name == "mamba2 (masked)") {
      EXPECT_EQ(c.same_as, "linear (masked)") << c.name;
      ++copies;
    }
  EXPECT_EQ(copies, 1);  // mamba2 wants gates that linear has not
}

// A kernel that computes a near miss in double and rounds it once to fp32.
Kernel with_fault(const Operator& op, const NearMiss& miss, const std::string& features = "") {
  Kernel kernel = cpu_kernel(op, {.form = Form::stream}, "fp32", parse_contract("input=fp32 output=fp32"));
  kernel.name = "test.near_miss", kernel.features = features;
  kernel.run = [&op, &miss](const Problem& problem) {
    const Declaration& d = op.declaration();
    Tensor o{{problem.batch, problem.tokens, problem.heads, problem.value_dim}, {}};
    o.data.resize(static_cast<std::size_t>(element_count(o.shape)));
    for (const Slot& slot : slots(problem)) {
      const Head<double> head = head_of<double>(problem, d, slot);
      NearMissInput in{op, head, 1};
      in.scale = problem.options.scale ? nearest_double(*problem.options.scale) : in.default_scale();
      Head<double> other = head;
      if (miss.applies(in) && miss.change) miss.change(other, in);
      const Matrix<double> rows =
          miss.applies(in) && miss.compute ? miss.compute(in) : by_stream(op, other).o;
      visit_outputs(problem, d, slot, Solution<double>{rows, {}}, 1,
                    [&](const std::string& name, Index flat, double value) {
                      if (name == "o")
                        o.data[static_cast<std::size_t>(flat)] =
                            static_cast<double>(static_cast<float>(value));
                    });
    }
    return KernelResult{KernelStatus::ok, "", {{"o", o}}, 0};
  };
  return kernel;
}

bool could_apply(const Operator& op, const NearMiss& miss, const Kernel& kernel) {
  Case c;
  c.op = op.declaration().name, c.variant = op.declaration().variant, c.tokens = 3, c.key_dim = 4,
  c.value_dim = 3;
  if (op.declaration().decay) c.options.decay = Rational(3) / 4;
  c.options.scale = Rational(3) / 4;
  const Problem problem = round_inputs(kernel.contract, draw_problem(c, op.declaration()));
  Head<double> head = head_of<double>(problem, op.declaration(), slots(problem).at(0));
  if (has_feature(kernel, "initial_state")) head.initial = by_stream(op, head).final;
  return miss.applies({op, head, 0.75});
}

// Every near miss of every operator, and the operator itself when the name is not among the answers.
TEST(Identify, NamesEveryNearMissOfEveryOperatorThatItAppliesTo) {
  std::map<std::string, int> tried;
  for (const Operator* op : all_operators())
    for (const NearMiss& miss : near_misses()) {
      const std::string features = op->declaration().moments.empty() ? "" : "initial_state";
      const Kernel kernel = with_fault(*op, miss, features);
      if (!could_apply(*op, miss, kernel)) continue;
      const Identification found = identify(kernel, {1, "T=20"});
      const std::string name = op->declaration().name + " (" + op->declaration().variant + ")";
      EXPECT_TRUE(answers(found, name + ", " + miss.name))
          << name << ", " << miss.name << ": " << said(found);
      EXPECT_FALSE(answers(found, name)) << name << ", " << miss.name << ": " << said(found);
      ++tried[miss.name];
    }
  for (const NearMiss& miss : near_misses()) EXPECT_GT(tried[miss.name], 0) << miss.name;
}

// A right kernel whose output or inputs are spoilt.
template <class Spoil>
Kernel spoilt(const Kernel& right, Spoil spoil) {
  Kernel kernel = right;
  kernel.run = [run = right.run, spoil](const Problem& problem) {
    KernelResult result = run(problem);
    if (result.status == KernelStatus::ok) spoil(problem, result);
    return result;
  };
  return kernel;
}

void resembles_without_computing(const Kernel& kernel, const std::string& name) {
  const Identification found = identify(kernel, {});
  EXPECT_EQ(found.likeness, Likeness::resembles) << said(found);
  EXPECT_TRUE(answers(found, name)) << said(found);
  EXPECT_TRUE(found.matching().empty()) << said(found);
  EXPECT_GT(found.answer()->worst_ratio, 1);
  EXPECT_NE(found.where, "");
}

TEST(Identify, DoesNotTakeAKernelThatIsWrongAtItsChunkBorderForARightOne) {
  // The carry into the second chunk of 32 decays one step short.
  const Operator& op = *find_operator("hla2");
  Kernel kernel =
      cpu_kernel(op, {.form = Form::chunk, .chunk = 32}, "fp32", parse_contract("input=fp32 output=fp32"));
  kernel.run = [&op](const Problem& problem) {
    KernelResult result;
    Tensor o{{problem.batch, problem.tokens, problem.heads, problem.value_dim}, {}};
    o.data.resize(static_cast<std::size_t>(element_count(o.shape)));
    for (const Slot& slot : slots(problem)) {
      const Head<double> head = head_of<double>(problem, op.declaration(), slot);
      Head<double> step = head;
      State<double> state = head.initial;
      for (Index t = 0; t < head.tokens(); ++t) {
        step.q = head.q.middle_rows(t, 1), step.k = head.k.middle_rows(t, 1),
        step.v = head.v.middle_rows(t, 1);
        step.initial = state;
        if (t == 32)
          for (auto& [name, moments] : step.initial.moments) moments[0] *= 1 / head.decay;
        const Solution<double> solved = by_stream(op, step);
        state = solved.final;
        for (Index c = 0; c < problem.value_dim; ++c)
          o.data[static_cast<std::size_t>(
              ((slot.batch * problem.tokens + t) * problem.heads + slot.head) * problem.value_dim + c)] =
              solved.o(0, c);
      }
    }
    result.outputs["o"] = o;
    return result;
  };
  resembles_without_computing(kernel, "hla2 (masked)");
}

TEST(Identify, DoesNotTakeABf16StateForAnFp32One) {
  for (const char* op : {"hla2", "mamba2", "gated_delta"}) {
    const Contract coarse = parse_contract("input=fp32 state=bf16 output=fp32");
    Kernel kernel = registered(std::string("cpu.") + op + ".stream*.fp32");
    kernel.run = cpu_kernel(*find_operator(op), {.form = Form::stream}, "bf16state", coarse).run;
    resembles_without_computing(kernel, masked(op));
  }
}

TEST(Identify, SeesAKernelThatIsWrongForEveryBatchEntryButTheFirst) {
  const Kernel kernel =
      spoilt(registered("cpu.mamba2.stream.fp32"), [](const Problem& problem, KernelResult& result) {
        std::vector<double>& o = result.outputs.at("o").data;
        const std::size_t entry = o.size() / static_cast<std::size_t>(problem.batch);
        for (std::size_t i = entry; i < o.size(); ++i) o[i] = o[i - entry];
      });
  resembles_without_computing(kernel, "mamba2 (masked)");
  EXPECT_THAT(identify(kernel, {}).where, HasSubstr("batch entry 1"));
  EXPECT_THAT(identify(kernel, {}).smallest, HasSubstr("T=1 d=1 dv=1 H=1 B=2"));
}

TEST(Identify, SeesAKernelThatSkipsAToken) {
  for (const char* op : {"hla2", "linear", "log_linear_mamba2"}) {
    const Kernel& right = registered(std::string("cpu.") + op + ".stream*.fp32");
    Kernel kernel = right;
    kernel.run = [&right](Problem problem) {
      for (const char* name : {"k", "v"}) {
        Tensor& x = problem.fields.at(name);
        const auto width = static_cast<std::size_t>(x.shape[3] * problem.heads);
        for (Index b = 0; b < problem.batch && problem.tokens > 30; ++b)
          std::fill_n(x.data.begin() + static_cast<std::ptrdiff_t>((b * problem.tokens + 30)) *
                                           static_cast<std::ptrdiff_t>(width),
                      width, 0.0);
      }
      return right.run(problem);
    };
    resembles_without_computing(kernel, masked(op));
  }
}

TEST(Identify, TellsThePrintedDecayFromTheMaskedOperator) {
  Kernel kernel = registered("cpu.hla2.stream*.fp32");
  kernel.run = registered("cpu.hla2.printed.stream.fp32").run;
  const Identification found = identify(kernel, {});
  EXPECT_TRUE(answers(found, "hla2 (printed)")) << said(found);
  EXPECT_FALSE(found.as_declared);
}

TEST(Identify, SeesAFinalStateThatIsStoredTransposedOrEarly) {
  const Kernel& right = registered("cpu.mamba2.stream.fp32");
  ASSERT_TRUE(has_feature(right, "final_state"));
  EXPECT_EQ(identify(right, {}).states, "");
  const Kernel turned = spoilt(right, [](const Problem& problem, KernelResult& result) {
    Tensor& state = result.outputs.at("final_state.S");
    const Tensor given = state;
    const Index d = problem.key_dim, dv = problem.value_dim;
    for (Index block = 0; block < problem.sequences() * problem.heads; ++block)
      for (Index a = 0; a < d; ++a)
        for (Index c = 0; c < dv; ++c)
          state.data[static_cast<std::size_t>(block * d * dv + c * d + a)] =
              given.data[static_cast<std::size_t>(block * d * dv + a * dv + c)];
  });
  const Identification found = identify(turned, {});
  EXPECT_EQ(found.states, "final_state.S is stored transposed");
  EXPECT_FALSE(found.as_declared);
  const Kernel zero = spoilt(right, [](const Problem&, KernelResult& result) {
    for (double& x : result.outputs.at("final_state.S").data) x = 0;
  });
  EXPECT_EQ(identify(zero, {}).states, "final_state.S is left zero");
}

TEST(Identify, OfAKernelThatMatchesNothingGivesTheSmallestInput) {
  const Kernel kernel =
      spoilt(registered("cpu.linear.stream.fp32"), [](const Problem& problem, KernelResult& result) {
        if (problem.tokens < 3 || problem.key_dim < 2) return;
        for (double& x : result.outputs.at("o").data) x += 0.5;
      });
  const Identification found = identify(kernel, {});
  EXPECT_TRUE(found.matching().empty());
  EXPECT_THAT(found.smallest, HasSubstr("T=3 d=2 dv=1 H=1 B=1"));
  EXPECT_THAT(found.smallest, HasSubstr("k=[0, 0, 0, 0, 0, 0] q=[0, 0, 0, 0, 0, 0] v=[0, 0, 0]"));
  EXPECT_THAT(found.smallest, HasSubstr("o=[0.5, 0.5, 0.5], linear (masked) gives [0, 0, 0]"));
}

TEST(Identify, SaysNothingOfNoise) {
  const Kernel noise = spoilt(registered("cpu.hla2.stream*.fp32"), [](const Problem&, KernelResult& result) {
    std::uint32_t state = 1;
    for (double& x : result.outputs.at("o").data) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<double>(state >> 8) / 0x1p23 - 1;
    }
  });
  const Identification found = identify(noise, {1, "T=12"});
  EXPECT_EQ(found.likeness, Likeness::none) << said(found);
  EXPECT_EQ(found.answer(), nullptr);
}

TEST(Identify, SaysWhyAKernelDidNotRun) {
  Kernel kernel = registered("cpu.linear.stream.fp32");
  kernel.run = [](const Problem&) { return KernelResult{KernelStatus::failed, "out of luck", {}, 0}; };
  EXPECT_EQ(identify(kernel, {}).failure, "out of luck");
}

TEST(Identify, AsksAKernelWithinItsLimitsAndLeavesOutWhatItRefuses) {
  const Kernel& right = registered("cpu.linear.stream.fp32");
  Kernel kernel = right;
  kernel.limits = "d=16..64 dv=16..64 b=1..1", kernel.features = "";
  kernel.run = [&right](const Problem& problem) {
    if (problem.options.scale) return KernelResult{KernelStatus::unsupported, "no scale", {}, 0};
    return right.run(problem);
  };
  const Identification found = identify(kernel, {});
  EXPECT_TRUE(found.as_declared) << said(found);
  EXPECT_THAT(found.compared, HasSubstr("d=16, dv=16, H=2, B=1"));
  EXPECT_THAT(found.compared, HasSubstr("refused by the kernel: the option scale"));
}

}  // namespace
}  // namespace attest
