#include "reports/junit.hpp"

#include <fmt/format.h>

#include "reference/numeric/hex_float.hpp"
#include "reports/junit_parts.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

std::string details(const CaseRecord& record) {
  std::string text = record.reason.empty() ? "no reason given" : record.reason;
  if (!record.worst.empty()) {
    const WorstElement& w = record.worst.front();
    text +=
        fmt::format("\nworst {}: expected {}, got {}, bound {}, error/bound {}", index_text(w),
                    to_hex_float(w.expected), to_hex_float(w.got), to_hex_float(w.bound), digits(w.ratio));
  }
  return text + "\nreplay: " + replay_of(record);
}

}  // namespace

std::string render_junit(const Records& records) {
  JunitPage page;
  for (const CaseRecord& record : records.cases)
    page.add(operator_title(record.kernel),
             {record.kernel.name, record.case_line, record.time ? record.time->total_ns : 0, record.verdict,
              record.reason, details(record)});
  if (!records.complete) page.add_problem("The run did not finish.");
  if (records.cases.empty()) page.add_problem("No case was run, which is never a success.");
  return page.text();
}

}  // namespace attest
