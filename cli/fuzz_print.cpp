#include "cli/fuzz_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/options.hpp"

namespace attest {
namespace {

// The input in few lines, as its file would have it.
std::string indented(const FuzzInput& input) {
  constexpr std::size_t most_values = 24;
  std::string text, rest = to_text(CorpusCase{input, {}, {}, {}});
  std::size_t values = 0;
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    rest.erase(0, line.size() + 1);
    if (line.find('[') != std::string::npos && ++values > most_values) continue;
    text += "      " + line + '\n';
  }
  if (values > most_values) text += fmt::format("      (and {} more values)\n", values - most_values);
  return text;
}

std::string size_words(const FuzzInput& input) {
  const Case& c = input.shape;
  return fmt::format("T={} d={} dv={} H={} B={}{}", *c.tokens, c.key_dim, c.value_dim, c.heads, c.batch,
                     input.zeros ? fmt::format(", {} values other than 0", input.edits.size()) : "");
}

void print_finding(const Finding& finding) {
  std::cout << fmt::format("  {}\n    {}\n    first:  {}, check {}, {}\n    shrunk: {}, in {} questions{}\n",
                           finding.cause, finding.reason, size_words(finding.first),
                           question_name(finding.first.question),
                           finding.at_case == 0 ? "of the corpus" : fmt::format("case {}", finding.at_case),
                           size_words(finding.shrunk), finding.shrinking,
                           finding.shrinking_finished ? "" : " (stopped before the end)");
  if (!finding.after.empty()) std::cout << "    note:   " << finding.after << '\n';
  if (finding.duplicates > 0) std::cout << "    " << others_words(finding) << '\n';
  if (finding.file.empty())
    std::cout << indented(finding.shrunk);
  else
    std::cout << "    replay: " << finding.replay << '\n';
}

// Where little was decided, the commonest reason.
void print_undecided(const HuntReport& r) {
  const Index asked = r.cases + r.replayed;
  if (r.undecided.empty() || 2 * r.decided >= asked) return;
  const auto most = std::ranges::max_element(r.undecided, {}, [](const auto& one) { return one.second; });
  std::cout << fmt::format("  not decided: {} of {}, most of all ({}): {}\n", asked - r.decided, asked,
                           most->second, r.undecided_first.at(most->first));
}

}  // namespace

std::string replay_words(const Subject& subject, const Finding& finding) {
  const std::string& source = subject.kernel.source;
  const std::string begin = fmt::format("{} replay {}--kernel {} ", invoked_program(),
                                        source.empty() ? "" : source + ' ', subject.kernel.name);
  if (!finding.file.empty()) return begin + quoted_word(finding.file);
  return begin + "- <<'END'\n" + to_text(CorpusCase{finding.shrunk, {}, {}, {}}) + "END";
}

void print_report(const HuntReport& r, Objective objective) {
  const Index failed = static_cast<Index>(r.findings.size());
  std::cout << fmt::format(
      "{:<9}  {:<43} {:>7} cases {:>6.0f}/s {:>5.0f} % decided {:>4} cells  error/bound {:.3g}{}{}\n",
      failed > 0      ? "FAIL"
      : r.decided > 0 ? "no fault"
                      : "UNDECIDED",
      r.kernel, r.cases, r.seconds > 0 ? static_cast<double>(r.cases) / r.seconds : 0,
      100.0 * static_cast<double>(r.decided) / static_cast<double>(std::max<Index>(1, r.cases + r.replayed)),
      r.cells, r.best, failed > 0 ? " of what passed" : "", r.stopped ? "  (interrupted)" : "");
  print_undecided(r);
  if (r.unanswered > 0)
    std::cout << fmt::format(
        "  not answered before the end: {} (a call may take --time-limit seconds){}\n", r.unanswered,
        r.not_replayed > 0 ? fmt::format(", and {} of the corpus were not asked", r.not_replayed) : "");
  for (const Finding& finding : r.findings) print_finding(finding);
  if (objective == Objective::error && r.best_input)
    std::cout << fmt::format("  largest error/bound {:.4g}, {}:\n{}", r.best,
                             r.best_at == 0 ? "of the corpus" : fmt::format("case {}", r.best_at),
                             indented(*r.best_input));
}

Live::~Live() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void Live::show(const HuntProgress& p) const {
  if (!shown_) return;
  std::string failed;
  for (const auto& [question, count] : p.failed)
    failed += fmt::format("{} {} {}", failed.empty() ? ", failed:" : ",", question_name(question), count);
  std::cerr << fmt::format("\r\033[K{}: {} cases, {:.0f}/s, {} cells, error/bound {:.3g}, {} found{}",
                           kernel_, p.cases, static_cast<double>(p.cases) / std::max(p.seconds, 1e-9),
                           p.cells, p.best, p.findings, failed)
            << std::flush;
}

}  // namespace attest
