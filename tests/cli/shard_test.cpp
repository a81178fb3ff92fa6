// Shards of a run hold every case once, and joined they are the run; parts that do not fit are refused with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "reference/tensor/contract.hpp"
#include "reports/record_file.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Durations and time stamps replaced, and the first line, which names the command.
std::string cases_of(const fs::path& records) {
  static const std::regex times(R"re("(kernel_ns|oracle_ns|total_ns|time_ns)":\d+)re"),
      stamps(R"re("finished":"[^"]*")re");
  const std::string text = text_of(records);
  return std::regex_replace(std::regex_replace(text.substr(text.find('\n')), times, "\"$1\":0"), stamps, "");
}

class Shards : public testing::Test {
 protected:
  ProgramRun run(const std::string& arguments) const { return run_attest(folder, arguments); }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  // The run in so many parts, in folders or files NAME1, NAME2 ...; their names with spaces between them.
  std::string split(const std::string& command, int parts, const std::string& name,
                    const std::string& option) const {
    std::string all;
    for (int i = 1; i <= parts; ++i) {
      const std::string part = path(name + std::to_string(i));
      const ProgramRun one =
          run(command + " --shard " + std::to_string(i) + '/' + std::to_string(parts) + option + part);
      EXPECT_TRUE(one.exit_code == 0 || one.exit_code == 3 || one.exit_code == 77)
          << one.exit_code << one.err;
      all = part + ' ' + all;  // the order of the files does not matter
    }
    return all;
  }
  TemporaryFolder folder;
};

class OfRecords : public Shards, public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(OfRecords, JoinedAreTheBytesOfTheWholeRun) {
  Tensors fields;
  for (const char* name : {"q", "k", "v"}) fields[name] = {{9, 3}, std::vector<double>(27, 0.5)};
  write_fields(folder / "in.safetensors", fields);
  const std::string command =
      std::regex_replace(std::string(GetParam().second), std::regex("FILE"), path("in.safetensors"));
  const ProgramRun whole = run(command + " --output " + path("whole"));
  ASSERT_TRUE(fs::exists(folder / "whole/records.jsonl")) << whole.err;
  for (const int parts : {1, 3}) {
    const std::string joined = path("joined" + std::to_string(parts));
    const ProgramRun merged =
        run("merge " + split(command, parts, "part" + std::to_string(parts) + '-', " --output ") +
            "--output " + joined);
    EXPECT_EQ(merged.exit_code, whole.exit_code) << merged.err;
    EXPECT_EQ(cases_of(joined), cases_of(folder / "whole/records.jsonl"));
    const Records records = read_records(joined), expected = read_records(folder / "whole/records.jsonl");
    EXPECT_FALSE(records.run.shard);
    EXPECT_EQ(records.run.seed, expected.run.seed);
    EXPECT_EQ(records.run.commit, expected.run.commit);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Check, OfRecords,
    testing::Values(
        std::pair("Values",
                  "check --kernel 'cpu.*linear*.chunk16.*' --shape T=33,d=3,dv=2 --shape "
                  "T=17,d=2,dv=2,recipe=range --seed 5"),
        std::pair("FilesAndWhatIsLeftOut",
                  "check --kernel 'cpu.*a[2r].chunk16.fp32' --input FILE --shape T=5,d=2,dv=2 --seed 5"),
        std::pair("Battery", "check --quick --check '[lp]a*' --kernel 'cpu.*linear.chunk16.*' --seed 5")),
    [](const auto& info) { return std::string(info.param.first); });

TEST_F(Shards, OfTheLedgerAndOfTheKillMatrixJoinedAreTheBytesOfTheWholeRun) {
  const std::string claims = "prove --claim 'lla.*' --claim 'compose*' --seed 3";
  const ProgramRun ledger = run(claims + " --json " + path("ledger"));
  ASSERT_EQ(ledger.exit_code, 0) << ledger.err;
  ProgramRun merged = run("merge " + split(claims, 3, "claims", " --json ") + "--output " + path("claims"));
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(text_of(folder / "claims"), text_of(folder / "ledger"));

  const std::string mutants = "check --mutants --quick --seed 1 --kernel 'ahla.cross*'";
  const ProgramRun matrix = run(mutants + " --output " + path("matrix"));
  ASSERT_EQ(matrix.exit_code, 0) << matrix.out << matrix.err;
  const std::string parts = split(mutants, 2, "mutants", " --output ");
  merged = run("merge " + parts + "--output " + path("matrix.json"));
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(text_of(folder / "matrix.json"), text_of(folder / "matrix/kill_matrix.json"));
  EXPECT_THAT(matrix.out, HasSubstr(merged.out.substr(0, merged.out.find("merged:")))) << "the same table";
  run("merge " + parts + "--output " + path("matrix.md"));
  EXPECT_EQ(text_of(folder / "matrix.md"), text_of(folder / "matrix/kill_matrix.md"));
}

constexpr const char* small_check = "check --kernel 'cpu.linear.chunk16.*' --shape T=8,d=2,dv=2 --seed 1";

TEST_F(Shards, ShareNoEvaluationOfTheOracle) {
  split("check --kernel 'cpu.linear.*' --shape T=8,d=2,dv=2 --seed 1", 2, "part", " --output ");
  std::map<std::string, std::multiset<int>> shards_of;  // what the oracle sees -> shards
  for (int i = 1; i <= 2; ++i)
    for (const CaseRecord& record :
         read_records(folder / ("part" + std::to_string(i)) / "records.jsonl").cases) {
      const Contract contract = parse_contract(record.kernel.contract);
      shards_of[record.case_line + std::string(contract.input.name) + ' ' +
                std::string(contract.gate_sum.name) + ' ' + std::string(contract.state.name)]
          .insert(i);
    }
  std::size_t shared = 0;
  std::set<int> shards;
  for (const auto& [input, list] : shards_of) {
    EXPECT_EQ(*list.begin(), *list.rbegin()) << input;
    shared += list.size() > 1;
    shards.insert(list.begin(), list.end());
  }
  EXPECT_GE(shared, 3u);
  EXPECT_EQ(shards.size(), 2u);
}

TEST_F(Shards, MoreThanThereAreCasesAreEmptyAndSaySo) {
  const std::string command = "check --kernel cpu.linear.chunk16.fp32 --shape T=4,d=2,dv=2 --seed 1";
  const std::string parts = split(command, 5, "part", " --output ");
  const ProgramRun empty = run(command + " --shard 5/5");
  EXPECT_EQ(empty.exit_code, 77);
  EXPECT_THAT(empty.out, HasSubstr("shard 5/5: 0 of 3 cases"));
  EXPECT_EQ(run("merge " + parts + "--output " + path("joined")).exit_code, 0);
  EXPECT_EQ(read_records(folder / "joined").cases.size(), 3u);
}

TEST_F(Shards, AreRefusedInOneLineWhereTheyAreNoParts) {
  for (const char* shard : {"0/3", "4/3", "1/0", "1", "a/b", "1/3x", "-1/3", "1/1000001", "''"})
    EXPECT_THAT(run(std::string(small_check) + " --shard " + shard).err, HasSubstr("expected I/N")) << shard;
  for (const char* command : {"check --shape T=4,d=2,dv=2", "check --battery", "check --mutants", "prove"}) {
    const ProgramRun refused = run(std::string(command) + " --shard 1/2");
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_THAT(refused.err, HasSubstr("expected --seed N beside it")) << command;
  }
  EXPECT_EQ(run("prove --list --seed 1 --shard 1/2").exit_code, 2);
}

// Parts of one run, and what becomes of them when a part is another's.
class Joining : public Shards {
 protected:
  Joining() { split(small_check, 2, "part", " --output "), one = path("part1"), two = path("part2"); }
  void refused(const std::string& parts, const char* why) const {
    const ProgramRun run = this->run("merge " + parts + " --output " + path("joined"));
    EXPECT_EQ(run.exit_code, 2) << why;
    EXPECT_THAT(run.err, HasSubstr(why));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_FALSE(fs::exists(folder / "joined"));
  }
  // The second part with a text in its place.
  std::string changed(const std::string& from, const std::string& to,
                      const std::string& part = "part2") const {
    const std::string text = text_of(folder / part / "records.jsonl");
    const std::string other = std::regex_replace(text, std::regex(from), to);
    EXPECT_NE(other, text) << from;
    std::ofstream(folder / ("changed-" + part)) << other;
    return path("changed-" + part);
  }
  std::string one, two;
};

TEST_F(Joining, RefusesOverlapsGapsAndPartsOfOtherRuns) {
  refused(one, "shard 2 of 2 is missing");
  refused(one + ' ' + two + ' ' + one, "shard 1/2 overlaps with");
  const auto whole = [&](const char* name, const std::string& arguments) {
    run(arguments + " --output " + path(name));
    return path(name);
  };
  refused(one + ' ' + whole("unsplit", small_check),
          "is of a whole run, expected one that was made with --shard I/N");
  const std::string base = "check --kernel 'cpu.linear.chunk16.*' --shape T=8,d=2,dv=2";
  refused(one + ' ' + whole("seed", base + " --seed 2 --shard 2/2"), "--seed 2, but");
  refused(one + ' ' + whole("thirds", std::string(small_check) + " --shard 2/3"), "number of shards 3, but");
  refused(one + ' ' + whole("command", base + " --whole --seed 1 --shard 2/2"), "command");
  refused(one + ' ' + changed("\"version\":\"[^\"]*\"", "\"version\":\"0.0 (abc)\""),
          "version 0.0 (abc), but");
  refused(one + ' ' + changed("\"seed\":1,\"commit", "\"seed\":2,\"commit"), "seed 2, but");
  refused(one + ' ' + changed("\"cases_sha256\":\"..", "\"cases_sha256\":\"zz"), "kernels and inputs");
  refused(one + ' ' + changed("\"cases\":(\\d+),\"command\"", "\"cases\":1$1,\"command\""),
          "number of cases");
  const std::string count = "\"cases\":\\d+,\"command\"", most = "\"cases\":9223372036854775807,\"command\"";
  refused(changed(count, most, "part1") + ' ' + changed(count, most),
          "is in no file: expected every case once");
  const std::string first = std::to_string(*read_records(folder / "part1/records.jsonl").cases[0].index);
  refused(one + ' ' + changed("\"index\":\\d+\\}\n", "\"index\":" + first + "}\n"),
          "expected every case once");
  refused(one + ' ' + changed(",\"index\":\\d+\\}\n", "}\n"), "a case has no index below");
  refused(one + ' ' + changed("\\{\"end\"[^\n]*\n", ""), "incomplete");
  refused(one + ' ' + changed("\"index\":2,\"of\":2", "\"index\":3,\"of\":2"), "expected 1 <= index <= of");
  refused(one + ' ' + path("nowhere"), "cannot be read");
  refused("dev", "schema \"\": expected attest.records/1");
  run("prove --claim 'compose*' --seed 1 --shard 2/2 --json " + path("ledger"));
  refused(one + ' ' + path("ledger"), "ledger");
  refused(path("ledger"), "shard 1 of 2 is missing");
  refused(path("ledger") + ' ' + one, "part1");
  EXPECT_EQ(run("merge " + one + ' ' + two + " --output " + two + "/records.jsonl").exit_code, 2);
  EXPECT_EQ(run("merge " + one + ' ' + two + " --output " + path("joined")).exit_code, 0)
      << "the parts themselves";
}

TEST_F(Joining, OfAJobArrayOfSlurmIsTheWholeRun) {
  const std::string script = fs::absolute("reports/ci/slurm_array.sh").string(),
                    program = fs::absolute(std::getenv("ATTEST_PROGRAM")).string();
  for (const char* task : {"1", "2"}) {
    const std::string line = "cd '" + folder.path().string() + "' && ATTEST='" + program +
                             "' SLURM_ARRAY_TASK_ID=" + task +
                             " SLURM_ARRAY_TASK_COUNT=2 SLURM_CPUS_PER_TASK=1 bash '" + script + "' " +
                             small_check + " >/dev/null";
    ASSERT_EQ(std::system(line.c_str()), 0) << line;
  }
  EXPECT_EQ(
      run("merge " + path("shards/1") + ' ' + path("shards/2") + " --output " + path("joined")).exit_code, 0);
  run("merge " + one + ' ' + two + " --output " + path("other"));
  const auto cases = [&](const char* name) {
    const std::string text = cases_of(folder / name);
    return std::regex_replace(text, std::regex("\"replay\":\"[^\"]*\""), "");  // names the program
  };
  EXPECT_EQ(cases("joined"), cases("other"));
}

}  // namespace
}  // namespace attest
