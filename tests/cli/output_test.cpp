// What attest check leaves on the disk: all of its results or none, whatever stops it; and lines that repeat a case.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "reference/tensor/atomic_file.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  if (fs::exists(folder))
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      names.push_back(fs::relative(entry.path(), folder));
  std::sort(names.begin(), names.end());
  return names;
}

constexpr const char* quick =
    "check --kernel cpu.linear.chunk16.fp32 --shape T=8,d=2,dv=2 --seed 1 --output ";

TEST(Output, IsPutInPlaceTogether) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, quick + (folder / "a/b").string() + " --json " + (folder / "v.json").string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(names_in(folder / "a"), (std::vector<std::string>{"b", "b/index.html", "b/records.jsonl"}));
}

TEST(Output, ThatDoesNotFitIsNoSuccess) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const TemporaryFolder folder;
  const std::string program = std::getenv("ATTEST_PROGRAM"), errors = (folder / "err").string();
  const int status = std::system((program + " list --kernels >/dev/full 2>" + errors).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(text_of(errors), "attest: standard output cannot be written, expected room for the answer\n");
}

TEST(Output, IsNotLeftInPartWhenOneFileCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  const auto refused = [&](const std::string& more) {
    const ProgramRun run = run_attest(folder, quick + out + more);
    EXPECT_EQ(run.exit_code, 2) << more;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  };
  refused(" --json /dev/full");  // found out at the end
  EXPECT_FALSE(fs::exists(out));
  refused(" --json " + (folder / "missing" / "v.json").string());
  EXPECT_FALSE(fs::exists(out));
  refused(" --json " + out + "/records.jsonl");
  refused(" --json " + out + "/index.html");
  EXPECT_FALSE(fs::exists(out));
  for (const std::string name : {"index.html", "records.jsonl"}) {
    fs::create_directories(fs::path(out) / name);
    refused("");
    EXPECT_EQ(names_in(out), std::vector<std::string>{name});
    fs::remove_all(out);
  }
}

class Interrupted : public testing::TestWithParam<int> {};

// Starts a check of minutes and stops it as soon as its three temporaries are there.
std::vector<std::string> left_by(int signal_number) {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), json = (folder / "v.json").string();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1), dup2(null, 2);
    const char* program = std::getenv("ATTEST_PROGRAM");
    execl(program, program, "check", "--kernel", "cpu.hla3.stream*", "--shape", "T=4096,d=32,dv=32,H=8",
          "--seed", "1", "--output", out.c_str(), "--json", json.c_str(), "--threads", "1", nullptr);
    _exit(127);
  }
  const auto temporaries = [&] {
    std::vector<std::string> found;
    for (const std::string& name : names_in(folder.path()))
      if (name.find(".attest-") != name.npos || name.ends_with(".partial")) found.push_back(name);
    return found;
  };
  for (int i = 0; i < 600 && temporaries().size() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(temporaries().size(), 3u);
  kill(child, signal_number);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal_number) << status;
  for (const std::string name : {"out/index.html", "out/records.jsonl", "v.json"})
    EXPECT_FALSE(fs::exists(folder / name)) << name;
  return temporaries();
}

TEST_P(Interrupted, LeavesNoTemporary) { EXPECT_EQ(left_by(GetParam()), std::vector<std::string>{}); }
INSTANTIATE_TEST_SUITE_P(Output, Interrupted, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& info) { return std::string("By") + sigabbrev_np(info.param); });

// The control: a signal that no program can handle leaves what the others remove.
TEST(Output, OfAKilledRunIsLeftUnderTemporaryNames) { EXPECT_EQ(left_by(SIGKILL).size(), 3u); }

// What a check says when a signal ends it, once its journal is there.
std::string last_words(std::vector<std::string> arguments) {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY), file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(null, 1), dup2(file, 2);
    const std::string program = std::getenv("ATTEST_PROGRAM");
    arguments.insert(arguments.begin(), {program, "check"});
    arguments.insert(arguments.end(), {"--seed", "1", "--output", out, "--threads", "1"});
    std::vector<char*> words;
    for (std::string& one : arguments) words.push_back(one.data());
    words.push_back(nullptr);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  for (int i = 0; i < 600 && !fs::exists(out + "/records.journal"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  return text_of(err);
}

TEST(Output, OfABatteryThatIsInterruptedSaysInALineHowFarItCame) {
  EXPECT_THAT(
      last_words({"--battery", "--full", "--kernel", "cpu.hla3.*.fp32"}),
      testing::MatchesRegex("attest: interrupted after [0-9]+ of [0-9]+ kernels; --resume goes on\n"));
  EXPECT_THAT(last_words({"--battery", "--full", "--kernel", "cpu.hla3.chunk64.fp32"}),
              testing::MatchesRegex("attest: interrupted after [0-9]+ of 15 checks\n"));
}

TEST(Output, OfACheckThatIsInterruptedSaysInALineHowFarItCame) {
  EXPECT_THAT(last_words({"--kernel", "cpu.hla3.*.fp32", "--shape", "T=2048,d=64,dv=64,H=2"}),
              testing::MatchesRegex("attest: interrupted after [0-9]+ of 36 cases; --resume goes on\n"));
}

class Replay : public testing::Test {
 protected:
  Replay() { fs::create_symlink(fs::absolute(std::getenv("ATTEST_PROGRAM")), folder / "prog ram"); }
  ProgramRun shell(const std::string& line) const {
    const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
    const int status =
        std::system(("cd '" + folder.path().string() + "' && " + line + " >" + out + " 2>" + err).c_str());
    return {WEXITSTATUS(status), text_of(out), text_of(err)};
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> replays;
    const auto document = nlohmann::json::parse(text_of(folder / "v.json"));
    for (const auto& entry : document["kernels"]) replays.push_back(entry["replay"]);
    return replays;
  }
  TemporaryFolder folder;
};

TEST_F(Replay, LinesRunAsPrintedFromTheFolderOfTheFirstRun) {
  ASSERT_EQ(shell("'./prog ram' check --kernel cpu.linear.chunk16.fp32 --shape T=8,d=2,dv=2 --json v.json")
                .exit_code,
            0);
  ASSERT_EQ(lines().size(), 3u);
  for (const std::string& line : lines()) {
    EXPECT_TRUE(line.starts_with("'./prog ram' check ")) << line;
    const ProgramRun again = shell(line);
    EXPECT_EQ(again.exit_code, 0) << line << again.err;
    EXPECT_THAT(again.out, HasSubstr("PASS"));
  }
}

TEST_F(Replay, OfAFileNoticesThatTheFileHasChanged) {
  const auto fields = [&](double last) {
    const Tensor x{{4, 1}, {1, 2, 3, last}};
    write_fields(folder / "in put.safetensors", {{"q", x}, {"k", x}, {"v", x}});
  };
  fields(4);
  ASSERT_EQ(
      shell("'./prog ram' check --kernel cpu.linear.chunk16.fp32 --input 'in put.safetensors' --json v.json")
          .exit_code,
      0);
  const std::string line = lines().back();
  EXPECT_THAT(line, HasSubstr("checksum=fnv1a64-"));
  EXPECT_EQ(shell(line).exit_code, 0) << shell(line).err;
  fields(5);
  const ProgramRun changed = shell(line);
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_EQ(std::count(changed.err.begin(), changed.err.end(), '\n'), 1) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr("in put.safetensors: checksum fnv1a64-"));
}

}  // namespace
}  // namespace attest
