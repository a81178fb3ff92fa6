#include "reports/junit.hpp"

#include <fmt/format.h>

#include "reports/escape.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct Totals {
  std::int64_t tests = 0, failures = 0, errors = 0, skipped = 0, ns = 0;

  void add(const Totals& other) {
    tests += other.tests, failures += other.failures, errors += other.errors, skipped += other.skipped,
        ns += other.ns;
  }
  std::string attributes() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"", tests,
                       failures, errors, skipped, seconds(ns));
  }
  static std::string seconds(std::int64_t ns) { return fmt::format("{:.6f}", static_cast<double>(ns) / 1e9); }
};

struct Suite {
  std::string name, cases;
  Totals totals;
};

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

// Line by line: clean_text would turn the breaks into spaces.
std::string xml_lines(const std::string& text) {
  std::string xml;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    xml += (at == 0 ? "" : "\n") + html_text(text.substr(at, end - at));
    at = end + 1;
  }
  return xml;
}

std::string outcome(const char* element, const std::string& type, const std::string& message,
                    const std::string& text) {
  return fmt::format("<{} type=\"{}\" message=\"{}\">{}</{}>", element, type, html_text(message),
                     xml_lines(text), element);
}

std::string outcome_of(const CaseRecord& record, Totals& totals) {
  const std::string message =
      verdict_words(record.verdict) + (record.reason.empty() ? "" : ": " + record.reason);
  const std::string type(to_string(record.verdict));
  switch (record.verdict) {
    case Verdict::pass:
      return "";
    case Verdict::fail:
    case Verdict::suspect:
      ++totals.failures;
      return outcome("failure", type, message, details(record));
    case Verdict::undecided:
      ++totals.errors;
      return outcome("error", type, message, details(record));
    case Verdict::not_run:
      break;
  }
  ++totals.skipped;
  return fmt::format("<skipped message=\"{}\"/>", html_text(message));
}

void add_case(Suite& suite, const CaseRecord& record) {
  Totals totals;
  totals.tests = 1, totals.ns = record.time ? record.time->total_ns : 0;
  const std::string inside = outcome_of(record, totals);
  const std::string head =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"", html_text(record.kernel.name),
                  html_text(record.case_line), Totals::seconds(totals.ns));
  suite.cases += inside.empty() ? head + "/>\n" : head + ">" + inside + "</testcase>\n";
  suite.totals.add(totals);
}

Suite of_the_run(const std::string& problem) {
  Suite suite{"attest",
              "    <testcase classname=\"attest\" name=\"the run\" time=\"0.000000\">" +
                  outcome("error", "incomplete", problem, problem) + "</testcase>\n",
              {}};
  suite.totals.tests = suite.totals.errors = 1;
  return suite;
}

}  // namespace

std::string render_junit(const Records& records) {
  std::vector<Suite> suites;
  for (const CaseRecord& record : records.cases) {
    const std::string title = operator_title(record.kernel);
    auto suite = std::find_if(suites.begin(), suites.end(), [&](const Suite& s) { return s.name == title; });
    if (suite == suites.end()) suite = suites.insert(suites.end(), Suite{title, "", {}});
    add_case(*suite, record);
  }
  if (!records.complete) suites.push_back(of_the_run("The run did not finish."));
  if (records.cases.empty()) suites.push_back(of_the_run("No case was run, which is never a success."));

  Totals all;
  std::string body;
  for (const Suite& suite : suites) {
    all.add(suite.totals);
    body += fmt::format("  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n", html_text(suite.name),
                        suite.totals.attributes(), suite.cases);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"attest\" {}>\n{}</testsuites>\n",
      all.attributes(), body);
}

}  // namespace attest
