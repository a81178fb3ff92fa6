// Records in and out of a JSON Lines file (schema attest.records/1, see record.hpp).
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "reference/tensor/temporaries.hpp"
#include "reports/record.hpp"

namespace attest {

// Where a run in progress is kept: "x.jsonl" -> "x.jsonl.PID.partial".
std::filesystem::path partial_name(const std::filesystem::path& path);

// Streams a run to PATH.PID.partial, line by line; end() writes the last line and renames to PATH. Destroyed
// before end(), or interrupted by a signal that can be handled, it removes what it wrote; killed before end(), it
// leaves PATH.PID.partial, which a reader recognises as incomplete.
class RecordWriter {
 public:
  RecordWriter(std::filesystem::path path, const Run& run);  // throws BadInput when PATH cannot be written
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  ~RecordWriter();

  void add(const CaseRecord& record);      // curves longer than curve_limit are thinned
  End close(const std::string& finished);  // writes the last line, returns the counts
  void commit();                           // renames
  End end(const std::string& finished);    // both

 private:
  void line(const std::string& text);
  void discard();

  std::filesystem::path path_;
  std::ofstream file_;
  Temporary remembered_;
  End counts_;
  bool ended_ = false;
};

enum class Incomplete { refuse, accept };

// Throws BadInput, one line with file, line number and member, for anything that is not exactly the schema:
// JSON that does not parse, a member that is missing, unknown, repeated or of another type, a number that is
// not a hex-float string, quantiles out of order, counts that do not match the cases, lines after the end.
Records read_records(const std::filesystem::path& path, Incomplete incomplete = Incomplete::refuse);
Records parse_records(std::istream& input, const std::string& name,
                      Incomplete incomplete = Incomplete::refuse);

// The line of one case.
CaseRecord parse_case_record(const std::string& line, const std::string& file_line);

std::string to_json_line(const Run& run);
std::string to_json_line(const CaseRecord& record);
std::string to_json_line(const End& end);

}  // namespace attest
