#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include "fuzz/corpus.hpp"
#include "fuzz/hunt.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(FuzzCommand, RefusesWhatCannotBeInOneLine) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const struct {
    std::string arguments, message;
  } refused[] = {
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 0", "--cases"},
      {"--kernel cpu.hla2.stream.direct.fp32 --time 0s", "--time \"0s\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --time 0", "--time \"0\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --time -5", "--time \"-5\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --time 3parsecs", "--time \"3parsecs\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --time nan", "--time \"nan\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --time 5s --cases 5", "one of the two"},
      {"--kernel cpu.hla2.stream.direct.fp32 --objective beauty", "--objective"},
      {"--kernel no.such.kernel --cases 5", "no kernel matches"},
      {"--cases 5", "--kernel"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --corpus " + (folder / "file").string(), "--corpus"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --corpus /proc/attest_corpus", "--corpus"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --json /proc/attest/x.json", "x.json"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --output /proc/attest_page", "--output"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --junit x --json ./x", "the same file as --json"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --output " + (folder / "o").string() + " --json " +
           (folder / "o" / "fuzz.json").string(),
       "the same file as --output's fuzz.json"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --output " + (folder / "o").string() + " --junit " +
           (folder / "o" / "." / "index.html").string(),
       "the same file as --output's index.html"},
      {"--minimise --corpus " + (folder / "c").string(), "no such folder"},
      {"--minimise", "--corpus"},
      {"--minimise --shard 1/2", "expected no --shard"},
      {"--minimise --corpus " + (folder / "c").string() + " --time 5s", "expected no --time"},
      {"--minimise --corpus " + (folder / "c").string() + " --cases 5", "expected no --cases"},
      {"--minimise --corpus " + (folder / "c").string() + " --json x", "expected no --json"},
      {"--minimise --corpus " + (folder / "c").string() + " --junit x", "expected no --junit"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --junit /proc/attest/x.xml", "x.xml"},
      {"--minimise --corpus " + (folder / "c").string() + " --output x", "expected no --output"},
      {"--minimise --corpus " + (folder / "c").string() + " --workers 2", "expected no --workers"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --workers 0", "--workers \"0\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --devices 0,0", "--devices \"0,0\""},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --shard 1/2", "expected --seed"},
      {"--kernel cpu.hla2.stream.direct.fp32 --cases 5 --seed 1 --shard 1/6", "one at least for each of 6"},
  };
  for (const auto& [arguments, message] : refused) {
    const ProgramRun run = run_attest(folder, "fuzz " + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(lines_of(run.err), 1u) << run.err;
    EXPECT_EQ(run.out, "") << arguments;
  }
  for (const char* name : {"c", "o"}) EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
}

TEST(FuzzCommand, ShardsAreJoinedByCauseAndOfAKilledOneItIsSaidWhatWasDone) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  const auto json_of = [&](const char* name) {
    return nlohmann::json::parse(text_of(folder / name))["kernels"][0];
  };
  const std::string command = "fuzz --kernel mutant.hla2.cross_dropped --cases 21 --seed 3 --shard ";
  for (const std::string i : {"1", "2"})
    EXPECT_EQ(run_attest(folder, command + i + "/2 --output " + path(i)).exit_code, 1);
  run_attest(folder, command + "2/2 --output " + path("again"));
  const ProgramRun joined =
      run_attest(folder, "merge " + path("2") + ' ' + path("1") + " --output " + path("all"));
  EXPECT_EQ(joined.exit_code, 1) << joined.err;
  const nlohmann::json one = json_of("1/fuzz.json"), two = json_of("2/fuzz.json"), all = json_of("all");
  EXPECT_EQ(json_of("again/fuzz.json")["grid"], two["grid"]);
  EXPECT_NE(one["grid"], two["grid"]) << "shards ask different cases";
  EXPECT_EQ(one["cases"], 11);
  EXPECT_EQ(all["cases"], 21);
  EXPECT_EQ(all["largest_ratio"], std::max(one["largest_ratio"], two["largest_ratio"]));
  std::set<std::string> inputs;  // of all checks the same
  std::int64_t failures = 0, of_shards = 0;
  for (const auto* part : {&one, &two})
    for (const auto& finding : (*part)["findings"]) {
      const std::string shrunk = finding["shrunk"];
      inputs.insert(shrunk.substr(shrunk.find("values zeros")));
      of_shards += 1 + finding["duplicates"].get<std::int64_t>();
    }
  for (const auto& finding : all["findings"]) failures += 1 + finding["duplicates"].get<std::int64_t>();
  EXPECT_EQ(all["findings"].size(), inputs.size());
  EXPECT_EQ(failures, of_shards);

  const auto refused = [&](const std::string& shards, const std::string& why) {
    const ProgramRun run = run_attest(folder, "merge " + shards + " --output " + path("none"));
    EXPECT_EQ(run.exit_code, 2) << why;
    EXPECT_THAT(run.err, HasSubstr(why));
    EXPECT_EQ(lines_of(run.err), 1u) << run.err;
    EXPECT_FALSE(std::filesystem::exists(path("none")));
  };
  refused(path("1"), "shard 2 of 2 is missing");
  refused(path("1") + ' ' + path("2") + ' ' + path("again"), "shard 2/2 overlaps with");
  std::ofstream(path("1") + "/journal.0.jsonl")
      << R"({"schema":"attest.hunt_journal/1","command":"","seed":3,"version":"","kernels_sha256":"","corpus":[]})"
      << '\n'
      << R"({"begin":"k","key":"x","task":"ask","number":7})" << '\n';
  refused(path("1") + ' ' + path("2"),
          "0 cases of 0 kernels answered; begun and not answered: k case 7 at rank 0");
}

// A kernel that answers once a second process of it is asked too: of two threads there are two, where there is a GPU one.
TEST(FuzzCommand, APlugInHasAsManyWorkersAsThreadsAndOneWhereThereIsAGpu) {
  const std::filesystem::path program = std::getenv("ATTEST_PROGRAM");
  const std::string plugin = (program.parent_path() / "plugins" / "neighbours.so").string();
  const auto unanswered = [&](const std::string& devices, const std::string& arguments) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "meeting");
    setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
    setenv("ATTEST_MEETING", (folder / "meeting").c_str(), 1);
    const std::string json = (folder / "x.json").string();
    const ProgramRun run = run_attest(
        folder, "fuzz --plugin " + plugin + ":meets_another --seed 1 --threads 2 --json " + json + arguments);
    unsetenv("CUDA_VISIBLE_DEVICES"), unsetenv("ATTEST_MEETING");
    EXPECT_EQ(run.exit_code, 3) << run.out << run.err;
    return nlohmann::json::parse(text_of(json))["kernels"][0].value("unanswered", 0);
  };
  EXPECT_EQ(unanswered("", " --cases 12"), 0);
  EXPECT_EQ(unanswered("5", " --time 1s"), 1);
  EXPECT_EQ(unanswered("5", " --cases 12 --workers 2"), 0);
}

TEST(FuzzCommand, FailuresThatDoNotRepeatAreOneCauseForEachCheckAndGoIntoNoCorpus) {
  const TemporaryFolder folder;
  const std::filesystem::path program = std::getenv("ATTEST_PROGRAM");
  const std::string plugin = (program.parent_path() / "plugins" / "neighbours.so").string();
  setenv("ATTEST_MEETING", (folder / "").c_str(), 1);
  const ProgramRun run =
      run_attest(folder, "fuzz --seed 1 --cases 24 --workers 1 --plugin " + plugin +
                             ":fails_in_the_first_process --corpus " + (folder / "corpus").string() +
                             " --json " + (folder / "x.json").string());
  unsetenv("ATTEST_MEETING");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const auto kernel = nlohmann::json::parse(text_of(folder / "x.json")).at("kernels").at(0);
  std::int64_t counted = 0, failed = 0;
  for (const auto& [check, tally] : kernel.at("checks").items())
    failed += tally.at("failed").get<std::int64_t>();
  ASSERT_FALSE(kernel.at("findings").empty());
  std::set<std::string> checks;
  for (const auto& finding : kernel.at("findings")) {
    EXPECT_TRUE(checks.insert(finding.at("check")).second) << finding;
    EXPECT_THAT(finding.at("cause"), testing::EndsWith(": does not repeat"));
    EXPECT_THAT(finding.at("note"), HasSubstr("does not repeat"));
    counted += 1 + finding.at("duplicates").get<std::int64_t>();
  }
  EXPECT_EQ(counted, failed);
  EXPECT_GT(failed, 15);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "corpus"));
}

TEST(FuzzCommand, FindsShrinksRemembersAndReplays) {
  const TemporaryFolder folder;
  const std::string corpus = (folder / "corpus").string();
  std::filesystem::create_directories(corpus);
  std::ofstream(corpus + "/damaged.case") << "attest.corpus/7\n";
  const std::string hunt = "fuzz --kernel mutant.hla2.cross_dropped --cases 15 --seed 3 --corpus " + corpus +
                           " --json " + (folder / "x.json").string();
  const ProgramRun first = run_attest(folder, hunt);
  EXPECT_EQ(first.exit_code, 1) << first.err;
  EXPECT_THAT(first.out, HasSubstr("FAIL       mutant.hla2.cross_dropped"));
  EXPECT_THAT(first.err, HasSubstr("damaged.case: line 1: \"attest.corpus/7\": expected attest.corpus/1"));
  const auto json = nlohmann::json::parse(text_of(folder / "x.json"));
  EXPECT_EQ(json.at("schema"), "attest.fuzz/1");
  EXPECT_EQ(json.at("corpus").at("skipped").size(), 1u);
  const auto& finding = json.at("kernels").at(0).at("findings").at(0);
  const std::string file = finding.at("file");
  EXPECT_EQ(parse_corpus_case(finding.at("shrunk").get<std::string>(), "json").input.shape.heads, 1);

  const ProgramRun replayed = run_attest(folder, "replay " + file);
  EXPECT_EQ(replayed.exit_code, 1) << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("FAIL       mutant.hla2.cross_dropped"));
  EXPECT_THAT(finding.at("replay"),
              testing::EndsWith(" replay --kernel mutant.hla2.cross_dropped '" + file + "'"));
  const ProgramRun right = run_attest(folder, "replay " + file + " --kernel cpu.hla2.chunk16.direct.fp32");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;

  const ProgramRun again = run_attest(folder, hunt);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.out, HasSubstr("of the corpus"));

  const ProgramRun thin =
      run_attest(folder, "fuzz --minimise --kernel mutant.hla2.cross_dropped --corpus " + corpus);
  EXPECT_EQ(thin.exit_code, 0) << thin.err;
  EXPECT_TRUE(std::filesystem::exists(corpus + "/damaged.case"));
  const ProgramRun after =
      run_attest(folder, "fuzz --kernel mutant.hla2.cross_dropped --cases 1 --seed 99 --corpus " + corpus);
  EXPECT_EQ(after.exit_code, 1) << "the thinned corpus kills no more\n" << after.out;
}

TEST(FuzzCommand, SaysOfWhichKernelsNoneComputesTheCase) {
  const TemporaryFolder folder;
  const std::string door = "--process 'python3 tests/adapters/plugins/hostile.py correct' ";
  const std::string file = "fuzz/corpus/hla2.value.3d0d0aad.case";
  const auto said = [&](const std::string& arguments) {
    const ProgramRun run = run_attest(folder, "replay " + arguments + file);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(said(door), HasSubstr("no kernel of --process \"python3 tests/adapters/plugins/hostile.py "
                                    "correct\" computes hla2 (masked)"));
  EXPECT_THAT(said(door + "--kernel mine "), HasSubstr("no kernel of --kernel \"mine\" computes hla2"));
}

TEST(FuzzCommand, CountsOneThingInTheSingular) {
  const TemporaryFolder folder;
  const std::string out =
      run_attest(folder, "fuzz --kernel mutant.hla2.cross_dropped --cases 1 --seed 3 --output " +
                             (folder / "run").string())
          .out;
  EXPECT_THAT(out, HasSubstr("\n1 of 1 kernel, 1 case, 1 failure of 1 cause; seed 3\n"));
  EXPECT_THAT(text_of(folder / "run" / "index.html"),
              HasSubstr("\"headline\">1 cause of failure in 1 case of 1 kernel</p>"));
}

// As they stand in the document, into a shell.
TEST(FuzzCommand, TheLinesThatRepeatAFindingWithoutACorpusRepeatIt) {
  const TemporaryFolder folder;
  const std::string json = (folder / "x.json").string();
  const std::string out =
      run_attest(folder, "fuzz --kernel mutant.hla2.cross_dropped --cases 15 --seed 3 --json " + json).out;
  const auto finding = nlohmann::json::parse(text_of(json)).at("kernels").at(0).at("findings").at(0);
  std::ofstream(folder / "replay.sh") << finding.at("replay").get<std::string>() << '\n';
  const std::string line = "bash " + (folder / "replay.sh").string() + " >" + (folder / "out").string();
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(text_of(folder / "out"), HasSubstr("FAIL       mutant.hla2.cross_dropped"));
  EXPECT_THAT(text_of(folder / "out"), HasSubstr(finding.at("reason").get<std::string>()));
  // And the lines on the terminal, saved as they are.
  const std::size_t begin = out.find("      attest.corpus/1"), end = out.find("    replay: ", begin);
  ASSERT_LT(begin, end) << out;
  ASSERT_NE(end, out.npos) << out;
  EXPECT_THAT(out.substr(end),
              HasSubstr(" replay --kernel mutant.hla2.cross_dropped FILE, with these lines"));
  std::ofstream(folder / "x.case") << out.substr(begin, end - begin);
  const std::string file = (folder / "x.case").string();
  EXPECT_EQ(run_attest(folder, "replay --kernel mutant.hla2.cross_dropped " + file).exit_code, 1);
  EXPECT_EQ(run_attest(folder, "replay --kernel cpu.hla2.chunk16.direct.fp32 " + file).exit_code, 0);
}

// What the worst input of a corpus, which has so many values, is printed as.
std::string printed_input_of(int values) {
  const TemporaryFolder folder;
  std::ofstream file(folder / "x.case");
  file << "attest.corpus/1\ncheck value\ncase linear variant=masked T=2 d=1 dv=64 H=8 B=8 recipe=uniform "
          "gates=none seed=5\nvalues drawn\n";
  for (int i = 0; i < values; ++i) file << "v[0,0," << i / 64 << ',' << i % 64 << "] 0x1p-1\n";
  file << "end " << values << '\n', file.close();
  const std::string out = run_attest(folder,
                                     "fuzz --kernel cpu.linear.stream.fp32 --objective error --cases 1 "
                                     "--seed 4 --corpus " +
                                         (folder / "").string())
                              .out;
  const std::size_t begin = out.find("of the corpus:\n");
  return begin == out.npos ? out : out.substr(begin);
}

TEST(FuzzCommand, PrintsAnInputWholeOrSaysWhereTheWholeIs) {
  for (const int values : {24, 25, 64})
    EXPECT_THAT(printed_input_of(values),
                AllOf(HasSubstr(fmt::format("] 0x1p-1\n      end {}\n", values)), Not(HasSubstr("(and"))));
  EXPECT_THAT(printed_input_of(65),
              AllOf(HasSubstr("      (and 41 more values, --corpus DIR keeps the whole"),
                    Not(HasSubstr("      end "))));
}

// A disk without room, played by a limit of the size of files in KiB. What is printed goes through a pipe.
int hunt_without_room(const TemporaryFolder& folder, int room, const std::string& arguments) {
  std::ofstream(folder / "hunt.sh") << "(trap '' XFSZ; ulimit -f " << room << "; "
                                    << std::getenv("ATTEST_PROGRAM") << " fuzz " << arguments
                                    << " 2>&1) | cat >" << (folder / "out").string()
                                    << "; exit ${PIPESTATUS[0]}\n";
  return WEXITSTATUS(std::system(("bash " + (folder / "hunt.sh").string()).c_str()));
}
std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(FuzzCommand, ADiskWithoutRoomTakesNoReportAway) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "corpus");
  const std::string results =
      " --corpus " + (folder / "corpus").string() + " --json " + (folder / "corpus" / "x.json").string();
  const std::string hunt = "--kernel mutant.hla2.cross_dropped --cases 1 --seed 3" + results;
  EXPECT_EQ(hunt_without_room(folder, 0, hunt), 2);
  const std::string out = text_of(folder / "out");
  for (const char* part :
       {"FAIL       mutant.hla2.cross_dropped", "      values zeros", "; seed 3", ", 0 added",
        "not written: ", "File too large, expected a writable path", "\nattest: "})
    EXPECT_THAT(out, HasSubstr(part));
  EXPECT_EQ(files_in(folder / "corpus"), 0u);
  EXPECT_EQ(hunt_without_room(folder, 1 << 20, hunt), 1) << "with room it is a hunt that found something";
  EXPECT_GT(files_in(folder / "corpus"), 1u);
}

TEST(FuzzCommand, AJournalWithoutRoomIsGivenUpAndTheHuntGoesOn) {
  const TemporaryFolder folder;
  const std::string hunt =
      "--kernel cpu.linear.chunk16.fp32 --cases 200 --seed 3 --output " + (folder / "run").string();
  EXPECT_EQ(hunt_without_room(folder, 64, hunt), 2);
  EXPECT_THAT(text_of(folder / "out"), HasSubstr("not written: "));
  const auto json = nlohmann::json::parse(text_of(folder / "run" / "fuzz.json"));
  EXPECT_EQ(json.at("kernels").at(0).at("cases"), 200);
  EXPECT_THAT(json.at("not_written").at(0), HasSubstr("the journal cannot be written"));
  EXPECT_EQ(run_attest(folder, "fuzz " + hunt).exit_code, 0);
  EXPECT_EQ(files_in(folder / "run"), 2u);
}

std::size_t cases_in(const std::filesystem::path& folder) { return read_corpus(folder).cases.size(); }

TEST(FuzzCommand, TheObjectiveErrorKeepsItsLargestErrorInTheCorpusAndTheOtherObjectiveDoesNot) {
  const TemporaryFolder folder;
  const std::string hunt = "fuzz --kernel cpu.linear.chunk16.fp32 --cases 40 --seed 2 --corpus ";
  EXPECT_EQ(run_attest(folder, hunt + (folder / "fail").string()).exit_code, 0);
  EXPECT_EQ(cases_in(folder / "fail"), 0u);
  const ProgramRun run = run_attest(folder, hunt + (folder / "error").string() + " --objective error");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ASSERT_EQ(cases_in(folder / "error"), 1u) << run.out;
  const CorpusCase kept = read_corpus(folder / "error").cases.at(0);
  EXPECT_EQ(kept.kernel, "cpu.linear.chunk16.fp32");
  // Asked first and reached by no new case, it stays the largest and is not added again.
  const ProgramRun again =
      run_attest(folder, "fuzz --kernel cpu.linear.chunk16.fp32 --cases 1 --seed 4 --corpus " +
                             (folder / "error").string() + " --objective error");
  EXPECT_THAT(again.out, HasSubstr(", of the corpus:"));
  EXPECT_EQ(cases_in(folder / "error"), 1u) << again.out;
}

TEST(FuzzCommand, ThePageOfAHuntShowsKillsCellsAndTheShrunkCase) {
  const TemporaryFolder folder;
  const auto output = folder / "page";
  const ProgramRun run = run_attest(
      folder, "fuzz --kernel mutant.hla2.cross_dropped --cases 15 --seed 3 --output " + output.string());
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const std::string page = text_of(output / "index.html");
  for (const char* part : {"mutant.hla2.", "FAIL", "<th scope=\"col\">failed</th>", "Cells reached",
                           "values zeros", "case hla2 variant=masked"})
    EXPECT_THAT(page, HasSubstr(part));
  for (const char* part : {"http:", "https:"})
    EXPECT_EQ(page.find(part), std::string::npos) << "from outside";
  const ProgramRun right = run_attest(
      folder, "fuzz --kernel cpu.linear.chunk16.fp32 --cases 5 --seed 3 --output " + output.string());
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_EQ(text_of(output / "index.html").find("FAIL"), std::string::npos);
}

TEST(FuzzCommand, AFinishedHuntIsNotResumedAndOfAKilledOneItIsSaidThatItsAnswersAreDropped) {
  const TemporaryFolder folder;
  const std::string output = (folder / "run").string(),
                    hunt = "fuzz --kernel cpu.linear.chunk16.fp32 --cases 3 --seed 3 --output " + output;
  EXPECT_EQ(run_attest(folder, hunt).exit_code, 0);
  const ProgramRun refused = run_attest(folder, hunt + " --resume");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("already finished"));
  EXPECT_EQ(lines_of(refused.err), 1u);
  std::ofstream(output + "/journal.0.jsonl") << "{}\n";
  const ProgramRun anew = run_attest(folder, hunt);
  EXPECT_EQ(anew.exit_code, 0);
  EXPECT_THAT(anew.err, HasSubstr("are dropped"));
}

TEST(FuzzCommand, ReplayOfAKernelBehindADoorAsksForTheDoor) {
  const TemporaryFolder folder;
  const std::string file = folder / "one.case";
  std::ofstream(file) << "attest.corpus/1\ncheck value\nkernel mine\ncase linear variant=masked T=2 d=1 dv=1 "
                         "seed=1\nvalues drawn\n"
                         "end 0\n";
  const ProgramRun run = run_attest(folder, "replay " + file);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr("found on \"mine\", which is not registered, expected the --plugin or --process"));
  EXPECT_EQ(run_attest(folder, "replay --kernel cpu.linear.chunk16.fp32 " + file).exit_code, 0);
}

TEST(FuzzCommand, ReplayRefusesADamagedFile) {
  const TemporaryFolder folder;
  std::ofstream(folder / "x.case") << "attest.corpus/1\ncheck value\n";
  const ProgramRun run = run_attest(folder, "replay " + (folder / "x.case").string());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("x.case: line 3"));
  EXPECT_EQ(run_attest(folder, "replay /nowhere/x.case").exit_code, 2);
  // Before it says anything of another.
  const ProgramRun both = run_attest(
      folder, "replay fuzz/corpus/gated_delta.value.58b37ca3.case " + (folder / "x.case").string());
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(both.out, "");
}

TEST(FuzzCommand, MinimiseEscapesTheNamesOfWhatItRemoves) {
  const TemporaryFolder folder;
  const std::filesystem::path corpus = folder / "corpus";
  std::filesystem::create_directories(corpus);
  for (const char* name : {"a.case", "b\x1b[31m.case"})
    std::filesystem::copy_file("fuzz/corpus/gated_delta.value.58b37ca3.case", corpus / name);
  const ProgramRun thin =
      run_attest(folder, "fuzz --minimise --kernel cpu.gated_delta.stream.fp32 --corpus " + corpus.string());
  EXPECT_EQ(thin.exit_code, 0) << thin.err;
  EXPECT_THAT(thin.out, HasSubstr("b\\x1b[31m.case\n"));
}

// The exit status of a hunt that is interrupted after so many seconds: the shell sends the signal and hands the status on. Its
// output is the file `out`.
int interrupted_hunt(const TemporaryFolder& folder, const std::string& arguments, int seconds = 2) {
  std::ofstream(folder / "hunt.sh") << std::getenv("ATTEST_PROGRAM") << " fuzz " << arguments << " >"
                                    << (folder / "out").string() << " 2>&1 & p=$!; sleep " << seconds
                                    << "; kill -INT $p; wait $p\n";
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(("bash " + (folder / "hunt.sh").string()).c_str());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  return WEXITSTATUS(status);
}

TEST(FuzzCommand, InterruptedItEndsWithACompleteReport) {
  const TemporaryFolder folder;
  const std::string json = (folder / "x.json").string();
  const int status =
      interrupted_hunt(folder, "--kernel cpu.hla2.chunk16.direct.fp32 --time 10m --seed 1 --json " + json);
  EXPECT_EQ(status, 130) << text_of(folder / "out");
  EXPECT_THAT(text_of(folder / "out"), HasSubstr("interrupted"));
  const auto report = nlohmann::json::parse(text_of(json));
  EXPECT_TRUE(report.at("interrupted"));
  EXPECT_GT(report.at("kernels").at(0).at("cases"), 0);
}

TEST(FuzzCommand, InterruptedAfterAFailureItHasFailed) {
  const TemporaryFolder folder;
  EXPECT_EQ(interrupted_hunt(folder, "--kernel mutant.hla2.cross_dropped --time 10m --seed 1"), 1);
  EXPECT_THAT(text_of(folder / "out"), HasSubstr("interrupted"));
}

// Cases, cases a second and seconds of a hunt in one folder.
struct Pace {
  double cases = 0, rate = 0, seconds = 0;
};
Pace pace_of(const std::string& out, const std::filesystem::path& json) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(out, found, std::regex(R"((\d+) cases +(\d+)/s)"))) << out;
  const auto kernel = nlohmann::json::parse(text_of(json)).at("kernels").at(0);
  return {std::stod(found[1]), std::stod(found[2]), kernel.at("seconds").get<double>()};
}

TEST(FuzzCommand, TheRateOfAResumedHuntCountsTheCasesOfThisRunAlone) {
  const TemporaryFolder folder;
  const std::string hunt =
      "--kernel cpu.linear.chunk16.fp32 --cases 100000 --seed 1 --output " + (folder / "run").string();
  const auto json = folder / "run" / "fuzz.json";
  EXPECT_EQ(interrupted_hunt(folder, hunt, 1), 130);
  const Pace first = pace_of(text_of(folder / "out"), json);
  EXPECT_NEAR(first.rate * first.seconds, first.cases, 0.6 * first.seconds + 1);
  std::filesystem::remove(json);
  EXPECT_EQ(interrupted_hunt(folder, hunt + " --resume", 1), 130);
  std::smatch before;
  const std::string out = text_of(folder / "out");
  ASSERT_TRUE(std::regex_search(out, before, std::regex(R"(resumed: (\d+) cases)"))) << out;
  const Pace second = pace_of(out, json);
  EXPECT_GT(std::stod(before[1]), 10);
  EXPECT_NEAR(second.rate * second.seconds, second.cases - std::stod(before[1]), 0.6 * second.seconds + 1);
}

TEST(FuzzCommand, AKernelThatTakesNoCaseIsNotRun) {
  const TemporaryFolder folder;
  const std::string junit = (folder / "x.xml").string();
  const ProgramRun none = run_attest(folder,
                                     "fuzz --process 'python3 tests/adapters/plugins/hostile.py "
                                     "is_unsupported' --cases 5 --seed 1 --workers 1 --junit " +
                                         junit);
  EXPECT_EQ(none.exit_code, 77) << none.out << none.err;
  EXPECT_THAT(none.out, HasSubstr("NOT RUN    mine"));
  EXPECT_THAT(none.out, HasSubstr("5 of 5, most of all (5): unsupported: "));
  EXPECT_THAT(text_of(junit), HasSubstr("<skipped"));
  HuntReport report;
  report.cases = 4, report.replayed = 1, report.undecided["unsupported"] = 5;
  EXPECT_EQ(report.verdict(), Verdict::not_run);
  report.unanswered = 1;
  EXPECT_EQ(report.verdict(), Verdict::undecided) << "it was at one";
  report.unanswered = 0, report.undecided = {{"unsupported", 4}, {"no bound", 1}};
  EXPECT_EQ(report.verdict(), Verdict::undecided) << "it answered one";
  report.decided = 1;
  EXPECT_EQ(report.verdict(), Verdict::pass);
  report.findings.emplace_back();
  EXPECT_EQ(report.verdict(), Verdict::fail);
}

TEST(FuzzCommand, MinimiseThatCanAskNothingIsNotRunAndKeepsEverything) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "c");
  const auto write = [&](const char* name, const std::string& op) {
    std::ofstream(folder / "c" / name) << "attest.corpus/1\ncheck value\ncase " << op
                                       << " variant=masked T=2 d=1 dv=1 seed=1\nvalues drawn\nend 0\n";
  };
  const std::string thin = "fuzz --minimise --corpus " + (folder / "c").string();
  write("a.case", "softmax"), write("b.case", "softmax");
  const ProgramRun none = run_attest(folder, thin);
  EXPECT_EQ(none.exit_code, 77) << none.err;
  EXPECT_EQ(none.out,
            "NOT RUN: 2 of 2 cases cannot be asked, no mutant computes softmax (masked); nothing is removed, "
            "expected --kernel, --plugin or --process of one that does\n");
  write("l.case", "linear");
  const ProgramRun some = run_attest(folder, thin + " --kernel cpu.linear.chunk16.fp32");
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.err, HasSubstr("2 of 3 cases cannot be asked, no kernel that was named computes softmax"));
  EXPECT_THAT(some.out, HasSubstr("3 cases kept, 0 removed"));
}

TEST(FuzzCommand, ReplaySaysBitForBitOfIntegersAndErrorOverBoundOfValues) {
  const TemporaryFolder folder;
  const auto replayed = [&](const std::string& check, const std::string& kernel) {
    std::ofstream(folder / "x.case") << "attest.corpus/1\ncheck " << check
                                     << "\ncase hla2 variant=masked T=4 d=2 dv=2 decay=1/2 seed=1\nvalues "
                                        "drawn\nend 0\n";
    return run_attest(folder, "replay --kernel " + kernel + ' ' + (folder / "x.case").string()).out;
  };
  const std::string right = "cpu.hla2.stream.direct.fp32", wrong = "mutant.hla2.cross_dropped";
  EXPECT_THAT(replayed("lattice", right), HasSubstr("x.case  bit for bit"));
  EXPECT_THAT(replayed("lattice", wrong), HasSubstr("x.case  not bit for bit  "));
  EXPECT_THAT(replayed("value", right), HasSubstr("x.case  error/bound 0."));
  EXPECT_THAT(replayed("value", wrong), HasSubstr("x.case  error/bound "));
}

TEST(FuzzCommand, OfKernelsThatAreNotThereItNamesThoseOfTheDoorAndTheOptionsThatWereGiven) {
  const TemporaryFolder folder;
  const std::string door = "--process 'python3 tests/adapters/plugins/hostile.py correct' ";
  for (const std::string command : {"fuzz --cases 1 ", "check ", "check --battery "}) {
    const ProgramRun run = run_attest(folder, command + door + "--kernel lin_left");
    EXPECT_EQ(run.exit_code, 2) << command;
    EXPECT_THAT(run.err, HasSubstr("no kernel matches --kernel \"lin_left\", expected of --plugin and "
                                   "--process \"mine\", or globs"));
    EXPECT_EQ(lines_of(run.err), 1u) << run.err;
    const ProgramRun other = run_attest(folder, command + "--kernel 'cpu.*' --operator none");
    EXPECT_THAT(other.err,
                HasSubstr("no kernel matches --kernel \"cpu.*\" --operator \"none\", expected globs"));
  }
  EXPECT_THAT(run_attest(folder, "check --kernel 'mutant.hla2.*' --seed 1").err,
              HasSubstr("; mutants are judged by attest check --mutants, and hunted by attest fuzz"));
}

TEST(FuzzCommand, ItsFindingsAreNoRecordsToCompareAndHaveTwoFormsToReport) {
  const TemporaryFolder folder;
  const std::string json = (folder / "x.json").string(), records = "reports/baseline/check_small.jsonl";
  run_attest(folder, "fuzz --kernel cpu.linear.chunk16.fp32 --cases 1 --seed 1 --json " + json);
  for (const std::string& pair : {json + ' ' + records, records + ' ' + json}) {
    const ProgramRun compared = run_attest(folder, "compare " + pair);
    EXPECT_EQ(compared.exit_code, 2);
    EXPECT_THAT(compared.err,
                HasSubstr("x.json\": the findings of attest fuzz, which have no cases to compare"));
  }
  EXPECT_THAT(run_attest(folder, "report " + json).err, HasSubstr("expected one of --html, --junit, or"));
  EXPECT_THAT(run_attest(folder, "report " + records).err,
              HasSubstr("expected one of --html, --markdown, --junit, --csv, --sarif, or"));
}

// A second signal ends it at once, or finds it gone: in either case without what it had begun to write.
TEST(FuzzCommand, InterruptedTwiceItLeavesNoTemporaries) {
  const TemporaryFolder folder;
  std::ofstream(folder / "hunt.sh")
      << std::getenv("ATTEST_PROGRAM")
      << " fuzz --kernel cpu.hla2.chunk16.direct.fp32 --time 10m --seed 1 --json "
      << (folder / "x.json").string() << " >" << (folder / "out").string()
      << " 2>&1 & p=$!; sleep 0.7; kill -TERM $p; sleep 0.002; kill -TERM $p; wait $p\n";
  EXPECT_NE(std::system(("bash " + (folder / "hunt.sh").string() + " 2>/dev/null").c_str()), -1);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".attest-")) << entry.path();
}

// A call may take a minute until it is a fault (--time-limit); a signal does not wait for it.
TEST(FuzzCommand, InterruptedItDoesNotWaitForAKernelThatHangs) {
  const TemporaryFolder folder;
  interrupted_hunt(folder,
                   "--process 'python3 tests/adapters/plugins/hostile.py is_silent' --time 10m --seed 1");
  EXPECT_THAT(text_of(folder / "out"), HasSubstr("interrupted"));
}

}  // namespace
}  // namespace attest
