// The committed records against a fresh run of the command that made them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "reports/record_file.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

constexpr const char* baseline = "reports/baseline/check_small.jsonl";

TEST(Baseline, IsWhatItsCommandGivesToday) {
  const std::string command = read_records(baseline).run.command, program = "build/attest ",
                    output = " --output ";
  EXPECT_THAT(text_of("reports/baseline/README.md"), HasSubstr("\n" + command + "\n"));
  ASSERT_TRUE(command.starts_with(program)) << command;
  const TemporaryFolder folder;
  const std::string fresh = (folder / "fresh").string();
  const ProgramRun check = run_attest(
      folder, command.substr(program.size(), command.find(output) - program.size()) + output + fresh);
  ASSERT_EQ(check.exit_code, 0) << check.out << check.err;
  const ProgramRun same = run_attest(folder, std::string("compare ") + baseline + " " + fresh);
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("18 cases in both: 18 same"));

  Records damaged = read_records(baseline);  // the control: errors were a tenth of what they are
  RecordWriter writer(folder / "damaged.jsonl", damaged.run);
  for (CaseRecord& record : damaged.cases) {
    Quantiles& ratio = record.error.at("o").ratio;
    ratio.p50 /= 10, ratio.p99 /= 10, ratio.max /= 10;
    writer.add(record);
  }
  writer.end(damaged.end.finished);
  const ProgramRun worse = run_attest(folder, "compare " + (folder / "damaged.jsonl").string() + " " + fresh);
  EXPECT_EQ(worse.exit_code, 1) << worse.out << worse.err;
  EXPECT_THAT(worse.out, HasSubstr("REGRESSION"));
  EXPECT_THAT(worse.out, HasSubstr("18 regressions"));
}

TEST(Baseline, IsSmallAndEveryFileOfItsFolderIsExplained) {
  EXPECT_LT(std::filesystem::file_size(baseline), 100'000U);
  const std::string words = text_of("reports/baseline/README.md");
  for (const auto& entry : std::filesystem::directory_iterator("reports/baseline"))
    if (entry.path().filename() != "README.md") {
      EXPECT_THAT(words, HasSubstr("`" + entry.path().filename().string()));
    }
}

TEST(Report, TakesTheFolderThatCheckMade) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "out");
  std::filesystem::copy_file(baseline, folder / "out" / "records.jsonl");
  const std::string out = (folder / "out").string();
  const ProgramRun by_folder = run_attest(folder, "report " + out + " --csv"),
                   by_file = run_attest(folder, std::string("report ") + baseline + " --csv");
  EXPECT_EQ(by_folder.exit_code, 0) << by_folder.err;
  EXPECT_EQ(by_folder.out, by_file.out);
  std::filesystem::remove(folder / "out" / "records.jsonl");
  const ProgramRun empty = run_attest(folder, "report " + out + " --csv");
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("records.jsonl"));
  const ProgramRun overwritten =
      run_attest(folder, std::string("report ") + baseline + " --csv --output " + baseline);
  EXPECT_EQ(overwritten.exit_code, 2);
}

}  // namespace
}  // namespace attest
