#include "cli/fuzz_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/options.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

constexpr Index most_values = 64, values_of_more = 24;  // of an input that are shown

bool is_shown_whole(const FuzzInput& input) { return std::ssize(input.edits) <= most_values; }

// The input as its file would have it, or as it would begin.
std::string indented(const FuzzInput& input, bool is_kept = true) {
  std::string text, rest = to_text(CorpusCase{input, {}, {}, {}});
  Index values = 0;
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    rest.erase(0, line.size() + 1);
    if (line.find('[') != std::string::npos) ++values;
    if (values > values_of_more && !is_shown_whole(input)) continue;
    text += "      " + line + '\n';
  }
  if (is_shown_whole(input)) return text;
  return text + fmt::format("      (and {}{})\n",
                            plural(std::ssize(input.edits) - values_of_more, "more value", "more values"),
                            is_kept ? ", --corpus DIR keeps the whole as a file for attest replay" : "");
}

std::string size_words(const FuzzInput& input) {
  const Case& c = input.shape;
  return fmt::format(
      "T={} d={} dv={} H={} B={}{}", *c.tokens, c.key_dim, c.value_dim, c.heads, c.batch,
      input.zeros ? fmt::format(", {} other than 0", plural(std::ssize(input.edits), "value", "values"))
                  : "");
}

std::string replay_command(const std::string& source, const std::string& kernel) {
  return fmt::format("{} replay {}--kernel {} ", invoked_program(), source.empty() ? "" : source + ' ',
                     kernel);
}

void print_unsaved(const Finding& finding, const HuntReport& r) {
  std::cout << indented(finding.shrunk, repeats(finding));
  if (is_shown_whole(finding.shrunk))
    std::cout << fmt::format("    replay: {}FILE, with these lines in FILE\n",
                             replay_command(r.source, r.kernel));
}

void print_finding(const Finding& finding, const HuntReport& r) {
  std::cout << fmt::format("  {}\n    {}\n    first:  {}, check {}, {}\n    shrunk: {}, in {}{}\n",
                           finding.cause, finding.reason, size_words(finding.first),
                           question_name(finding.first.question),
                           finding.at_case == 0 ? "of the corpus" : fmt::format("case {}", finding.at_case),
                           size_words(finding.shrunk), plural(finding.shrinking, "question", "questions"),
                           finding.shrinking_finished ? "" : " (stopped before the end)");
  if (!finding.after.empty()) std::cout << "    note:   " << finding.after << '\n';
  if (finding.duplicates > 0) std::cout << "    " << others_words(finding) << '\n';
  if (finding.file.empty())
    print_unsaved(finding, r);
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
  const std::string begin = replay_command(subject.kernel.source, subject.kernel.name);
  if (!finding.file.empty()) return begin + quoted_word(finding.file);
  return begin + "- <<'END'\n" + to_text(CorpusCase{finding.shrunk, {}, {}, {}}) + "END";
}

std::string hunt_words(Verdict verdict) {
  return verdict == Verdict::pass ? "no fault" : verdict_words(verdict);
}

void print_report(const HuntReport& r, Objective objective, Index known) {
  const Verdict verdict = r.verdict();
  std::cout << fmt::format(
      "{:<9}  {:<43} {:>7} {} {:>6.0f}/s {:>5.0f} % decided {:>4} {}  error/bound {:.3g}{}{}\n",
      hunt_words(verdict), r.kernel, r.cases, r.cases == 1 ? "case " : "cases",
      r.seconds > 0 ? static_cast<double>(r.cases - known) / r.seconds : 0,
      100.0 * static_cast<double>(r.decided) / static_cast<double>(std::max<Index>(1, r.cases + r.replayed)),
      r.cells, r.cells == 1 ? "cell " : "cells", r.best, verdict == Verdict::fail ? " of what passed" : "",
      r.stopped ? "  (interrupted)" : "");
  print_undecided(r);
  if (r.unanswered > 0)
    std::cout << fmt::format(
        "  not answered before the end: {} (a call may take --time-limit seconds){}\n", r.unanswered,
        r.not_replayed > 0 ? fmt::format(", and {} of the corpus were not asked", r.not_replayed) : "");
  for (const Finding& finding : r.findings) print_finding(finding, r);
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
  std::cerr << fmt::format(
                   "\r\033[K{}: {}, {:.0f}/s, {}, error/bound {:.3g}, {} found{}", kernel_,
                   plural(p.cases, "case", "cases"),
                   static_cast<double>(std::max<Index>(0, p.cases - known_)) / std::max(p.seconds, 1e-9),
                   plural(p.cells, "cell", "cells"), p.best, p.findings, failed)
            << std::flush;
}

}  // namespace attest
