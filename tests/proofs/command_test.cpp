// attest prove as a user calls it.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

struct Outcome {
  int code;
  std::string output;
};
Outcome run(const std::string& arguments) {
  const char* program = std::getenv("ATTEST_PROGRAM");
  if (!program) return {-1, "ATTEST_PROGRAM is not set"};
  FILE* pipe = popen((std::string(program) + " " + arguments + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WEXITSTATUS(status), output};
}

TEST(ProveCommand, DecidesWritesItsFileAndPrintsATable) {
  const auto file =
      std::filesystem::temp_directory_path() / ("attest_prove_" + std::to_string(getpid()) + ".json");
  const Outcome outcome =
      run("prove --claim 'hla.thm3.1*' --claim hla.fig1c --seed 5 --controls --json " + file.string());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("hla.thm3.1.matrix"), std::string::npos);
  EXPECT_NE(outcome.output.find("3 claims"), std::string::npos) << outcome.output;
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in);
  std::filesystem::remove(file);
  EXPECT_EQ(json["schema"], "attest.claims/1");
  EXPECT_EQ(json["seed"], 5);
  ASSERT_EQ(json["claims"].size(), 3u);
  for (const auto& claim : json["claims"])
    EXPECT_EQ(claim["verdict"], claim["id"] == "hla.fig1c" ? "refuted" : "holds");
}

TEST(ProveCommand, RefutationsAreNoFailure) { EXPECT_EQ(run("prove --claim hla.sec4.3 --seed 1").code, 0); }

TEST(ProveCommand, PrintsTheSeedItDraws) {
  EXPECT_EQ(run("prove --claim hla.eq3.2.metric").output.rfind("seed ", 0), 0u);
}

TEST(ProveCommand, RefusesAGlobThatMatchesNothingInOneLine) {
  const Outcome outcome = run("prove --claim nothing.here");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.output.find("nothing.here"), std::string::npos);
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

TEST(ProveCommand, RefusesTooFewTrialsAndAnUnwritableFile) {
  EXPECT_EQ(run("prove --claim hla.eq3.2.metric --trials 1").code, 2);
  EXPECT_EQ(run("prove --claim hla.eq3.2.metric --json /no/such/folder/claims.json").code, 2);
}

}  // namespace
