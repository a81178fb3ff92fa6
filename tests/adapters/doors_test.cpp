// Kernels behind doors as a user meets them: whatever their code does, the run goes on and the record says what it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "gpu_checks/adapters/sha256.hpp"
#include "reports/record_file.hpp"
#include "tests/adapters/plugin_path.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string shape = " --seed 1 --shape T=12,d=4,dv=4 --whole ";

std::string python(const std::string& how) { return "python3 tests/adapters/plugins/hostile.py " + how; }

// What every kernel of a run was called.
struct Verdicts {
  std::map<std::string, CaseRecord> by_kernel;
  ProgramRun run;
};
Verdicts judge(const std::string& arguments) {
  const TemporaryFolder folder;
  Verdicts verdicts;
  const std::string out = (folder / "report").string();
  verdicts.run = run_attest(folder, "check " + arguments + " --output " + out);
  EXPECT_TRUE(std::filesystem::exists(folder / "report" / "records.jsonl")) << verdicts.run.err;
  if (std::filesystem::exists(folder / "report" / "records.jsonl"))
    for (const CaseRecord& record : read_records(folder / "report" / "records.jsonl").cases)
      verdicts.by_kernel[record.kernel.name] = record;
  return verdicts;
}

struct Expected {
  const char* kernel;
  Verdict verdict;
  const char* reason;
};

TEST(Plugin, EveryKindOfMisconductIsAVerdictOfThatCaseAndTheRunGoesOn) {
  const Verdicts found = judge("--plugin " + plugin("hostile") + shape + "--time-limit 2");
  constexpr Verdict pass = Verdict::pass, fail = Verdict::fail;
  const std::vector<Expected> table = {
      {"correct", pass, ""},
      {"chatty", pass, ""},
      {"ignores_strides", pass, ""},
      {"leaves_a_copy", pass, ""},
      {"drops_last_token", fail, "4 of 48 elements exceed the bound"},
      {"leaves_last_row", fail, "left 4 of 48 elements of the output o unwritten"},
      {"writes_nothing", fail, "left 48 of 48 elements of the output o unwritten"},
      {"null_pointer", fail, "died of signal SIGSEGV (Segmentation fault): it wrote to a null pointer"},
      {"wild_write", fail,
       "died of signal SIGSEGV (Segmentation fault): it wrote to an address that is not its own"},
      {"far_write", fail,
       "died of signal SIGSEGV (Segmentation fault): it wrote to memory far from any output"},
      {"writes_after_end", fail, "wrote where no output lies: byte 9 after the end of the output o"},
      {"writes_before_start", fail, "wrote where no output lies: 4 bytes before the output o"},
      {"writes_to_input", fail, "SIGSEGV (Segmentation fault): it wrote to an input or beside it"},
      {"writes_into_input", fail, "SIGSEGV (Segmentation fault): it wrote to an input or beside it"},
      {"aborts", fail, "died of signal SIGABRT (Aborted); it printed: \"half a line before the end\""},
      {"raises_a_fault", fail, "the kernel died of signal SIGSEGV (Segmentation fault)"},
      {"sends_itself_a_bus_error", fail, "the kernel died of signal SIGBUS (Bus error)"},
      {"divides_by_zero", fail, "died of signal SIGFPE"},
      {"overflows_stack", fail, "died of signal SIGSEGV"},
      {"exits", fail, "ended itself with exit code 3; it printed: \"I have had enough\""},
      {"exits_well", fail, "ended itself with exit code 0"},
      {"never_returns", fail, "did not return within 2 s; it printed: \"thinking ...\""},
      {"never_returns_and_says_it_did", fail, "did not return within 2 s"},
      {"kills_supervisor", fail, "did not return within 2 s"},
      {"closes_everything", fail, "ended itself with exit code 0"},
      {"writes_to_socket", fail, "wrote to a socket that is not its own"},
      {"writes_of_a_crash", fail, "wrote to a socket that is not its own: it slept"},
      {"fails", fail, "says that it failed: out of \\x1b[31mregisters\\x0a"},
      {"invalid", fail, "calls its inputs invalid"},
      {"unsupported", Verdict::not_run, "does not support this: only on Sundays"},
      {"unknown_status", fail, "returned 17, which is no attest_status"},
      {"long_message", fail, "says that it failed: xxx"},
      {"asks_for_too_much", fail, "asks for 18446744073709551615 bytes of workspace"},
      {"crashes_while_asked", fail,
       "died of signal SIGSEGV (Segmentation fault): it read from a null pointer"},
      {"overflows_workspace", fail, "wrote beside its workspace of 100 bytes"},
      {"uses_dirty_workspace", fail,
       "unwritten, or made them of memory that nobody wrote, the first at [0, 0, 0, 0]"},
      {"correct_again", pass, ""},
  };
  EXPECT_EQ(found.run.exit_code, 1);
  EXPECT_EQ(found.run.err, "");
  EXPECT_EQ(found.by_kernel.size(), table.size());
  for (const Expected& expected : table) {
    ASSERT_TRUE(found.by_kernel.contains(expected.kernel)) << expected.kernel;
    const CaseRecord& record = found.by_kernel.at(expected.kernel);
    EXPECT_EQ(record.verdict, expected.verdict) << expected.kernel << ": " << record.reason;
    EXPECT_THAT(record.reason, HasSubstr(expected.reason)) << expected.kernel;
    EXPECT_EQ(record.kernel.door, "plugin");
  }
  const CaseRecord& record = found.by_kernel.at("correct");
  EXPECT_EQ(record.kernel.sha256, sha256_of_file(plugin("hostile")));
  EXPECT_EQ(record.kernel.sha256.size(), 64u);
  EXPECT_THAT(record.checks.at(0).replay, HasSubstr("attest check --plugin '" + plugin("hostile") +
                                                    "' --time-limit 2 --kernel correct --case '"));
}

TEST(Plugin, IsFoundByItsNameAndReplaysByItsLine) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, "check --plugin " + plugin("hostile") + ":correct* --time-limit 5" + shape);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("correct "), HasSubstr("correct_again "), testing::Not(HasSubstr("chatty"))));
  const ProgramRun replayed = run_attest(
      folder, "check --plugin '" + plugin("hostile") +
                  "' --kernel drops_last_token --case 'linear variant=masked T=12 d=4 dv=4 H=1 B=1 seed=1'");
  EXPECT_EQ(replayed.exit_code, 1) << replayed.out << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("4 of 48 elements"));
}

// What follows "replay:" in what a run printed.
std::vector<std::string> replay_lines(const std::string& printed) {
  std::vector<std::string> lines;
  std::istringstream stream(printed);
  for (std::string line; std::getline(stream, line);)
    if (const auto at = line.find("replay: "); at != line.npos) lines.push_back(line.substr(at + 8));
  return lines;
}

// A printed line as it stands, as a shell runs it.
ProgramRun run_line(const TemporaryFolder& folder, const std::string& line) {
  const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
  const int status = std::system((line + " >" + out + " 2>" + err).c_str());
  return {WEXITSTATUS(status), text_of(out), text_of(err)};
}

TEST(Replay, LinesOfKernelsBehindADoorRunAsPrintedAndGiveTheSameVerdict) {
  const TemporaryFolder folder;
  const std::string doors[] = {"--plugin " + plugin("hostile") + ":drops_last_token --time-limit 7.5",
                               "--process '" + python("drops_last_token") + "' --time-limit 7.5"};
  for (const std::string& door : doors)
    for (const std::string how : {" --seed 1 --shape T=12,d=4,dv=4", " --quick --check '[vr]*' --seed 3"}) {
      const ProgramRun run = run_attest(folder, "check " + door + how);
      EXPECT_EQ(run.exit_code, 1) << door << how << run.err;
      const auto lines = replay_lines(run.out);
      ASSERT_FALSE(lines.empty()) << run.out;
      for (const std::string& line : lines) {
        EXPECT_THAT(line, AllOf(HasSubstr(" --time-limit 7.5 "), HasSubstr("--kernel "))) << line;
        const ProgramRun again = run_line(folder, line);
        EXPECT_EQ(again.exit_code, 1) << line << again.out << again.err;
        const std::string differs =
            how.find("quick") == how.npos ? "elements exceed the bound" : "elements differ";
        EXPECT_THAT(again.out, HasSubstr(differs)) << line;
        EXPECT_THAT(replay_lines(again.out), testing::Contains(line));
      }
    }
}

TEST(Replay, OfAKernelThatHangsKeepsItsTimeLimit) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, "check --process '" + python("is_silent") + "' --time-limit 0.5 --strided" + shape);
  EXPECT_EQ(run.exit_code, 1);
  const auto lines = replay_lines(run.out);
  ASSERT_EQ(lines.size(), 1u) << run.out;
  const ProgramRun again = run_line(folder, lines[0]);
  EXPECT_THAT(again.out, HasSubstr("did not answer within 0.5 s"));
  EXPECT_THAT(lines[0], HasSubstr(" --strided "));
}

TEST(Plugin, ThatDeclaresStridesAndIgnoresThemFailsOnceTheyMatter) {
  const Verdicts found = judge("--plugin " + plugin("hostile") + ":correct --plugin " + plugin("hostile") +
                               ":ignores_strides --strided" + shape);
  EXPECT_EQ(found.by_kernel.at("correct").verdict, Verdict::pass) << found.by_kernel.at("correct").reason;
  EXPECT_EQ(found.by_kernel.at("ignores_strides").verdict, Verdict::fail);
  EXPECT_THAT(found.by_kernel.at("ignores_strides").reason,
              HasSubstr("wrote where no output lies: between the rows of the output o"));
}

// A worker of each device, and a device of each kernel at a time: the plug-in says what its worker sees.
TEST(Devices, EachHasAWorkerThatSeesNoOther) {
  const auto seen = [](const std::string& devices) {
    const TemporaryFolder folder;
    const ProgramRun run = run_attest(
        folder, "check --plugin " + plugin("device") + " --battery --check value --seed 1 " + devices);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    return run.out;
  };
  setenv("CUDA_VISIBLE_DEVICES", "3,5,7", 1);
  EXPECT_THAT(seen("--devices 5,7"), AllOf(HasSubstr("sees <5>"), HasSubstr("sees <7>")));
  EXPECT_THAT(seen("--devices 3"), AllOf(HasSubstr("sees <3>"), testing::Not(HasSubstr("sees <all>"))));
  setenv("CUDA_VISIBLE_DEVICES", "2,4", 1);
  EXPECT_THAT(seen(""), AllOf(HasSubstr("sees <2>"), HasSubstr("sees <4>")));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// As many processes as workers: two kernels meet in one, or each has its own, whose numbers differ.
TEST(Workers, OfOneDeviceAreProcessesOfTheirOwn) {
  setenv("CUDA_VISIBLE_DEVICES", "5", 1);
  const auto processes = [](const std::string& workers) {
    const TemporaryFolder folder;
    const ProgramRun run = run_attest(folder, "check --plugin " + plugin("device") +
                                                  " --battery --check value --seed 1 --devices 5 " + workers);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    std::set<std::string> found;
    const std::regex named("sees <5> in process ([0-9]+)");
    for (std::sregex_iterator at(run.out.begin(), run.out.end(), named), end; at != end; ++at)
      found.insert((*at)[1]);
    return found.size();
  };
  EXPECT_EQ(processes(""), 1U);
  EXPECT_EQ(processes("--workers 2"), 2U);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Devices, ThatAreNoneAreRefusedInOneLine) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& list, const std::string& why) {
    const ProgramRun run = run_attest(folder, "check --kernel cpu.linear.* --devices " + list);
    EXPECT_EQ(run.exit_code, 2) << list << run.out;
    EXPECT_THAT(run.err, AllOf(HasSubstr("--devices"), HasSubstr(why))) << list;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  };
  for (const char* list : {"0,,1", "0,0", "'0 1'", "-1", "''"}) refused(list, "expected devices as of");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // as on a machine without a GPU
  refused("0,1", "no GPU \"0\" is visible here, expected a machine with a GPU");
  refused("GPU-1234", "no GPU \"GPU-1234\" is visible here");
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  refused("1,2", "no GPU \"2\" is visible here, expected of 0, 1");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Plugin, IsNotAskedForWhatItDoesNotDeclare) {
  const Verdicts packed =
      judge("--plugin " + plugin("hostile") + ":correct --seed 1 --shape T=12,d=4,dv=4,packed=0:5:12");
  EXPECT_EQ(packed.by_kernel.at("correct").verdict, Verdict::not_run);
  EXPECT_THAT(packed.by_kernel.at("correct").reason, HasSubstr("does not declare varlen"));
  EXPECT_EQ(packed.run.exit_code, 77);
  const Verdicts grouped =
      judge("--plugin " + plugin("hostile") + ":correct --seed 1 --shape T=12,d=4,dv=4,H=4,Hk=2");
  EXPECT_THAT(grouped.by_kernel.at("correct").reason,
              HasSubstr("does not declare grouped, and k has 2 of 4 heads"));
}

TEST(Plugin, WithANonsensicalAnnouncementIsRefusedInOneLineWithTwo) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"abi", "built for another attest_kernel.h (its ABI version is 7), expected version 1"},
      {"none", "announces 0 kernels, expected 1 to 10000"},
      {"many", "announces 1073741824 kernels"},
      {"crash", "its process died of signal SIGABRT (Aborted) while it was loaded"},
      {"quit", "its process ended itself with exit code 5 while it was loaded"},
      {"name:a b", "name \"a b\": expected up to 100 characters of A-Z a-z 0-9 . _ -"},
      {"name:chatty", "kernel chatty: announced twice"},
      {"name:cpu.linear.stream.fp32",
       "name \"cpu.linear.stream.fp32\": expected a name that no registered kernel has"},
      {"noname", "\"name\" is not given"},
      {"badname",
       "died of signal SIGSEGV (Segmentation fault) while it was loaded: it read from a null pointer"},
      {"op:linaer", "operator \"linaer\": expected one of ahla, delta"},
      {"variant:mask", "variant \"mask\": expected one of masked of linear"},
      {"form:quick", "form \"quick\": expected one of direct, stream, scan, chunk of linear (masked)"},
      {"form:", "form \"\": expected one of"},
      {"form:chunk", "form \"chunk\": expected the width of its chunks, c=WIDTH"},
      {"form:chunk c=0", "expected c= a whole number from 1"},
      {"form:chunk c=64x", "expected c= a whole number from 1"},
      {"form:chunk c=16 algebra=magic", "expected algebra= one of direct"},
      {"form:chunk c=16 d=3", "expected c=WIDTH and algebra=NAME only"},
      {"levels:chunk c=12", "expected c= a power of two"},
      {"hla2:chunk c=16", "expected algebra= one of subtract, direct, since their bounds differ"},
      {"contract:input=fp31", "precision contract: input is \"fp31\", expected one of"},
      {"contract:fast", "\"fast\" has no value"},
      {"contract:exp=infulp", "exp is \"infulp\""},
      {"contract:input=fp8_e4m3", "input=fp8_e4m3: tensors of this format are not passed"},
      {"nocontract", "\"contract\" is not given"},
      {"gated:exp=1000000ulp gate_sum=bf16", "its bound is infinite even for two tokens of one number each"},
      {"features:varlen fast", "feature \"fast\": expected of varlen"},
      {"features:inplace", "feature \"inplace\""},
      {"stateless:initial_state", "since softmax (masked) has none"},
      {"limits:d=one", "kernel limits: \"d=one\": expected NAME=LEAST..MOST"},
      {"limits:d=64..1", "expected NAME=LEAST..MOST or NAME=VALUE,VALUE..."},
      {"limits:d=0", "kernel limits: \"d=0\": it admits no size, expected a whole number of 1 or more"},
      {"limits:d=1..64 dv=0", "kernel limits: \"dv=0\": it admits no size"},
      {"limits:d=1..64 w=1..2", "expected a limit of d, dv, t, b, h or g"},
      {"device:tpu", "device \"tpu\": expected cpu or cuda"},
      {"norun", "run is NULL"},
  };
  const TemporaryFolder folder;
  for (const auto& [nonsense, expected] : table) {
    setenv("ATTEST_NONSENSE", nonsense, 1);
    const ProgramRun run = run_attest(folder, "check --plugin " + plugin("hostile"));
    EXPECT_EQ(run.exit_code, 2) << nonsense << '\n' << run.out;
    EXPECT_THAT(run.err, AllOf(StartsWith("attest: --plugin "), HasSubstr(expected))) << nonsense;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(run.out, "");
  }
  unsetenv("ATTEST_NONSENSE");
  EXPECT_THAT(run_attest(folder, "check --plugin " + plugin("nowhere")).err,
              HasSubstr("no such file, expected a shared library"));
  EXPECT_THAT(run_attest(folder, "check --plugin README.md").err, HasSubstr("cannot be loaded"));
  EXPECT_THAT(run_attest(folder, "check --plugin " + plugin("hostile") + ":nobody").err,
              HasSubstr("no kernel matches \"nobody\""));
  // A shared library that is no plug-in: one that this test uses itself.
  std::ifstream maps("/proc/self/maps");
  std::string line, library;
  while (library.empty() && std::getline(maps, line))
    if (line.ends_with("/libm.so.6")) library = line.substr(line.find('/'));
  ASSERT_NE(library, "");
  EXPECT_THAT(run_attest(folder, "check --plugin " + library).err,
              HasSubstr("has no function attest_kernels"));
}

// Without a GPU no kernel on one can run, and none may pass.
TEST(Plugin, OnTheGpuEveryKindOfMisconductIsAVerdictToo) {
  if (!std::filesystem::exists(plugin("hostile_cuda"))) GTEST_SKIP() << "built without the CUDA Toolkit";
  const Verdicts found = judge("--plugin " + plugin("hostile_cuda") + shape + "--time-limit 15");
  constexpr Verdict pass = Verdict::pass, fail = Verdict::fail;
  const std::vector<Expected> table = {
      {"correct", pass, ""},
      {"synchronises", pass, ""},
      {"drops_last_token", fail, "4 of 48 elements exceed the bound"},
      {"writes_after_end", fail, "wrote where no output lies: byte 9 after the end of the output o"},
      {"writes_to_input", fail, "wrote to an input or beside it"},
      {"far_write", fail, "came to grief on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
      {"null_pointer", fail, "came to grief on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
      {"traps", fail, "came to grief on the GPU: CUDA_ERROR"},
      {"never_ends", fail, "did not return within 15 s"},
      {"launches_wrongly", fail, "left 48 of 48 elements of the output o unwritten"},
      {"touches_from_the_host", fail, "died of signal SIGSEGV"},
      {"correct_again", pass, ""},
  };
  const bool gpu = std::filesystem::exists("/dev/nvidia0");
  EXPECT_EQ(found.run.exit_code, gpu ? 1 : 77);
  EXPECT_EQ(found.by_kernel.size(), table.size());
  for (const Expected& expected : table) {
    const CaseRecord& record = found.by_kernel.at(expected.kernel);
    EXPECT_EQ(record.verdict, gpu ? expected.verdict : Verdict::not_run)
        << expected.kernel << ": " << record.reason;
    EXPECT_THAT(record.reason, HasSubstr(gpu ? expected.reason : "no CUDA device is here"))
        << expected.kernel;
  }
}

TEST(Process, EveryKindOfMisconductIsAVerdictWithTheLastWordsOfTheChild) {
  constexpr Verdict pass = Verdict::pass, fail = Verdict::fail;
  const std::vector<Expected> table = {
      {"correct", pass, ""},
      {"prints_by_accident", pass, ""},
      {"floods", pass, ""},
      {"drops_last_token", fail, "4 of 48 elements exceed the bound"},
      {"nan", fail, "48 are NaN, the first o[0,0,0,0]"},
      {"wrong_shape", fail, "shape [1, 1, 12, 4], expected [1, 12, 1, 4]"},
      {"wrong_dtype", fail, "dtype F64, expected F32"},
      {"wrong_dtype_and_shape", fail, "dtype F64, expected F32; shape [1, 1, 12, 4], expected [1, 12, 1, 4]"},
      {"wrong_name", fail, "wrote outputs that cannot be used"},
      {"truncates", fail, "wrote outputs that cannot be used"},
      {"writes_text", fail, "wrote outputs that cannot be used"},
      {"writes_no_file", fail, "answered ok and wrote no file of outputs"},
      {"links_its_input", fail, "gave a file of outputs that is another file too"},
      {"is_silent", fail, "did not answer within 1 s; it printed: \"compiling ...\""},
      {"flood_without_end", fail, "did not answer within 1 s; it printed: \"yyy"},
      {"one_endless_line", fail, "did not answer within 1 s; it printed: \"zzz"},
      {"dies", fail, "ended itself with exit code 1; it printed: \"CUDA error: an illegal memory access"},
      {"is_killed", fail, "died of signal SIGKILL"},
      {"closes_its_output", fail, "closed its connection without ending"},
      {"leaves_a_grandchild", fail, "ended itself with exit code 4"},
      {"raises", fail, "IndexError: list index out of range"},
      {"fails", fail, "says that it failed: out of\\x0amemory"},
      {"is_unsupported", Verdict::not_run, "only on Sundays"},
      {"answers_garbage", fail, "answered with what is no JSON object: \"\\x1b[31m{not json\""},
      {"answers_a_list", fail, "answered with what is no JSON object"},
      {"answers_unknown_status", fail, "answered with status \"fine\", expected ok, unsupported or failed"},
      {"answers_wrong_types", fail, "answered call [1] when it was asked call 1"},
      {"answers_another_call", fail, "answered call 2 when it was asked call 1"},
      {"answers_too_deep", fail, "answered with JSON that is nested more than 32 deep"},
      {"ends_before_it_began", pass, ""},
      {"answers_twice", fail, "answered the call twice"},
  };
  for (const Expected& expected : table) {
    const auto start = std::chrono::steady_clock::now();
    const std::string limit =
        std::string(expected.reason).find("within 1 s") == std::string::npos ? "15" : "1";
    const Verdicts found = judge("--process '" + python(expected.kernel) + "' --time-limit " + limit + shape);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 20) << expected.kernel;
    EXPECT_EQ(found.run.err, "") << expected.kernel;
    EXPECT_EQ(found.run.exit_code, expected.verdict == pass   ? 0
                                   : expected.verdict == fail ? 1
                                                              : 77)
        << expected.kernel << found.run.out;
    ASSERT_TRUE(found.by_kernel.contains("mine")) << expected.kernel;
    const CaseRecord& record = found.by_kernel.at("mine");
    EXPECT_EQ(record.verdict, expected.verdict) << expected.kernel << ": " << record.reason;
    EXPECT_THAT(record.reason, HasSubstr(expected.reason)) << expected.kernel;
    EXPECT_THAT(record.reason, testing::Not(HasSubstr("/attest-")))
        << "the temporary folder is no reader's business";
    EXPECT_EQ(record.kernel.door, "process");
  }
}

TEST(Process, IsAskedAgainAfterAFaultWhichBelongsToItsOwnCaseAlone) {
  const TemporaryFolder folder;  // three lengths, three calls
  const std::string three = " --seed 1 --shape T=12,d=4,dv=4 ";
  ProgramRun run =
      run_attest(folder, "check --process '" + python("answers_late_once") +
                             "' --time-limit 1.5 --threads 1 --output " + (folder / "late").string() + three);
  std::vector<CaseRecord> cases = read_records(folder / "late" / "records.jsonl").cases;
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].verdict, Verdict::fail) << run.out;
  EXPECT_THAT(cases[0].reason, HasSubstr("did not answer within 1.5 s"));
  for (const std::size_t i : {1, 2}) EXPECT_EQ(cases[i].verdict, Verdict::pass) << cases[i].reason;

  run =
      run_attest(folder, "check --process '" + python("answers_again_later") +
                             "' --time-limit 5 --threads 1 --output " + (folder / "again").string() + three);
  cases = read_records(folder / "again" / "records.jsonl").cases;
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].verdict, Verdict::pass) << cases[0].reason;
  EXPECT_EQ(cases[1].verdict, Verdict::fail) << run.out;
  EXPECT_THAT(cases[1].reason, HasSubstr("answered call 1 when it was asked call 2"));
}

TEST(Process, ThatDidNotRunOnSomeCasesHasNoBarePass) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(
      folder, "check --process '" + python("takes_short_inputs") + "' --seed 1 --shape T=12,d=4,dv=4");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("2 of 3 cases not run: t=6 is outside the kernel's limits t=0..5"));
}

TEST(Process, IsAskedWithTheHeadDimensionsThatItTakes) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "check --process '" + python("takes_two_sizes") + "' --seed 1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("3      3"));
  const ProgramRun asked =
      run_attest(folder, "check --process '" + python("takes_two_sizes") + "' --seed 1 --shape T=8,d=9,dv=4");
  EXPECT_EQ(asked.exit_code, 77) << asked.out << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("d=9 is outside the kernel's limits d=8"));
}

TEST(Process, ThatTakesNoInputOfIdentifyIsNotRun) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, "identify --process '" + python("takes_two_sizes") + "' --shape T=8,d=9,dv=4");
  EXPECT_EQ(run.exit_code, 77) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("not run: d=9 is outside the kernel's limits d=8"));
}

TEST(Doors, AreListed) {
  const TemporaryFolder folder;
  const ProgramRun process =
      run_attest(folder, "list --kernels --process '" + python("takes_two_sizes") + "'");
  EXPECT_EQ(process.exit_code, 0) << process.err;
  EXPECT_EQ(std::count(process.out.begin(), process.out.end(), '\n'), 2) << process.out;
  EXPECT_THAT(process.out, HasSubstr("linear"));
  EXPECT_THAT(run_attest(folder, "list --kernels --plugin " + plugin("hostile") + ":correct").out,
              AllOf(HasSubstr("correct"), testing::Not(HasSubstr("cpu."))));
  const ProgramRun other = run_attest(folder, "list --recipes --plugin " + plugin("hostile"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected --kernels beside them"));
}

TEST(Process, WithANonsensicalAnnouncementIsRefusedInOneLineWithTwo) {
  const std::vector<std::pair<std::string, const char*>> table = {
      {python("dies_at_once"), "it ended itself with exit code 1; it printed: \"no module named torch\""},
      {"no_such_program_here", "it ended itself with exit code 127; it printed: "},
      {"true", "it ended itself with exit code 0"},
      {"echo @attest hello", "answered with what is no JSON object: \"hello\""},
      {"echo @attest \"{}\"", "speaks another version of the protocol"},
      {R"(echo @attest "{\"attest\": 2}")", "speaks another version of the protocol"},
      {R"(echo @attest "{\"attest\": 1}")", "it announces no kernel"},
      {R"(echo @attest "{\"attest\": 1, \"kernels\": [7]}")", "its announcement is not an object"},
      {R"(echo @attest "{\"attest\": 1, \"kernels\": [{\"name\": 7}]}")", "\"name\" is no text"},
      {R"(echo @attest "{\"attest\": 1, \"kernels\": [{\"name\": \"m\", \"op\": \"hla9\"}]}")",
       "operator \"hla9\""},
  };
  const TemporaryFolder folder;
  for (const auto& [command, expected] : table) {
    const ProgramRun run = run_attest(folder, "check --process '" + command + "'");
    EXPECT_EQ(run.exit_code, 2) << command << '\n' << run.out;
    EXPECT_THAT(run.err, AllOf(StartsWith("attest: --process "), HasSubstr(expected))) << command;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

// Processes whose command line has the word.
int running_with(const std::string& word) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(word) != std::string::npos) ++count;
  }
  return count;
}

TEST(Process, LeavesNoProcessAndNoFolderBehindWhenAttestIsKilled) {
  const TemporaryFolder folder;
  const std::string word = "is_silent " + folder.path().string();
  for (const int signal : {SIGINT, SIGKILL}) {
    const pid_t attest = fork();
    if (attest == 0) {
      setenv("TMPDIR", folder.path().c_str(), 1);
      freopen("/dev/null", "w", stdout);
      execl(std::getenv("ATTEST_PROGRAM"), "attest", "check", "--process", python(word).c_str(), "--shape",
            "T=4,d=2,dv=2", nullptr);
      _exit(1);
    }
    const auto wait_for = [](auto&& condition) {
      for (int i = 0; i < 200 && !condition(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return condition();
    };
    const auto folders = [&] {
      int count = 0;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
        count += entry.path().filename().string().starts_with("attest-") &&
                 std::filesystem::exists(entry.path() / "inputs.safetensors");
      return count;
    };
    EXPECT_TRUE(wait_for([&] { return folders() == 1; }));
    EXPECT_GT(running_with(word), 1);
    kill(attest, signal);
    waitpid(attest, nullptr, 0);
    EXPECT_TRUE(wait_for([&] { return running_with(word) == 0; })) << running_with(word);
    EXPECT_TRUE(wait_for([&] { return folders() == 0; }));
  }
}

}  // namespace
}  // namespace attest
