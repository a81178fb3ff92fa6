#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/check.hpp"
#include "gpu_checks/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

Kernel kernel_named(const std::string& name) {
  const auto found = find_kernels(name, "");
  EXPECT_EQ(found.size(), 1u) << name;
  return *found.at(0);
}

Checked judged(const Kernel& kernel, const std::string& line) {
  const Case c = parse_case(line);
  return check_one(kernel, c, problem_of(c, operator_named(c.op, c.variant).declaration()));
}

constexpr const char* hla2_case = "hla2 T=96 d=16 dv=8 H=2 decay=31/32 seed=5";

// The kernel, its output changed afterwards.
Kernel changed(Kernel kernel, std::function<void(const Problem&, std::vector<double>& o)> change) {
  kernel.run = [run = kernel.run, change](const Problem& problem) {
    KernelResult result = run(problem);
    change(problem, result.outputs["o"].data);
    return result;
  };
  return kernel;
}

TEST(Kernels, CoverEveryOperatorVariantAndFormUnderDistinctNames) {
  std::set<std::string> names;
  for (const Kernel& kernel : registered_kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_EQ(to_text(parse_contract(to_text(kernel.contract))), to_text(kernel.contract));
  }
  for (const Operator* op : all_operators())
    for (const Form form : op->declaration().forms) {
      if (form == Form::direct) continue;
      EXPECT_TRUE(std::any_of(registered_kernels().begin(), registered_kernels().end(),
                              [&](const Kernel& k) {
                                return k.op == op->declaration().name &&
                                       k.variant == op->declaration().variant && k.how.form == form;
                              }))
          << op->declaration().name << op->declaration().variant << form_name(form);
    }
  EXPECT_EQ(find_kernels("cpu.hla2.chunk64.*.bf16", "").size(), 2u);
  EXPECT_EQ(find_kernels("", "nothing*").size(), 0u);
}

TEST(Kernels, HaveLimitsThatAreRead) {
  Problem problem;
  problem.key_dim = 64, problem.value_dim = 8, problem.tokens = 100;
  EXPECT_EQ(outside_limits("d=1..64 dv=1..8", problem), "");
  EXPECT_THAT(outside_limits("d=1..64 t=0..99", problem), HasSubstr("t=100"));
  EXPECT_THROW(outside_limits("d=64x", problem), BadInput);
  EXPECT_THROW(outside_limits("d=", problem), BadInput);
  EXPECT_THROW(outside_limits("d=1,,2", problem), BadInput);
  EXPECT_THROW(outside_limits("x=1..2", problem), BadInput);
  EXPECT_EQ(outside_limits("d=16,64 dv=1..4,8", problem), "");
  EXPECT_THAT(outside_limits("d=16,32,128", problem), HasSubstr("d=64 is outside"));
  EXPECT_EQ(nearest_within("d=16..256", "d", 5), 16);
  EXPECT_EQ(nearest_within("d=128,64", "d", 5), 64);
  EXPECT_EQ(nearest_within("d=64,128", "d", 65), 128);
  EXPECT_EQ(nearest_within("d=1..64", "d", 100), 64);
  EXPECT_EQ(nearest_within("d=1..64", "dv", 100), 100);
  EXPECT_EQ(nearest_within("d=1e300", "d", 100), Index{1} << 53);
}

TEST(Kernels, WhoseLimitsAdmitNoSizeAreRefusedAndNoneWiderThanIsDrawnIsDrawn) {
  for (const char* none : {"d=0", "dv=0", "d=0.25..0.75", "d=-4..-1 dv=8", "h=0", "b=0", "t=-3..-1"})
    EXPECT_THROW(outside_limits(none, Problem()), BadInput) << none;
  for (const char* some : {"t=0", "d=0..64", "d=0,64", "g=-5..-1"})
    EXPECT_NO_THROW(outside_limits(some, Problem())) << some;
  EXPECT_EQ(no_small_case("d=1024 dv=1..64 t=100000"), "");
  EXPECT_EQ(no_small_case("dv=1025"),
            "the limits admit no case small enough: dv is at least 1025, drawn are at most 1024");
  EXPECT_EQ(drawn_within("d=1024", "d", 6), 1024);
  EXPECT_EQ(drawn_within("d=1025", "d", 6), 6);
  EXPECT_EQ(drawn_within("d=2048", "d", 2048), 2048);
  EXPECT_EQ(drawn_within("t=2000", "t", 5), 2000);
}

TEST(Kernels, SeeInputsRoundedToTheirContract) {
  Problem problem;
  problem.fields["q"] = {{1}, {1 + 0x1p-10}};
  problem.fields["g"] = {{1}, {-1 - 0x1p-30}};
  problem.options.decay = Rational(1) / 10;
  const Problem rounded = round_inputs(parse_contract("input=bf16"), problem);
  EXPECT_EQ(rounded.fields.at("q").data[0], 1);
  EXPECT_EQ(rounded.fields.at("g").data[0], -1);
  EXPECT_EQ(nearest_double(*rounded.options.decay), static_cast<double>(0.1f));
}

TEST(Check, MeasuresTheRelativeNormOfTheWorstHead) {
  const Kernel right = kernel_named("cpu.hla2.chunk64.direct.fp64");
  const auto norm = [](const Kernel& kernel) { return judged(kernel, hla2_case).norm.value(); };
  EXPECT_LT(norm(right), 1e-13);
  const auto times = [](std::vector<double>& o, double factor,
                        std::size_t columns) {  // the second head's alone
    for (std::size_t i = 0; i < o.size(); ++i)
      if (i / columns % 2 == 1) o[i] *= factor;
  };
  EXPECT_NEAR(norm(changed(right, [&](const Problem&, std::vector<double>& o) { times(o, 1.125, 8); })),
              0.125, 1e-12);
  EXPECT_EQ(norm(changed(right, [&](const Problem&, std::vector<double>& o) { o[5] = NAN; })), INFINITY);
  EXPECT_NEAR(
      norm(changed(right, [&](const Problem&, std::vector<double>& o) { times(o, 0x1p600, 8); })) / 0x1p600,
      1, 1e-9);
}

TEST(Check, PassesRightKernels) {
  for (const char* name : {"cpu.hla2.chunk16.direct.fp32", "cpu.hla2.chunk16.subtract.fp32",
                           "cpu.hla2.chunk16.direct.bf16", "cpu.hla2.stream.direct.fp32"}) {
    const Checked checked = judged(kernel_named(name), hla2_case);
    EXPECT_EQ(checked.verdict, Verdict::pass) << name << ": " << checked.reason;
    EXPECT_GT(checked.judgement.grade.power, 0.5) << name;
  }
}

TEST(Check, FailsAKernelThatDropsTheCrossTerm) {
  // o_t = q_t^T S_t C_t: the masked operator without - q_t^T G_t, which is the unmasked one.
  Kernel wrong = kernel_named("cpu.hla2.chunk16.subtract.bf16");
  const Operator& unmasked = operator_named("hla2", "unmasked");
  wrong.run = cpu_kernel(unmasked, {Form::chunk, 16, 0}, "wrong", wrong.contract).run;
  const Checked checked = judged(wrong, hla2_case);
  EXPECT_EQ(checked.verdict, Verdict::fail) << checked.reason;
  EXPECT_GT(checked.judgement.violations, checked.judgement.compared / 4);
  ASSERT_TRUE(checked.whereabouts);
  EXPECT_EQ(checked.whereabouts->heads, "all");
}

TEST(Check, FailsASingleWrongElementAndSaysWhereItIs) {
  const Kernel wrong =
      changed(kernel_named("cpu.hla2.chunk16.direct.fp32"), [](const Problem& p, std::vector<double>& o) {
        o[static_cast<std::size_t>((40 * p.heads + 1) * p.value_dim + 3)] *= 1 + 0x1p-8;
      });
  const Checked checked = judged(wrong, hla2_case);
  EXPECT_EQ(checked.verdict, Verdict::fail);
  EXPECT_EQ(checked.judgement.violations, 1);
  EXPECT_EQ(checked.whereabouts->tokens, "40");
  EXPECT_EQ(checked.whereabouts->chunk_position, "8");
  EXPECT_EQ(checked.whereabouts->heads, "1");
  EXPECT_EQ(checked.whereabouts->columns, "3");
  ASSERT_FALSE(checked.worst.empty());
  EXPECT_EQ(checked.worst[0].token, 40);
  EXPECT_GT(checked.worst[0].ratio, 1);
}

TEST(Check, FailsNaNAndInfinity) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Kernel wrong = changed(kernel_named("cpu.linear.chunk16.fp32"),
                                 [bad](const Problem&, std::vector<double>& o) { o[100] = bad; });
    const Checked checked = judged(wrong, "linear T=32 d=8 dv=8 seed=1");
    EXPECT_EQ(checked.verdict, Verdict::fail);
    EXPECT_TRUE(checked.reason.ends_with((std::isnan(bad) ? "; 1 is NaN" : "; 1 is infinite") +
                                         std::string(", the first o[0,12,0,4]")))
        << checked.reason;
  }
}

TEST(Check, FailsAnOutputOfAnotherShapeAndAKernelThatFails) {
  Kernel wrong = kernel_named("cpu.linear.chunk16.fp32");
  wrong.run = [](const Problem&) { return KernelResult{KernelStatus::ok, "", {{"o", {{1}, {0}}}}, 0}; };
  EXPECT_EQ(judged(wrong, "linear T=32 d=8 dv=8 seed=1").verdict, Verdict::fail);
  wrong.run = [](const Problem&) { return KernelResult{KernelStatus::failed, "crashed", {}, 0}; };
  EXPECT_EQ(judged(wrong, "linear T=32 d=8 dv=8 seed=1").verdict, Verdict::fail);
  wrong.run = [](const Problem&) { return KernelResult{KernelStatus::unsupported, "too large", {}, 0}; };
  EXPECT_EQ(judged(wrong, "linear T=32 d=8 dv=8 seed=1").verdict, Verdict::not_run);
}

TEST(Check, RejectsAClaimThatIsTooGood) {
  Kernel boasting = kernel_named("cpu.hla2.chunk16.direct.bf16");
  boasting.contract = parse_contract("input=bf16 product=fp32 intermediate=fp32 output=bf16");
  EXPECT_EQ(judged(boasting, hla2_case).verdict, Verdict::fail);
}

TEST(Check, ReplaysBitForBit) {
  const Kernel kernel = kernel_named("cpu.gated_delta.chunk16.bf16");
  const std::string line = "gated_delta T=40 d=8 dv=8 H=2 seed=77";
  const Checked first = judged(kernel, line), second = judged(kernel, to_text(first.input));
  ASSERT_FALSE(first.worst.empty());
  EXPECT_EQ(first.worst[0].got, second.worst[0].got);
  EXPECT_EQ(first.worst[0].expected, second.worst[0].expected);
  EXPECT_EQ(first.worst[0].bound, second.worst[0].bound);
  EXPECT_EQ(replay_line(kernel, first.input),
            "attest check --kernel cpu.gated_delta.chunk16.bf16 --case 'gated_delta variant=masked T=40 d=8 "
            "dv=8 H=2 B=1 "
            "recipe=gaussian gates=published seed=77'");
}

TEST(Check, ReplayLinesNameTheDoorAndTheKernelAlone) {
  Kernel kernel = kernel_named("cpu.linear.chunk16.fp32");
  kernel.source = "--process 'python3 mine.py'", kernel.name = "mine[0]*";
  EXPECT_EQ(replay_start(kernel, "attest"),
            "attest check --process 'python3 mine.py' --kernel 'mine\\[0]\\*'");
}

TEST(Check, JudgesPrefixesOfAFileLikeTheFileItself) {
  const std::string file = "reports/baseline/activations/minilm_layer.safetensors";
  Case c;
  c.op = "mamba2", c.input = file, c.tokens = 16;
  const Kernel kernel = kernel_named("cpu.mamba2.chunk16.bf16");
  CheckSource source{c, {8, 16}, {&kernel}, problem_of(c, operator_named("mamba2", "masked").declaration())};
  std::vector<Checked> results;
  check({source}, 2, {[&](const Checked& checked) { results.push_back(checked); }, {}});
  ASSERT_EQ(results.size(), 2u);
  c.tokens = 8;
  const Checked alone = judged(kernel, to_text(c));
  EXPECT_EQ(to_text(results[0].input), to_text(c));
  EXPECT_EQ(results[0].worst[0].got, alone.worst[0].got);
  EXPECT_NEAR(results[0].worst[0].ratio, alone.worst[0].ratio, 1e-9 * alone.worst[0].ratio);
}

TEST(Check, RefusesOptionsThatTheOperatorDoesNotTake) {
  EXPECT_THROW(judged(kernel_named("cpu.linear.chunk16.fp32"), "linear T=8 decay=1/2"), BadInput);
  EXPECT_THROW(judged(kernel_named("cpu.linear.chunk16.fp32"),
                      "linear input=reports/baseline/activations/minilm_layer.safetensors T=300"),
               BadInput);
}

}  // namespace
}  // namespace attest
