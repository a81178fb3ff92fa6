// What a kernel computes is told from its output alone: every registered fp32 kernel is itself, and a kernel with a usual
// fault is named as what it is.
#include "gpu_checks/identify.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

bool names(const Identification& found, const std::string& name) {
  for (const Candidate* candidate : found.matching())
    if (candidate->name == name) return true;
  return false;
}

TEST(Identify, NamesEveryRegisteredKernelOfFp32) {
  int identified = 0;
  for (const Kernel* kernel : find_kernels("*.fp32", "")) {
    if (kernel->op == "hla3" && kernel->variant == "printed" && kernel->how.form != Form::stream)
      continue;  // no decay
    const Identification found = identify(*kernel, 1);
    ASSERT_EQ(found.failure, "") << kernel->name;
    EXPECT_TRUE(names(found, kernel->op + " (" + kernel->variant + ")")) << kernel->name;
    for (const Candidate* candidate : found.matching())
      EXPECT_TRUE(!candidate->near_miss || candidate->name.starts_with(kernel->op))
          << kernel->name << ": " << candidate->name;
    EXPECT_GT(found.margin(), 100) << kernel->name;
    ++identified;
  }
  EXPECT_GT(identified, 30);
}

TEST(Identify, TellsVariantsApartInCoarseFormatsToo) {
  for (const char* name :
       {"cpu.hla2.chunk64.direct.bf16", "cpu.hla2.stream.direct.bf16state", "cpu.ahla.chunk64.bf16",
        "cpu.gated_delta.chunk64.bf16", "cpu.log_linear_mamba2.chunk64.fp16"}) {
    const Kernel& kernel = *find_kernels(name, "").at(0);
    const Identification found = identify(kernel, 1);
    EXPECT_TRUE(names(found, kernel.op + " (masked)")) << name;
    EXPECT_EQ(found.matching().size(), 1) << name;
  }
}

// A kernel that runs another operator, or other inputs, than it announces.
Kernel impostor(const std::string& announced, const std::function<KernelResult(const Problem&)>& run) {
  Kernel kernel = *find_kernels("cpu." + announced + ".stream*.fp32", "").at(0);
  kernel.run = run;
  return kernel;
}

TEST(Identify, TellsThePrintedDecayFromTheMaskedOperator) {
  const Kernel& printed = *find_kernels("cpu.hla2.printed.stream.fp32", "").at(0);
  const Identification found = identify(impostor("hla2", printed.run), 1);
  EXPECT_TRUE(names(found, "hla2 (printed)"));
  EXPECT_FALSE(names(found, "hla2 (masked)"));
}

TEST(Identify, NamesAFault) {
  const Kernel& right = *find_kernels("cpu.mamba2.stream.fp32", "").at(0);
  const Identification swapped = identify(impostor("mamba2",
                                                   [&](const Problem& problem) {
                                                     Problem other = problem;
                                                     std::swap(other.fields.at("q"), other.fields.at("k"));
                                                     return right.run(other);
                                                   }),
                                          1);
  EXPECT_TRUE(names(swapped, "mamba2 (masked), q and k swapped"));
  EXPECT_FALSE(names(swapped, "mamba2 (masked)"));
  const Identification ungated = identify(impostor("mamba2",
                                                   [&](const Problem& problem) {
                                                     Problem other = problem;
                                                     for (double& g : other.fields.at("g").data) g = 0;
                                                     return right.run(other);
                                                   }),
                                          1);
  EXPECT_TRUE(names(ungated, "mamba2 (masked), no gates"));
  EXPECT_TRUE(names(ungated, "linear (masked)"));
}

TEST(Identify, OfAKernelThatMatchesNothingGivesTheSmallestCase) {
  const Kernel& right = *find_kernels("cpu.linear.stream.fp32", "").at(0);
  const Identification found =
      identify(impostor("linear",
                        [&](const Problem& problem) {
                          KernelResult result = right.run(problem);
                          for (std::size_t i = 0; i < result.outputs.at("o").data.size(); ++i)
                            result.outputs.at("o").data[i] += i % 7 == 3 ? 0.5 : 0;
                          return result;
                        }),
               1);
  EXPECT_TRUE(found.matching().empty());
  EXPECT_NE(found.smallest.find("T=1 "), std::string::npos) << found.smallest;
}

TEST(Identify, SaysWhyAKernelDidNotRun) {
  const Identification found =
      identify(impostor("linear",
                        [](const Problem&) {
                          return KernelResult{KernelStatus::failed, "out of luck", {}, 0};
                        }),
               1);
  EXPECT_EQ(found.failure, "out of luck");
}

}  // namespace
}  // namespace attest
