// The plain driver of the fuzzing targets: what is planted is found and can be repeated, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

struct Driven {
  bool fine = false;
  int exit_code = -1;
  std::string out, err;
};

class Driver : public testing::Test {
 protected:
  Driven run(const std::string& target, const std::string& arguments,
             const std::string& environment = "") const {
    const auto program =
        std::filesystem::path(std::getenv("ATTEST_PROGRAM")).parent_path() / "fuzz/targets" / target;
    const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
    const int status = std::system(
        (environment + " " + program.string() + " " + arguments + " >" + out + " 2>" + err).c_str());
    return {status == 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(out), text_of(err)};
  }
  TemporaryFolder folder;
};

const std::string planted = "fuzz_planted", seeds = "--mutations 2000 --seconds 1 tests/fuzz_targets/seeds ";

TEST_F(Driver, FindsNothingWhereNothingIsPlanted) {
  const Driven driven = run(planted, seeds);
  EXPECT_TRUE(driven.fine) << driven.err;
  EXPECT_THAT(driven.out, HasSubstr("1 files, 2001 inputs, seed 1: nothing found"));
}

TEST_F(Driver, FindsEveryPlantedBugAndRepeatsItFromTheLineThatItPrints) {
  for (const char* bug : {"crash", "fault", "exception", "overflow", "hang"}) {
    const std::string environment = std::string("PLANTED=") + bug;
    const Driven found = run(planted, seeds, environment);
    EXPECT_FALSE(found.fine) << bug;
    std::smatch only;
    ASSERT_TRUE(std::regex_search(found.err, only, std::regex("fault with --seed 1 (--only \\S+:\\d+)")))
        << bug << found.err;
    EXPECT_EQ(found.err.find("did not end in time") != std::string::npos, bug == std::string("hang"));
    const std::string again = seeds + only[1].str();
    EXPECT_FALSE(run(planted, again, environment).fine) << bug;
    EXPECT_TRUE(run(planted, again).fine) << "not the bug of " << bug << ", but of the driver";
    const Driven shown = run(planted, again + " --show", environment);
    EXPECT_TRUE(shown.fine) << bug;
    EXPECT_NE(shown.out, text_of("tests/fuzz_targets/seeds/small")) << "the seed itself has no bug";
  }
}

TEST_F(Driver, MakesTheSameInputsEveryTimeAndOthersOfAnotherSeed) {
  const std::string show = seeds + "--show --only tests/fuzz_targets/seeds/small:";
  int same = 0;
  for (const char* index : {"1", "7", "300"}) {
    const std::string one = run(planted, show + index).out;
    EXPECT_EQ(one, run(planted, show + index).out);
    same += one == run(planted, "--seed 2 " + show + index).out;
  }
  EXPECT_LT(same, 3);
  EXPECT_EQ(run(planted, show + "0").out, text_of("tests/fuzz_targets/seeds/small"));
}

TEST_F(Driver, RefusesAnEmptyCorpusAndWhatItDoesNotKnow) {
  std::filesystem::create_directory(folder / "empty");
  for (const std::string& arguments :
       {std::string(), (folder / "empty").string(), std::string("nowhere"), seeds + "--mutations x",
        seeds + "--other", seeds + "--show", seeds + "--only tests/fuzz_targets/seeds/small:2001"}) {
    const Driven refused = run(planted, arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

// The importer is Python: the driver makes the files, a script reads them.
TEST_F(Driver, MakesFilesForTheImporterOfFlashinferWhichTakesOrRefusesEachInOneLine) {
  std::filesystem::create_directory(folder / "damaged");
  const std::string damaged = (folder / "damaged").string(), files = " tests/adapters/flashinfer/";
  const Driven made = run(planted, "--mutations 700 --write " + damaged + files + "definition.json" + files +
                                       "right.json" + files + "workloads.jsonl");
  ASSERT_TRUE(made.fine) << made.err;
  std::string python = "/usr/bin/python3";
  if (std::system("python3 -c 'import numpy' 2>/dev/null") == 0) python = "python3";
  const std::string script = python + " tests/fuzz_targets/damaged_flashinfer.py " + damaged + " >" +
                             (folder / "said").string() + " 2>&1";
  ASSERT_EQ(std::system(script.c_str()), 0) << text_of(folder / "said");
  int taken = 0, refused = 0;
  ASSERT_EQ(std::sscanf(text_of(folder / "said").c_str(), "%d taken, %d refused", &taken, &refused), 2);
  EXPECT_EQ(taken + refused, 3 * 701);
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 500);
  EXPECT_NE(std::system(("PLANTED=.0 " + script).c_str()), 0) << "an exception is not taken for a refusal";
  EXPECT_THAT(text_of(folder / "said"), HasSubstr("is no refusal"));
}

TEST_F(Driver, FindsWrongKernelsThroughTheTargetOfKernels) {
  const Driven found =
      run("fuzz_kernel", "--mutations 30 fuzz/targets/seeds/kernel", "ATTEST_FUZZ_MUTANTS=1");
  EXPECT_FALSE(found.fine);
  EXPECT_THAT(found.err, HasSubstr("fault: mutant."));
  EXPECT_THAT(found.err, HasSubstr("fuzz driver: fault with --seed 1 --only fuzz/targets/seeds/kernel/"));
}

}  // namespace
}  // namespace attest
