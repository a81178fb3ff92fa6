#include "reports/csv.hpp"

#include <fmt/format.h>

#include <vector>

#include "reports/escape.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

using Row = std::vector<std::string>;

const Row header{"kernel",      "operator",  "variant",   "form",        "contract",   "verdict",
                 "reason",      "case",      "tokens",    "compared",    "violations", "tensor",
                 "ratio_p50",   "ratio_p99", "ratio_max", "ulp_p50",     "ulp_p99",    "ulp_max",
                 "relative_l2", "power",     "oracle",    "oracle_bits", "kernel_ns",  "oracle_ns",
                 "total_ns",    "replay"};

std::string field(const std::string& text) {
  const std::string clean = clean_text(text);
  if (clean.find_first_of(",\"") == std::string::npos) return clean;
  std::string quoted = "\"";
  for (const char c : clean) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string line(const Row& row) {
  std::string text;
  for (const std::string& cell : row) text += (&cell == &row.front() ? "" : ",") + field(cell);
  return text + "\r\n";
}

std::string number(double value) { return fmt::format("{}", value); }

Row row_of(const CaseRecord& r) {
  Row row{r.kernel.name, r.kernel.op,       r.kernel.variant,
          r.kernel.form, r.kernel.contract, std::string(to_string(r.verdict)),
          r.reason,      r.case_line,       r.tokens ? std::to_string(*r.tokens) : ""};
  std::int64_t compared = 0, violations = 0;
  for (const Check& check : r.checks) compared += check.compared, violations += check.violations;
  row.insert(row.end(), {std::to_string(compared), std::to_string(violations)});
  if (const auto* tensor = measured_tensor(r)) {
    const TensorError& e = tensor->second;
    row.push_back(tensor->first);
    for (const double x : {e.ratio.p50, e.ratio.p99, e.ratio.max}) row.push_back(e.bounded ? number(x) : "");
    for (const double x : {e.ulp.p50, e.ulp.p99, e.ulp.max}) row.push_back(number(x));
    row.push_back(e.norm ? number(*e.norm) : "");
    row.push_back(e.bounded ? number(e.power) : "");
  } else {
    row.resize(row.size() + 9);
  }
  row.push_back(r.oracle ? r.oracle->method : "");
  row.push_back(r.oracle ? std::to_string(r.oracle->bits) : "");
  for (const std::int64_t Times::*time : {&Times::kernel_ns, &Times::oracle_ns, &Times::total_ns})
    row.push_back(r.time ? std::to_string((*r.time).*time) : "");
  row.push_back(replay_of(r));
  return row;
}

}  // namespace

std::string render_csv(const Records& records) {
  std::string text = line(header);
  for (const CaseRecord& record : records.cases) text += line(row_of(record));
  return text;
}

}  // namespace attest
