// Cases on which a correct kernel was once called wrong, each with what the bound had left out. They may pass or
// prove nothing; they may not fail. The control of the check itself stands in check_test.cpp: a wrong kernel fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_checks/kernel.hpp"
#include "reference/cases/case.hpp"
#include "reference/forms/batch.hpp"
#include "reference/metrics/bound.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

struct WorstCase {
  const char *kernel, *line, *left_out;
};

constexpr WorstCase cases[] = {
    {"cpu.log_linear_mamba2.chunk64.tf32",
     "log_linear_mamba2 variant=masked T=128 d=32 dv=32 H=2 B=1 recipe=gaussian gates=extreme seed=1",
     "underflow of a weight in tf32"},
    {"cpu.log_linear_mamba2.chunk64.fp16",
     "log_linear_mamba2 variant=masked T=128 d=32 dv=32 H=2 B=1 recipe=gaussian gates=extreme seed=1",
     "subnormal weights in fp16"},
    {"cpu.log_linear_gated_delta.chunk64.fp16",
     "log_linear_gated_delta variant=masked T=128 d=32 dv=32 H=2 B=1 recipe=gaussian gates=extreme seed=1",
     "subnormal weights in fp16"},
    {"cpu.log_linear_mamba2.stream.fp32",
     "log_linear_mamba2 variant=masked T=70 d=2 dv=2 H=1 B=1 recipe=growing gates=extreme seed=6",
     "subnormal states in fp32"},
    {"cpu.gated_delta.stream.fp32",
     "gated_delta variant=masked T=17 d=3 dv=2 H=2 B=1 recipe=bits gates=extreme seed=5",
     "a gate that is subnormal"},
    {"cpu.retention.chunk64.fp16",
     "retention variant=masked T=17 d=3 dv=2 H=2 B=1 recipe=denormal gates=published seed=5",
     "subnormal operands in fp16"},
    {"cpu.hla2.chunk64.subtract.tf32",
     "hla2 variant=masked T=17 d=3 dv=2 H=2 B=1 recipe=denormal gates=published seed=5",
     "subnormal operands in tf32"},
    {"cpu.delta.chunk16.bf16", "delta variant=masked T=17 d=3 dv=2 H=2 B=1 recipe=bits gates=none seed=5",
     "second order: a huge state annihilated by its key"},
    {"cpu.linear.chunk64.bf16",
     "linear variant=masked T=128 d=16 dv=16 H=2 B=1 scale=0.1 recipe=gaussian gates=published seed=1",
     "rounding of a scaled query"},
    {"cpu.log_linear_gated_delta.stream.fp32",
     "log_linear_gated_delta variant=masked T=33 d=1 dv=5 H=4 B=1 Hk=1 scale=1024 recipe=denormal "
     "gates=extreme "
     "seed=597028678",
     "underflow of the gate of a query"},
};

class WorstCases : public testing::TestWithParam<WorstCase> {};

TEST_P(WorstCases, DoNotFailACorrectKernel) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(
      folder, std::string("check --kernel ") + GetParam().kernel + " --case '" + GetParam().line + "'");
  EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 3) << GetParam().left_out << "\n" << run.out << run.err;
}
// The control: without what lies beyond first order the bound would be too small.
TEST_P(WorstCases, ExceedTheFirstOrderAlone) {
  const Kernel& kernel = *find_kernels(GetParam().kernel, "").at(0);
  const Case input = parse_case(GetParam().line);
  const Operator& op = *find_operator(input.op, input.variant);
  const Problem problem = round_inputs(kernel.contract, draw_problem(input, op.declaration()));
  const KernelResult result = kernel.run(problem);
  const Tensor& o = result.outputs.at("o");
  const PrecisionScope precision(2048);  // values of any exponent cancel
  Index beyond = 0;
  for (const Slot& slot : slots(problem)) {
    const Head<double> head = head_of<double>(problem, op.declaration(), slot);
    const Evaluator<Interval>& oracle = op;
    const Matrix<Interval> exact = oracle.evaluate(head_of<Interval>(problem, op.declaration(), slot)).o;
    ErrorModel first = first_order_model(op, head, kernel.how, kernel.contract);
    for (Index t = 0; t < exact.rows(); ++t)
      for (Index c = 0; c < exact.cols(); ++c) {
        const Index at =
            ((slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head) * problem.value_dim +
            c;
        beyond += std::abs(o.data[static_cast<std::size_t>(at)] - enclosure_of(exact(t, c)).high) >
                  first.deterministic(t, c);
      }
  }
  EXPECT_GT(beyond, 0) << GetParam().left_out;
}

INSTANTIATE_TEST_SUITE_P(Known, WorstCases, testing::ValuesIn(cases));

}  // namespace
}  // namespace attest
