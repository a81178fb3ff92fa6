// The workflow that users copy: every command of the program in it exists, with the options that it names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

TEST(CiExample, NamesOnlyCommandsAndOptionsThatExist) {
  std::ifstream file("reports/ci/github_workflow.yml");
  ASSERT_TRUE(file);
  std::stringstream text;
  text << file.rdbuf();
  const std::string workflow = text.str();
  const TemporaryFolder folder;
  const std::regex call("build/attest (\\w+)([^|\n]*(\n +--[^|\n]*)*)"), option("--[a-z-]+");
  int calls = 0;
  for (auto it = std::sregex_iterator(workflow.begin(), workflow.end(), call); it != std::sregex_iterator();
       ++it, ++calls) {
    const std::string arguments = (*it)[2];
    const ProgramRun help = run_attest(folder, std::string((*it)[1]) + " --help");
    ASSERT_EQ(help.exit_code, 0) << (*it)[1];
    for (auto o = std::sregex_iterator(arguments.begin(), arguments.end(), option);
         o != std::sregex_iterator(); ++o)
      EXPECT_THAT(help.out, testing::HasSubstr(o->str())) << (*it)[1];
  }
  EXPECT_GE(calls, 5);
}

}  // namespace
}  // namespace attest
