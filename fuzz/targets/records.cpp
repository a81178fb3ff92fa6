// Bytes as a file of records: what is read is written as lines that read the same, can be compared with itself without
// a difference, and becomes every report but the page (which runs gnuplot).
#include <sstream>

#include "fuzz/targets/target.hpp"
#include "reports/compare.hpp"
#include "reports/csv.hpp"
#include "reports/junit.hpp"
#include "reports/markdown.hpp"
#include "reports/record_file.hpp"
#include "reports/sarif.hpp"

namespace attest {
namespace {

std::string lines_of(const Records& records) {
  std::string text = to_json_line(records.run) + '\n';
  for (const CaseRecord& record : records.cases) text += to_json_line(record) + '\n';
  return records.complete ? text + to_json_line(records.end) + '\n' : text;
}

Records read(const std::string& text) {
  std::istringstream stream(text);
  return parse_records(stream, "f", Incomplete::accept);
}

void report(const Records& records) {
  MergedRecords merged{records, {}};
  for (std::size_t i = 0; i < records.cases.size(); ++i)
    merged.origins.push_back({"f", static_cast<std::int64_t>(i) + 2});
  require(is_valid_utf8(render_csv(records)), "the CSV is no UTF-8");
  require(is_valid_utf8(render_junit(records)), "the JUnit XML is no UTF-8");
  require(is_valid_utf8(render_sarif(merged)), "the SARIF is no UTF-8");
  require(is_valid_utf8(render_markdown(records)), "the Markdown is no UTF-8");
  require(compare_records(records, records).regressions == 0 || !records.complete,
          "a run is a regression of itself");
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  Records records;
  if (!accepted([&] { records = read(std::string(text_of(bytes, size))); })) return 0;
  const std::string written = lines_of(records);
  require(accepted([&] {
            require(lines_of(read(written)) == written, "other records are read from their own lines");
          }),
          "refuses its own lines");
  report(records);
  return 0;
}
