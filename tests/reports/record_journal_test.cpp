#include "reports/record_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "reference/tensor/bad_input.hpp"
#include "reports/record_file.hpp"
#include "tests/reports/sample_records.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

const RunIdentity identity{"attest check", 7, "0.1", "abc"};

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a killed run leaves: a journal takes its file with it in every other case.
std::string left_by_a_killed_run(const std::filesystem::path& path, std::size_t cases) {
  RecordJournal journal(path, identity, false);
  const Records records = sample_records();
  for (std::size_t i = 0; i < cases; ++i) journal.add(static_cast<std::int64_t>(2 * i), records.cases.at(i));
  return content_of(path);
}

void put(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string complaint(const std::filesystem::path& path, const RunIdentity& run) {
  try {
    RecordJournal(path, run, true);
    return "";
  } catch (const BadInput& error) {
    return error.what();
  }
}

TEST(Journal, GivesBackWhatAKilledRunHadFound) {
  const TemporaryFolder folder;
  const auto path = folder / "journal";
  put(path, left_by_a_killed_run(path, 3));
  RecordJournal journal(path, identity, true);
  const Records records = sample_records();
  EXPECT_EQ(journal.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(to_json_line(journal.read(static_cast<std::int64_t>(2 * i))), to_json_line(records.cases[i]));
  EXPECT_FALSE(journal.holds(1));
  journal.add(1, records.cases[0]);
  EXPECT_EQ(to_json_line(journal.read(1)), to_json_line(records.cases[0]));
  EXPECT_EQ(RecordJournal::seed_of(path), 7u);
}

TEST(Journal, CutAnywhereKeepsItsWholeLines) {
  const TemporaryFolder folder;
  const auto path = folder / "journal";
  const std::string whole = left_by_a_killed_run(path, 2);
  const std::size_t header = whole.find('\n') + 1, first = whole.find('\n', header) + 1;
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, header - 1, header, header + 1, header + 9,
                                   first - 1, first, whole.size() - 1, whole.size()}) {
    put(path, whole.substr(0, length));
    RecordJournal journal(path, identity, true);
    EXPECT_EQ(journal.size(), length == whole.size() ? 2u : length >= first ? 1u : 0u) << length;
    journal.add(9, sample_records().cases[0]);
    EXPECT_EQ(to_json_line(journal.read(9)), to_json_line(sample_records().cases[0])) << length;
  }
}

TEST(Journal, RefusesAnotherRunAndALineThatIsNone) {
  const TemporaryFolder folder;
  const auto path = folder / "journal";
  const std::string whole = left_by_a_killed_run(path, 1);
  put(path, whole);
  RunIdentity other = identity;
  other.command = "attest check --kernel x";
  EXPECT_THAT(complaint(path, other), HasSubstr("is of another command, attest check:"));
  other = identity, other.seed = 8;
  EXPECT_THAT(complaint(path, other), HasSubstr("is of seed 7, not 8"));
  other = identity, other.version = "0.2";
  EXPECT_THAT(complaint(path, other), HasSubstr("is of attest 0.1, this is 0.2"));
  other = identity, other.cases_sha256 = "abd";
  EXPECT_THAT(complaint(path, other), HasSubstr("is of other kernels or inputs"));
  EXPECT_EQ(content_of(path), whole);
  put(path, whole + "nonsense\n");
  EXPECT_THAT(complaint(path, identity), HasSubstr("line 3: expected an index and a record"));
  put(path, "{}\n" + whole);
  EXPECT_THAT(complaint(path, identity), HasSubstr("is no journal of attest check"));
}

TEST(Journal, OfARunThatIsStillAtWorkIsRefused) {
  const TemporaryFolder folder;
  const RecordJournal first(folder / "journal", identity, false);
  EXPECT_THAT(complaint(folder / "journal", identity), HasSubstr("another run writes to it"));
}

TEST(Journal, IsReplacedWhereNothingIsResumed) {
  const TemporaryFolder folder;
  const auto path = folder / "journal";
  {
    put(path, left_by_a_killed_run(path, 2));
    const RecordJournal journal(path, identity, false);
    EXPECT_EQ(journal.size(), 0u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace attest
