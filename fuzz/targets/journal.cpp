// Bytes as the journal of a run that was killed: refused as another run's, or every record in it is read or refused.
#include <unistd.h>

#include <fstream>

#include "fuzz/targets/target.hpp"
#include "reports/record_journal.hpp"

namespace attest {
namespace {

// One file for all inputs; in memory where the system has such a folder.
const std::filesystem::path& journal_path() {
  static const std::filesystem::path path =
      (std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                 : std::filesystem::temp_directory_path()) /
      ("attest-fuzz-journal-" + std::to_string(getpid()));
  return path;
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  std::ofstream(journal_path(), std::ios::binary) << text_of(bytes, size);
  (void)RecordJournal::seed_of(journal_path());
  accepted([&] {
    RecordJournal journal(journal_path(), {"attest check --seed 1", 1, "0.1.0", std::string(64, '0')}, true);
    for (std::int64_t index = 0; index < 100; ++index)
      if (journal.holds(index)) accepted([&] { (void)journal.read(index); });
    const std::size_t before = journal.size();
    CaseRecord added;
    added.case_line = "linear T=1";
    journal.add(1'000'000, added);
    require(journal.size() == before + 1 || before > 0, "a case that was added is not there");
    require(journal.read(1'000'000).case_line == "linear T=1", "another record is read than was added");
  });
  std::error_code ignored;
  std::filesystem::remove(journal_path(), ignored);
  return 0;
}
