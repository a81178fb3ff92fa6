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
  EXPECT_THAT(run.out, HasSubstr("hla2 (printed), decay shifted by one token"));
}

TEST(IdentifyCommand, RefusesAKernelThatIsNotThere) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "identify --kernel cpu.none.*");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("no kernel matches --kernel \"cpu.none.*\""));
}

}  // namespace
}  // namespace attest
