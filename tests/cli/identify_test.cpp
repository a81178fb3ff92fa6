// attest identify on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

TEST(IdentifyCommand, NamesAKernelAndListsTheNextCandidates) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "identify --kernel cpu.hla2.printed.stream.fp32 --most 3");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("computes hla2 (printed), as declared"));
  EXPECT_THAT(run.out, HasSubstr("confidence: high"));
  EXPECT_THAT(run.out, HasSubstr("hla2 (printed), the initial state read transposed"));
}

TEST(IdentifyCommand, SaysOnWhatItComparedAndWhatThatDoesNotShow) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "identify --kernel cpu.linear.chunk16.fp32 --shape T=40,d=5,H=1");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("compared on 3 inputs of T=40, d=5, dv=3, H=1, B=2"));
  EXPECT_THAT(run.out, HasSubstr("not that the kernel is right: attest check --battery does"));
  EXPECT_THAT(run.out, HasSubstr("retention (masked), here the same as linear (masked)"));
}

TEST(IdentifyCommand, RefusesAShapeThatIsNone) {
  const TemporaryFolder folder;
  for (const char* shape : {"T=x", "T=0", "T=8,packed=0:8,B=1", "input=a.safetensors"}) {
    const ProgramRun run =
        run_attest(folder, std::string("identify --kernel cpu.linear.chunk16.fp32 --shape ") + shape);
    EXPECT_EQ(run.exit_code, 2) << shape;
    EXPECT_THAT(run.err, HasSubstr("--shape")) << shape;
  }
}

TEST(IdentifyCommand, RefusesAKernelThatIsNotThere) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "identify --kernel cpu.none.*");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("no kernel matches --kernel \"cpu.none.*\""));
}

}  // namespace
}  // namespace attest
