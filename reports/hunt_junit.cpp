#include "reports/hunt_junit.hpp"

#include <fmt/format.h>

#include <cmath>

#include "reports/junit_parts.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

std::string details_of(const Finding& f) {
  std::string text = fmt::format("{}\n{}\n", f.cause, f.reason);
  if (!f.after.empty()) text += f.after + '\n';
  text += fmt::format("{}{}; shrunk in {}{}; {}\n", f.shard.empty() ? "" : "shard " + f.shard + ", ",
                      f.at_case == 0 ? "of the corpus" : fmt::format("case {}", f.at_case),
                      plural(f.shrinking, "question", "questions"),
                      f.shrinking_finished ? "" : " (stopped before the end)", others_words(f));
  if (!f.file.empty()) text += to_text({f.shrunk, {}, {}, {}});  // else the line has it
  return text + "replay: " + f.replay + '\n';
}

std::string counts_of(const HuntReport& r) {
  return fmt::format("{} and {} of the corpus asked, {} decided, {} not answered before the end",
                     plural(r.cases, "case", "cases"), r.replayed, r.decided, r.unanswered);
}

JunitCase case_of(const HuntReport& r) {
  JunitCase one{r.op, r.kernel, std::llround(1e9 * r.seconds), r.verdict(), "", counts_of(r) + '\n'};
  if (!r.findings.empty()) {
    const std::size_t others = r.findings.size() - 1;
    one.reason = r.findings[0].cause + (others > 0 ? fmt::format(", and {} more", others) : "");
    for (const Finding& finding : r.findings) one.details += '\n' + details_of(finding);
  } else if (r.decided == 0) {
    one.reason = counts_of(r);
    for (const auto& [why, count] : r.undecided) one.details += fmt::format("{}: {}\n", why, count);
  }
  return one;
}

}  // namespace

std::string render_hunt_junit(const Hunts& hunts) {
  JunitPage page;
  for (const HuntReport& report : hunts.reports)
    page.add(report.op.empty() ? "attest fuzz" : report.op, case_of(report));
  if (hunts.interrupted) page.add_problem("The hunt was interrupted.");
  if (hunts.reports.empty()) page.add_problem("No kernel was asked, which is never a success.");
  return page.text();
}

}  // namespace attest
