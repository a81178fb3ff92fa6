#include "reports/fuzz_page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/escape.hpp"
#include "reports/html_parts.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

constexpr std::size_t most_text = 4000;  // of a case

// The input in its own text, as a file of the corpus would have it.
std::string case_text(const FuzzInput& input) {
  std::string text = to_text(CorpusCase{input, {}, {}, {}});
  const bool cut = text.size() > most_text;
  if (cut) text.resize(most_text);
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines += html_text(text.substr(at, end - at)) + '\n';
    at = end + 1;
  }
  return fmt::format("<pre class=\"card\">{}{}</pre>\n", lines, cut ? "(and more)" : "");
}

std::string scrolled(const std::string& head, const std::string& rows) {
  return "<div class=\"scroll\"><table><thead><tr>" + head + "</tr></thead><tbody>\n" + rows +
         "</tbody></table></div>\n";
}

std::string header(std::initializer_list<const char*> names) {
  std::string html;
  for (const char* name : names) html += fmt::format("<th scope=\"col\">{}</th>", name);
  return html;
}

std::string checks_table(const HuntReport& r) {
  std::string rows;
  for (const auto& [question, tally] : r.questions)
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td></tr>\n",
                        question_name(question), tally.asked, tally.decided, tally.failed,
                        1e-9 * static_cast<double>(tally.nanoseconds));
  return scrolled(header({"check", "asked", "decided", "failed", "CPU s"}), rows);
}

// "value T=nC+1 one_sequence ...": check and tokens.
struct Place {
  std::string check, tokens;
};
Place place_of(const std::string& cell) {
  const std::size_t first = cell.find(' '), second = cell.find(' ', first + 1);
  return {cell.substr(0, first), cell.substr(first + 1, second - first - 1)};
}

struct Reached {
  Index cells = 0;
  double most = 0;
};

std::string grid_table(const HuntReport& r) {
  std::map<std::string, std::map<std::string, Reached>> by_tokens;
  std::map<std::string, Index> checks;
  for (const auto& [cell, ratio] : r.grid) {
    const Place place = place_of(cell);
    Reached& reached = by_tokens[place.tokens][place.check];
    ++reached.cells, ++checks[place.check];
    reached.most = std::max(reached.most, ratio);
  }
  std::string head = header({"tokens"}), rows;
  for (const auto& [check, count] : checks)
    head += fmt::format("<th scope=\"col\">{} ({})</th>", html_text(check), count);
  for (const auto& [tokens, row] : by_tokens) {
    rows += "<tr><td>" + html_text(tokens) + "</td>";
    for (const auto& [check, count] : checks) {
      const auto found = row.find(check);
      if (found == row.end())
        rows += "<td class=\"soft\">none</td>";
      else if (found->second.most > 0)
        rows += fmt::format("<td>{} · {:.3g}</td>", found->second.cells, found->second.most);
      else
        rows += fmt::format("<td>{}</td>", found->second.cells);
    }
    rows += "</tr>\n";
  }
  return scrolled(head, rows);
}

std::string finding_card(const Finding& f) {
  std::string html = fmt::format("<h3>{} {}</h3>\n<p>{}</p>\n", badge(Verdict::fail), html_text(f.cause),
                                 html_text(f.reason));
  if (!f.after.empty()) html += fmt::format("<p>{}</p>\n", html_text(f.after));
  html += fmt::format("<p class=\"soft\">{}{}, shrunk in {}; {}{}</p>\n",
                      f.shard.empty() ? "" : "Shard " + f.shard + ": ",
                      f.at_case == 0 ? "Of the corpus" : fmt::format("Case {}", f.at_case),
                      plural(f.shrinking, "question", "questions"), others_words(f),
                      f.file.empty() ? "" : "; " + html_text(f.file));
  if (!f.file.empty() && !f.replay.empty()) html += replay_line(f.replay);
  return html + case_text(f.shrunk);
}

std::string section(const HuntReport& r) {
  std::string html = fmt::format(
      "<section><h2>{} {}</h2>\n<p>{} in {:.1f} s, {} of the corpus before; {} decided; {} of the "
      "grid{}{}.</p>\n",
      badge(r.verdict()), name_code(r.kernel), plural(r.cases, "case", "cases"), r.seconds, r.replayed,
      r.decided, plural(r.cells, "cell", "cells"),
      r.unanswered > 0 ? fmt::format("; {} not answered before the end, {} of the corpus not asked",
                                     r.unanswered, r.not_replayed)
                       : "",
      r.stopped ? "; interrupted" : "");
  for (const Finding& finding : r.findings) html += finding_card(finding);
  html += checks_table(r);
  html += "<h3>Cells reached, and the largest error/bound in them</h3>\n" + grid_table(r);
  if (r.best_input)
    html += fmt::format(
        "<details><summary>Largest error/bound of what passes: {:.4g}, {}</summary>\n{}</details>\n", r.best,
        r.best_at == 0 ? "of the corpus" : fmt::format("case {}", r.best_at), case_text(*r.best_input));
  return html + "</section>\n";
}

}  // namespace

std::string render_fuzz_page(const Hunts& hunts) {
  Index causes = 0, cases = 0;
  for (const HuntReport& r : hunts.reports) causes += std::ssize(r.findings), cases += r.cases;
  std::string content = fmt::format(
      "<h1>attest fuzz</h1>\n<p class=\"headline\">{} of failure in {} of {}{}</p>\n<p>No fault "
      "found is no proof.</p>\n<p>{}</p>\n",
      plural(causes, "cause", "causes"), plural(cases, "case", "cases"),
      plural(std::ssize(hunts.reports), "kernel", "kernels"), hunts.interrupted ? ", interrupted" : "",
      code(hunts.command));
  for (const HuntReport& r : hunts.reports) content += section(r);
  return html_page("attest fuzz", content);
}

}  // namespace attest
