#include "reports/junit_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/escape.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

std::string seconds(std::int64_t ns) { return fmt::format("{:.6f}", static_cast<double>(ns) / 1e9); }

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

}  // namespace

void JunitPage::Totals::add(const Totals& other) {
  tests += other.tests, failures += other.failures, errors += other.errors, skipped += other.skipped,
      ns += other.ns;
}

std::string JunitPage::Totals::attributes() const {
  return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"", tests, failures,
                     errors, skipped, seconds(ns));
}

std::string JunitPage::outcome_of(const JunitCase& one, Totals& totals) {
  const std::string message = verdict_words(one.verdict) + (one.reason.empty() ? "" : ": " + one.reason);
  const std::string type(to_string(one.verdict));
  switch (one.verdict) {
    case Verdict::pass:
      return "";
    case Verdict::fail:
    case Verdict::suspect:
      ++totals.failures;
      return outcome("failure", type, message, one.details);
    case Verdict::undecided:
      ++totals.errors;
      return outcome("error", type, message, one.details);
    case Verdict::not_run:
      break;
  }
  ++totals.skipped;
  return fmt::format("<skipped message=\"{}\"/>", html_text(message));
}

void JunitPage::add(const std::string& title, const JunitCase& one) {
  auto suite = std::ranges::find(suites_, title, &Suite::title);
  if (suite == suites_.end()) suite = suites_.insert(suites_.end(), Suite{title, "", {}});
  Totals totals;
  totals.tests = 1, totals.ns = one.nanoseconds;
  const std::string inside = outcome_of(one, totals);
  const std::string head = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
                                       html_text(one.group), html_text(one.name), seconds(totals.ns));
  suite->cases += inside.empty() ? head + "/>\n" : head + ">" + inside + "</testcase>\n";
  suite->totals.add(totals);
}

void JunitPage::add_problem(const std::string& problem) {
  Suite suite{"attest",
              "    <testcase classname=\"attest\" name=\"the run\" time=\"0.000000\">" +
                  outcome("error", "incomplete", problem, problem) + "</testcase>\n",
              {}};
  suite.totals.tests = suite.totals.errors = 1;
  suites_.push_back(suite);
}

std::string JunitPage::text() const {
  Totals all;
  std::string body;
  for (const Suite& suite : suites_) {
    all.add(suite.totals);
    body += fmt::format("  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n", html_text(suite.title),
                        suite.totals.attributes(), suite.cases);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"attest\" {}>\n{}</testsuites>\n",
      all.attributes(), body);
}

}  // namespace attest
