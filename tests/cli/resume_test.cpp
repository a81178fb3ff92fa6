// A check that was killed is continued, and two checks of one seed write the same bytes, times apart.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <thread>

#include "reports/record_file.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Time stamps and durations, and nothing else, replaced.
std::string without_times(const std::string& text) {
  static const std::regex durations(R"re("(kernel_ns|oracle_ns|total_ns|time_ns)":\d+)re"),
      stamps(R"re("(started|finished)":"[^"]*")re");
  return std::regex_replace(std::regex_replace(text, durations, "\"$1\":0"), stamps, "\"$1\":\"\"");
}
std::string records_in(const fs::path& folder) { return without_times(text_of(folder / "records.jsonl")); }

// All lines but the first, which names the command.
std::string cases_in(const fs::path& folder) {
  const std::string text = records_in(folder);
  return text.substr(text.find('\n'));
}

std::size_t lines_of(const fs::path& path) {
  const std::string text = text_of(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

struct Command {
  const char* name;
  const char* arguments;
};

// As a shell runs it, in the folder: the same words whichever folder it is.
class Resume : public testing::TestWithParam<Command> {
 protected:
  ProgramRun run(const fs::path& in, const std::string& more) const {
    fs::create_directories(in);
    const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
    const int status = std::system(("cd '" + in.string() + "' && '" + program() + "' " +
                                    GetParam().arguments + more + " >" + out + " 2>" + err)
                                       .c_str());
    return {WEXITSTATUS(status), text_of(out), text_of(err)};
  }
  static std::string program() { return fs::absolute(std::getenv("ATTEST_PROGRAM")).string(); }

  // Killed as soon as the journal has so many cases; whether it was before the end.
  bool killed_after(const fs::path& in, std::size_t cases) const {
    fs::create_directories(in);
    const std::string line = "cd '" + in.string() + "' && exec '" + program() + "' " + GetParam().arguments +
                             " --output out >/dev/null 2>&1";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    const fs::path journal = in / "out" / "records.journal";
    int status = 0;
    while (lines_of(journal) < cases + 1 && waitpid(child, &status, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return fs::exists(journal);
  }
  TemporaryFolder folder;
};

TEST_P(Resume, AfterAKillAtAnyMomentGivesTheBytesOfARunThatWasNotKilled) {
  const ProgramRun whole = run(folder / "whole", " --output out");
  ASSERT_LE(whole.exit_code, 3) << whole.err;
  EXPECT_FALSE(fs::exists(folder / "whole/out/records.journal"));
  const std::string expected = records_in(folder / "whole/out");
  const std::size_t cases = read_records(folder / "whole/out/records.jsonl").cases.size();
  int caught = 0;
  for (const std::size_t after : {std::size_t{0}, std::size_t{1}, cases / 2, cases - 1}) {
    const fs::path in = folder / ("killed" + std::to_string(after));
    if (!killed_after(in, after)) continue;  // it was faster than the eye
    ++caught;
    EXPECT_FALSE(fs::exists(in / "out/records.jsonl"));
    const std::size_t known = lines_of(in / "out/records.journal");
    const ProgramRun resumed = run(in, " --output out --resume");
    EXPECT_EQ(resumed.exit_code, whole.exit_code) << resumed.err;
    if (known > 0) {
      EXPECT_THAT(resumed.out,
                  HasSubstr("resumed: " + std::to_string(known - 1) + " of " + std::to_string(cases)));
    }
    EXPECT_EQ(records_in(in / "out"), expected) << after;
    EXPECT_TRUE(fs::exists(in / "out/index.html"));
    EXPECT_FALSE(fs::exists(in / "out/records.journal"));
  }
  EXPECT_GE(caught, 2);
}

TEST_P(Resume, GivesTheSameBytesForAnyNumberOfThreadsAndOthersForAnotherSeed) {
  run(folder / "one", " --output out --threads 1");
  run(folder / "three", " --output out --threads 3");
  run(folder / "again", " --output out --threads 3");
  EXPECT_EQ(cases_in(folder / "one/out"), cases_in(folder / "three/out"));
  EXPECT_EQ(records_in(folder / "three/out"), records_in(folder / "again/out"));
  const std::string arguments = GetParam().arguments;
  const std::string other = std::regex_replace(arguments, std::regex("--seed 5"), "--seed 6");
  ASSERT_NE(arguments, other);
  run_attest(folder, other + " --output " + (folder / "other").string());
  EXPECT_NE(cases_in(folder / "one/out"), cases_in(folder / "other"));
}

INSTANTIATE_TEST_SUITE_P(
    Check, Resume,
    testing::Values(Command{"Values",
                            "check --kernel 'cpu.*linear*.chunk16.*' --shape T=96,d=8,dv=8 --shape "
                            "T=64,d=16,dv=16,recipe=range --seed 5"},
                    Command{"Battery",
                            "check --quick --check '[lp]a*' --kernel 'cpu.*linear*.chunk16.*' --seed 5"}),
    [](const auto& info) { return std::string(info.param.name); });

constexpr const char* small = "check --kernel cpu.linear.chunk16.fp32 --shape T=8,d=2,dv=2 ";

// A journal as a killed run leaves it: that of a run which is stopped before its only case can be done.
class Journal : public testing::Test {
 protected:
  ProgramRun check(const std::string& arguments) const {
    return run_attest(folder, arguments + " --output " + out.string());
  }
  void leave_journal(const std::string& arguments) {
    const std::string line = std::string("exec ") + std::getenv("ATTEST_PROGRAM") + ' ' + arguments +
                             " --output " + out.string() + " >/dev/null 2>&1";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    const auto begun = [&] { return text_of(journal).find('\n') != std::string::npos; };
    for (int i = 0; i < 3000 && !begun(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(begun());
  }
  TemporaryFolder folder;
  const fs::path out = folder / "out", journal = out / "records.journal";
};

constexpr const char* slow = "check --kernel cpu.hla3.stream.fp32 --shape T=4096,d=32,dv=32,H=8 --threads 1";

TEST_F(Journal, OfAnotherCommandSeedVersionOrKernelSetIsRefusedInOneLineWithTwo) {
  leave_journal(std::string(slow) + " --seed 1");
  const std::string kept = text_of(journal);
  const auto refused = [&](const std::string& content, const std::string& arguments, const char* why) {
    std::ofstream(journal, std::ios::binary) << content;
    const ProgramRun run = check(arguments + " --resume");
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_THAT(run.err, HasSubstr(why));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(text_of(journal), content) << "a refusal leaves the journal alone";
  };
  refused(kept, std::string(small) + "--seed 1", "is of another command");
  const std::string same = std::string(slow) + " --seed 1";
  for (const auto& [from, to, why] :
       {std::tuple("\"version\":\"[^\"]*\"", "\"version\":\"0.0\"", "is of attest 0.0"),
        std::tuple("\"cases_sha256\":\"..", "\"cases_sha256\":\"zz", "is of other kernels or inputs"),
        std::tuple("\"seed\":1", "\"seed\":2", "is of seed 2, not 1")}) {
    const std::string changed = std::regex_replace(kept, std::regex(from), to);
    ASSERT_NE(changed, kept);
    refused(changed, same, why);
  }
}

TEST_F(Journal, IsReplacedWithoutResumeAndStartsAfreshWhereThereIsNone) {
  leave_journal(std::string(slow) + " --seed 1");
  const ProgramRun replaced = check(std::string(small) + "--seed 1");
  EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_FALSE(fs::exists(journal));
  const ProgramRun fresh = check(std::string(small) + "--seed 1 --resume");
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_THAT(fresh.out, HasSubstr("resumed: 0 of 3 cases"));
}

TEST_F(Journal, KeepsTheSeedThatWasDrawn) {
  leave_journal(slow);
  std::smatch seed;
  const std::string kept = text_of(journal);
  ASSERT_TRUE(std::regex_search(kept, seed, std::regex("\"seed\":(\\d+)")));
  std::ofstream(journal, std::ios::binary)
      << std::regex_replace(kept, std::regex("\"cases_sha256\":\".."), "\"cases_sha256\":\"zz");
  EXPECT_THAT(check(std::string(slow) + " --resume").err, HasSubstr("other kernels or inputs"))
      << "the seed agreed, since it was taken from the journal";
}

TEST(ResumeOption, NeedsAFolderAndIsNotOfTheKillMatrix) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_attest(folder, std::string(small) + "--resume").exit_code, 2);
  EXPECT_EQ(run_attest(folder, "check --mutants --resume --output " + (folder / "x").string()).exit_code, 2);
}

}  // namespace
}  // namespace attest
