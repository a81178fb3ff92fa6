// attest check as a user meets it: exit codes, files, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reference/tensor/atomic_file.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

constexpr const char* small = "check --kernel cpu.linear.chunk16.fp32 --shape T=32,d=8,dv=8";

TEST(CheckCommand, PassesWithZeroAndWritesRecordsPageAndJson) {
  const TemporaryFolder folder;
  const std::string out = (folder / "report").string(), json = (folder / "verdicts.json").string();
  const ProgramRun run =
      run_attest(folder, std::string(small) + " --seed 7 --output " + out + " --json " + json);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, HasSubstr("seed 7"));
  const Records records = read_records(folder / "report" / "records.jsonl");
  ASSERT_EQ(records.cases.size(), 3u);
  EXPECT_EQ(records.run.seed, 7u);
  EXPECT_EQ(records.cases[0].tokens, 8);
  EXPECT_EQ(records.cases[2].case_line,
            "linear variant=masked T=32 d=8 dv=8 H=1 B=1 recipe=gaussian gates=published seed=7");
  EXPECT_EQ(records.end.pass, 3);
  EXPECT_THAT(text_of(folder / "report" / "index.html"), HasSubstr("cpu.linear.chunk16.fp32"));
  const auto document = nlohmann::json::parse(text_of(json));
  EXPECT_EQ(document["schema"], "attest.check/1");
  EXPECT_EQ(document["pass"], 3);
  EXPECT_EQ(document["kernels"].size(), 3u);
}

TEST(CheckCommand, PrintsTheSeedThatItDrewAndReplaysItBitForBit) {
  const TemporaryFolder folder;
  const std::string first = (folder / "first").string(), second = (folder / "second").string();
  const ProgramRun drawn = run_attest(folder, std::string(small) + " --output " + first);
  const auto at = drawn.out.rfind("seed ");
  ASSERT_NE(at, std::string::npos);
  const std::string seed = drawn.out.substr(at + 5, drawn.out.find('\n', at) - at - 5);
  run_attest(folder, std::string(small) + " --seed " + seed + " --output " + second);
  const Records a = read_records(folder / "first" / "records.jsonl"),
                b = read_records(folder / "second" / "records.jsonl");
  ASSERT_EQ(a.cases.size(), b.cases.size());
  for (std::size_t i = 0; i < a.cases.size(); ++i) {
    EXPECT_EQ(a.cases[i].case_line, b.cases[i].case_line);
    EXPECT_EQ(a.cases[i].worst.at(0).got, b.cases[i].worst.at(0).got);
    EXPECT_EQ(a.cases[i].worst.at(0).bound, b.cases[i].worst.at(0).bound);
  }
  // The line that the record gives does the same, alone.
  const std::string line = a.cases[1].checks.at(0).replay;
  const std::string program = std::string(std::getenv("ATTEST_PROGRAM")) + " ";
  ASSERT_TRUE(line.starts_with(program)) << line;
  const ProgramRun replayed =
      run_attest(folder, line.substr(program.size()) + " --output " + (folder / "third").string());
  EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
  const Records c = read_records(folder / "third" / "records.jsonl");
  ASSERT_EQ(c.cases.size(), 1u);
  EXPECT_EQ(c.cases[0].worst.at(0).got, a.cases[1].worst.at(0).got);
  EXPECT_EQ(c.cases[0].worst.at(0).ratio, a.cases[1].worst.at(0).ratio);
}

TEST(CheckCommand, ReplaysAFileByItsCaseLine) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder,
                 "check --kernel cpu.delta.chunk16.fp32 --case 'delta "
                 "input=reports/baseline/activations/minilm_layer.safetensors T=8 unit_keys=true'");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("PASS"));
}

TEST(CheckCommand, SaysWhatItsColumnsAreAndQuotesTheWorstOverTheLengths) {
  const TemporaryFolder folder;
  const std::string json = (folder / "v.json").string();
  const ProgramRun run = run_attest(
      folder,
      "check --kernel cpu.hla2.stream.direct.bf16state --shape T=64,d=8,dv=8 --seed 1 --json " + json);
  EXPECT_THAT(run.out, HasSubstr("error/bound: of each T, above 1 is a failure"));
  EXPECT_THAT(run.out, HasSubstr("verdict    kernel"));
  double power = 1, ulps = 0, norm = 0;
  const auto document = nlohmann::json::parse(text_of(json));
  for (const auto& kernel : document["kernels"]) {
    power = std::min(power, kernel["power"].get<double>());
    ulps = std::max(ulps, kernel["ulps"].get<double>());
    norm = std::max(norm, kernel["relative_l2"].get<double>());
  }
  EXPECT_THAT(run.out, HasSubstr(percent(power)));
  EXPECT_THAT(run.out, HasSubstr(' ' + digits(ulps) + ' '));
  EXPECT_THAT(run.out, HasSubstr(' ' + digits(norm) + ' '));
}

TEST(CheckCommand, PointsAtUnitKeysWhereRawKeysOfAFileLeaveACaseUndecided) {
  const TemporaryFolder folder;
  const std::string file = "--input reports/baseline/activations/minilm_layer.safetensors --whole";
  const std::string out = (folder / "out").string();
  const ProgramRun raw =
      run_attest(folder, "check --kernel cpu.delta.chunk16.fp32 " + file + " --output " + out);
  EXPECT_EQ(raw.exit_code, 3);
  EXPECT_THAT(raw.out, HasSubstr("--unit-keys divides q and k"));
  EXPECT_THAT(raw.out, HasSubstr("undecided, range: 1 case of 1 kernel"));
  const Records records = read_records(folder / "out" / "records.jsonl");
  ASSERT_EQ(records.cases.size(), 1u);  // the errors are there without a bound, and nothing that needs one
  EXPECT_FALSE(records.cases[0].error.at("o").bounded);
  EXPECT_TRUE(records.cases[0].error.at("o").norm);
  EXPECT_GT(records.cases[0].error.at("o").ulp.max, 0);
  EXPECT_FALSE(records.cases[0].oracle->radius_over_bound);
  EXPECT_TRUE(records.cases[0].worst.empty());
  EXPECT_EQ(text_of(folder / "out" / "index.html").find("radius/bound 0"), std::string::npos);
  const ProgramRun unit = run_attest(folder, "check --kernel cpu.delta.chunk16.fp32 --unit-keys " + file);
  EXPECT_EQ(unit.out.find("--unit-keys divides"), std::string::npos);
}

TEST(CheckCommand, IsUndecidedWithThree) {
  const TemporaryFolder folder;  // every bit pattern of bf16: sums leave the range of fp16
  const ProgramRun run = run_attest(
      folder, "check --kernel cpu.linear.chunk64.fp16 --shape T=32,d=8,dv=8,recipe=bits --seed 1 --whole");
  EXPECT_EQ(run.exit_code, 3) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("UNDECIDED"));
}

TEST(CheckCommand, RunsNothingWithSeventySeven) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, "check --kernel cpu.hla3.printed.scan.fp32 --shape T=4,d=32,dv=32,decay=1 --seed 1");
  EXPECT_EQ(run.exit_code, 77) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("NOT RUN"));
}

TEST(CheckCommand, RefusesBadInputInOneLineWithTwo) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "short.safetensors", "abc");
  write_file_atomically(folder / "file", "");
  const std::string file = (folder / "short.safetensors").string(),
                    blocked = (folder / "file" / "report").string();
  const std::pair<std::string, const char*> commands[] = {
      {"check --kernel gpu.*", "no kernel matches"},
      {"check --operator attention", "softmax"},
      {"check --kernel cpu.linear.* --case 'hla2 T=4'", "computes hla2"},
      {"check --case 'hla2 T=4 d=x'", "\"d=x\""},
      {"check --case 'hla9 T=4'", "hla9"},
      {"check --case 'linear T=4 decay=1/2'", "decay"},
      {"check --case 'linear variant=printed T=4'", "printed"},
      {"check --shape T=4,H=3,Hk=2", "multiple"},
      {"check --shape d=4", "T=64"},
      {"check --shape T=4,input=x", "input"},
      {"check --input " + file, "short.safetensors"},
      {"check --input missing.safetensors", "missing.safetensors"},
      {"check --case 'linear input=reports/baseline/activations/minilm_layer.safetensors T=300'", "T=300"},
      {"check --kernel cpu.linear.chunk16.fp32 --shape T=4 --output " + blocked, "report"},
      {"check --kernel cpu.linear.chunk16.fp32 --shape T=4 --json " + blocked, "report"},
      {"check --case 'delta T=8 unit_keys=false'", "unit_keys=false"},
      {"check --whole --case 'delta T=8'", "--whole"},
      {"check --seed minus", "--seed"},
      {"check --threads -1", "--threads"},
  };
  for (const auto& [command, part] : commands) {
    const ProgramRun run = run_attest(folder, command);
    EXPECT_EQ(run.exit_code, 2) << command << run.out << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << command << run.err;
    EXPECT_THAT(run.err, HasSubstr(part)) << command;
  }
  EXPECT_FALSE(std::filesystem::exists(blocked));
}

TEST(CheckCommand, LeavesOutOperatorsWhoseFieldsTheFileLacks) {
  const TemporaryFolder folder;
  const Tensor x{{4, 3}, std::vector<double>(12, 0.5)};
  write_fields(folder / "in.safetensors", {{"q", x}, {"k", x}, {"v", x}});
  const std::string input = (folder / "in.safetensors").string();
  const ProgramRun some =
      run_attest(folder, "check --kernel 'cpu.[lm]*.chunk16.fp32' --whole --input " + input);
  EXPECT_THAT(some.out, HasSubstr("has no field g"));
  EXPECT_THAT(some.out, HasSubstr("cpu.linear.chunk16.fp32"));
  EXPECT_EQ(run_attest(folder, "check --operator mamba2 --input " + input).exit_code, 2);
}

TEST(CheckCommand, PrintsALineForEveryInputWhereThereAreSeveral) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder,
                                    "check --kernel cpu.linear.chunk16.fp32 --whole --seed 1 --shape "
                                    "T=16,d=4,dv=4 --shape T=16,d=8,dv=8");
  const auto first = run.out.find("input: d=4 dv=4"), second = run.out.find("input: d=8 dv=8");
  ASSERT_NE(first, run.out.npos) << run.out;
  ASSERT_NE(second, run.out.npos) << run.out;
  for (const auto at : {first, second}) {
    const std::string line = run.out.substr(run.out.find("PASS", at), 120);
    EXPECT_EQ(line.find("T=16"), line.rfind("T=16")) << line;
  }
  const ProgramRun one = run_attest(folder, small);
  EXPECT_EQ(one.out.find("input: "), one.out.npos) << "one input needs no heading";
}

TEST(CheckCommand, SaysWhatItsTimeWentInto) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      run_attest(folder, std::string(small) + " --seed 1").out,
      testing::ContainsRegex("oracle [0-9.]+ s \\([0-9]+ evaluations\\), kernels [0-9.]+ s, bounds and doors"));
  EXPECT_THAT(
      run_attest(folder, "check --quick --check value --kernel cpu.linear.chunk16.fp32 --seed 1").out,
      testing::ContainsRegex("oracle [0-9.]+ s \\([0-9]+ evaluations\\), kernels [0-9.]+ s, bounds and doors"));
}

TEST(BatteryCommand, NamesTheChecksThatThereAreAndListsThem) {
  const TemporaryFolder folder;
  const ProgramRun unknown =
      run_attest(folder, "check --quick --check nosuch --kernel cpu.linear.chunk16.fp32");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected a glob of: shapes lattice"));
  EXPECT_EQ(std::count(unknown.err.begin(), unknown.err.end(), '\n'), 1);
  const ProgramRun list = run_attest(folder, "list --checks --json " + (folder / "checks.json").string());
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("families 8"));
  const auto document = nlohmann::json::parse(text_of(folder / "checks.json"));
  for (const auto& check : document["checks"]) {
    EXPECT_THAT(unknown.err, HasSubstr(' ' + check["check"].get<std::string>()));
    EXPECT_NE(check["law"], "");
    EXPECT_NE(check["families"], "");
  }
}

TEST(BatteryCommand, CountsTheInputsOfEveryCheckInItsRecord) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(
      folder, "check --quick --check '[lvp]a*' --kernel cpu.linear.chunk16.fp32 --seed 1 --output " +
                  (folder / "out").string());
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const Records records = read_records(folder / "out" / "records.jsonl");
  ASSERT_EQ(records.cases.size(), 1u);
  for (const Check& check : records.cases[0].checks) {
    EXPECT_GT(check.inputs.value_or(0), 1) << check.name;
    EXPECT_GT(check.time_ns.value_or(0), 0) << check.name;
  }
  EXPECT_GT(records.cases[0].time->kernel_ns, 0);
  EXPECT_GT(records.cases[0].time->oracle_ns, 0);
}

TEST(MutantsCommand, TakesNamesAsTheMatrixPrintsThem) {
  const TemporaryFolder folder;
  const ProgramRun shown = run_attest(folder, "check --mutants --seed 1 --kernel 'linear.tail_chunk_dr*'");
  const ProgramRun full =
      run_attest(folder, "check --mutants --seed 1 --kernel 'mutant.hla2.tail_chunk_dr*'");
  const ProgramRun brief = run_attest(folder, "check --mutants --seed 1 --kernel 'hla2.tail_chunk_dr*'");
  EXPECT_EQ(shown.exit_code, 2) << "no linear mutant";
  EXPECT_EQ(full.exit_code, 0) << full.out << full.err;
  EXPECT_EQ(full.out, brief.out);
}

}  // namespace
}  // namespace attest
