// mpirun attest fuzz on four ranks of this machine. Skipped where there is no mpirun, or attest was built without MPI.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

int exit_code_of(const std::string& line) {
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class MpiRun : public testing::Test {
 protected:
  void SetUp() override {
    if (exit_code_of("command -v mpirun >" + path("which")) != 0)
      GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)";
    const ProgramRun tried = run(2, "--kernel cpu.linear.stream.fp32 --cases 1 --seed 1");
    if (tried.err.find("built without MPI") != std::string::npos) GTEST_SKIP() << tried.err;
    ASSERT_EQ(tried.exit_code, 0) << tried.err;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // LeakSanitizer would report what Open MPI keeps.
  static std::string mpirun(int ranks) {
    return "ASAN_OPTIONS=detect_leaks=0 timeout 200 mpirun -q --oversubscribe --allow-run-as-root -n " +
           std::to_string(ranks) + ' ' + std::getenv("ATTEST_PROGRAM") + " fuzz ";
  }
  ProgramRun run(int ranks, const std::string& arguments) const {
    const int code = exit_code_of(mpirun(ranks) + arguments + " >" + path("out") + " 2>" + path("err"));
    return {code, text_of(path("out")), text_of(path("err"))};
  }
  // What was found, without times and paths.
  static Json found(const std::string& file) {
    Json kernels = Json::parse(text_of(file)).at("kernels");
    for (Json& kernel : kernels) {
      kernel.erase("seconds");
      for (Json& check : kernel["checks"]) check.erase("cpu_seconds");
    }
    return kernels;
  }

  TemporaryFolder folder_;
};

TEST_F(MpiRun, FourRanksFindWhatOneProcessFinds) {
  for (const std::string name : {"mutant.hla2.decay_late", "mutant.gated_delta.exp_start_anchor"}) {
    const std::string hunt = "--kernel " + name + " --cases 60 --seed 5 --json ";
    EXPECT_EQ(run_attest(folder_, "fuzz " + hunt + path("one.json")).exit_code, 1) << name;
    const ProgramRun four = run(4, hunt + path("four.json"));
    EXPECT_EQ(four.exit_code, 1) << four.err;
    EXPECT_THAT(four.out, HasSubstr("4 ranks"));
    EXPECT_EQ(found(path("one.json")), found(path("four.json"))) << name;
    EXPECT_FALSE(found(path("four.json")).at(0).at("findings").empty());
    // The comparison tells hunts apart.
    run_attest(folder_, "fuzz --kernel " + name + " --cases 60 --seed 6 --json " + path("other.json"));
    EXPECT_NE(found(path("one.json")), found(path("other.json"))) << name;
  }
}

TEST_F(MpiRun, WhatAKilledRankLeavesIsListedAndDoneByTheResumedRun) {
  const std::string hunt = "--kernel mutant.hla2.decay_late --cases 300 --seed 5 ";
  ASSERT_EQ(run_attest(folder_, "fuzz " + hunt + "--json " + path("whole.json")).exit_code, 1);
  // The last child of mpirun, killed as soon as it has answered ten times.
  const std::string output = "--output " + path("run"), journal = path("run") + "/journal.3.jsonl";
  std::ofstream(path("kill.sh"))
      << mpirun(4) << hunt << output << " >" << path("out") << " 2>&1 &\n"
      << "for i in $(seq 2000); do sleep 0.02\n"
      << "  [[ $(grep -c answer " << journal << " 2>/dev/null) -gt 10 ]] && break\ndone\n"
      << "for p in $(grep -lsz '^OMPI_COMM_WORLD_RANK=3$' /proc/[0-9]*/environ); do\n"
      << "  grep -qz '" << path("run") << "' ${p%environ}cmdline && kill -9 $(basename ${p%/environ})\n"
      << "done\nwait\n";
  exit_code_of("bash " + path("kill.sh"));
  ASSERT_TRUE(std::filesystem::exists(journal)) << text_of(path("out"));
  ASSERT_FALSE(std::filesystem::exists(path("run") + "/fuzz.json")) << "it was killed too late";

  const ProgramRun other = run(4, hunt + output + " --objective error --resume");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("of another command"));
  EXPECT_EQ(std::count(other.err.begin(), other.err.end(), '\n'), 1) << other.err;

  const ProgramRun resumed = run(4, hunt + output + " --resume");
  EXPECT_EQ(resumed.exit_code, 1) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("cases were answered before"));
  EXPECT_THAT(resumed.out, HasSubstr("not run: mutant.hla2.decay_late "));
  EXPECT_EQ(found(path("whole.json")), found(path("run") + "/fuzz.json"));
  EXPECT_FALSE(std::filesystem::exists(journal)) << "a finished run has nothing to go on with";
  // From the ranges, as many cases as the journals lacked.
  const std::string gaps =
      Json::parse(text_of(path("run") + "/fuzz.json")).at("not_run_before").at("mutant.hla2.decay_late");
  EXPECT_THAT(gaps, testing::EndsWith("-300"));
}

// A kernel that is wrong and takes its time: what one rank shrinks does not begin with a time of its own.
TEST_F(MpiRun, TheRanksEndWithTheTimeOfTheHunt) {
  const std::string hunt = " --seed 1 --batch 12 --json " + path("x.json");
  const ProgramRun wrong = run(
      3, "--process 'python3 tests/adapters/plugins/hostile.py slow_and_drops_last_token' --time 10s" + hunt);
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  const Json found = Json::parse(text_of(path("x.json"))).at("kernels").at(0);
  EXPECT_LT(found.at("seconds"), 11.5);
  EXPECT_FALSE(found.at("findings").at(0).at("shrinking_finished")) << "it was not shrunk for long enough";
  // Every rank is cut in the question that it is at.
  const ProgramRun silent =
      run(3, "--process 'python3 tests/adapters/plugins/hostile.py is_silent' --time 3s" + hunt);
  EXPECT_EQ(silent.exit_code, 3) << silent.out << silent.err;
  const Json cut = Json::parse(text_of(path("x.json"))).at("kernels").at(0);
  EXPECT_LT(cut.at("seconds"), 5);
  EXPECT_EQ(cut.at("unanswered"), 3);
  EXPECT_THAT(silent.out, HasSubstr("not answered before the end: 3"));
}

TEST_F(MpiRun, ADamagedJournalIsRefusedInOneLine) {
  std::filesystem::create_directories(path("run"));
  const std::string hunt = "--kernel cpu.linear.stream.fp32 --cases 4 --seed 5 --output " + path("run");
  std::ofstream(path("run") + "/journal.0.jsonl") << "{}\n";
  const ProgramRun refused = run(2, hunt + " --resume");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("journal.0.jsonl: is no journal of a hunt"));
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
}

TEST_F(MpiRun, BadInputIsOneLineOfOneRank) {
  for (const std::string arguments :
       {"--kernel no.such.kernel --cases 5", "--kernel cpu.linear.stream.fp32 --cases 0",
        "--kernel cpu.linear.stream.fp32 --cases 5 --threads 2",
        "--kernel cpu.linear.stream.fp32 --cases 5 --workers 2",
        "--kernel cpu.linear.stream.fp32 --cases 5 --output /proc/attest",
        "--minimise --corpus fuzz/corpus"}) {
    const ProgramRun refused = run(3, arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

// Each rank's kernel writes down the GPU that it sees.
TEST_F(MpiRun, EachRankHasTheGpuOfItsPlace) {
  if (exit_code_of("/usr/bin/python3 -c 'import numpy' 2>" + path("why")) != 0)
    GTEST_SKIP() << "no NumPy for /usr/bin/python3";
  std::ofstream(path("kernel.py"))
      << "import os\nfrom attest_adapter import kernel, serve\n"
      << "@kernel(op='linear', form='direct', contract='input=fp32 output=fp32')\n"
      << "def seen(q, k, v, **options):\n"
      << "  open('" << path("gpu.") << "' + os.environ['OMPI_COMM_WORLD_RANK'], 'w')"
      << ".write(os.environ['CUDA_VISIBLE_DEVICES'])\n  raise ValueError('no')\nserve()\n";
  setenv("CUDA_VISIBLE_DEVICES", "4,GPU-ab", 1);
  setenv("PYTHONPATH", "gpu_checks/adapters", 1);
  const ProgramRun all = run(3, "--process '/usr/bin/python3 " + path("kernel.py") + "' --cases 12 --seed 1");
  unsetenv("CUDA_VISIBLE_DEVICES"), unsetenv("PYTHONPATH");
  EXPECT_EQ(all.exit_code, 1) << all.out << all.err;
  EXPECT_EQ(text_of(path("gpu.0")), "4");
  EXPECT_EQ(text_of(path("gpu.1")), "GPU-ab");
  EXPECT_EQ(text_of(path("gpu.2")), "4");
}

}  // namespace
}  // namespace attest
