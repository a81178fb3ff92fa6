// What a run in progress has found, case by case in the order in which they were finished, so that a run that was killed
// is continued: a file of one line that says which run it is, and one line "INDEX RECORD" per case, flushed as it is
// written. A last line without its end is dropped; any other that cannot be read is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "reports/record.hpp"

namespace attest {

// What has to agree before a run is continued.
struct RunIdentity {
  std::string command;       // without --resume
  std::uint64_t seed = 0;    // that was given, or drawn for the run
  std::string version;       // of the program, with its commit
  std::string cases_sha256;  // of the kernels, their contracts and their inputs
};

class RecordJournal {
 public:
  // The seed of the journal at `path`; none where there is no journal.
  static std::optional<std::uint64_t> seed_of(const std::filesystem::path& path);

  // resume: keeps what the journal holds; BadInput where it is of another run or another process writes to it. Else, and
  // where there is none, a new one takes its place.
  RecordJournal(std::filesystem::path path, const RunIdentity& identity, bool resume);
  RecordJournal(const RecordJournal&) = delete;
  RecordJournal& operator=(const RecordJournal&) = delete;
  ~RecordJournal();  // removes the file: it outlives only a process that was killed

  bool holds(std::int64_t index) const { return lines_.contains(index); }
  std::size_t size() const { return lines_.size(); }
  CaseRecord read(std::int64_t index) const;
  void add(std::int64_t index, const CaseRecord& record);

 private:
  struct Line {
    std::int64_t at = 0, length = 0;  // of the record
  };
  void create(const RunIdentity& identity);
  bool open_old(const RunIdentity& identity);
  void write(const std::string& line);
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t end_ = 0;
  std::map<std::int64_t, Line> lines_;
};

}  // namespace attest
