#include "reports/kill_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/escape.hpp"
#include "reports/html_parts.hpp"

namespace attest {
namespace {

struct Tally {
  std::size_t killed = 0, all = 0;
};

struct Totals {
  Tally mutants;
  std::size_t equivalent = 0;
  std::vector<std::size_t> kills, alone;                 // by check
  std::vector<std::size_t> accept_ordinary, accept_all;  // by rule
  std::map<int, Tally> families;
  std::map<std::string, Tally> operators;
};

bool fails(const std::optional<Verdict>& verdict) { return verdict == Verdict::fail; }

// Equivalent mutants are counted apart: nothing can or should reject them.
Totals totals_of(const KillTable& table) {
  Totals totals;
  totals.kills.resize(table.checks.size()), totals.alone.resize(table.checks.size());
  totals.accept_ordinary.resize(table.rules.size()), totals.accept_all.resize(table.rules.size());
  for (const auto& row : table.rows) {
    if (!row.equivalent.empty()) {
      ++totals.equivalent;
      continue;
    }
    for (Tally* tally : {&totals.mutants, &totals.families[row.family], &totals.operators[row.op]})
      tally->killed += row.killed(), ++tally->all;
    const auto by = std::count_if(row.checks.begin(), row.checks.end(), fails);
    for (std::size_t c = 0; c < std::min(row.checks.size(), table.checks.size()); ++c)
      if (fails(row.checks[c])) ++totals.kills[c], totals.alone[c] += by == 1;
    for (std::size_t r = 0; r < std::min(row.rules.size(), table.rules.size()); ++r) {
      totals.accept_ordinary[r] += row.rules[r] != RuleSays::rejects;
      totals.accept_all[r] += row.rules[r] == RuleSays::accepts_all;
    }
  }
  return totals;
}

std::string check_cell(const std::optional<Verdict>& verdict) {
  if (!verdict || *verdict == Verdict::not_run) return "<td class=\"m\"></td>";
  if (*verdict == Verdict::pass) return "<td class=\"m soft\">·</td>";
  return fmt::format("<td class=\"m\"><span class=\"dot {}\">{}</span></td>",
                     *verdict == Verdict::fail ? "v-pass" : fmt::format("v-{}", to_string(*verdict)),
                     *verdict == Verdict::fail ? "✕" : mark(*verdict));
}

std::string rule_cell(RuleSays says) {
  if (says == RuleSays::rejects) return "<td class=\"m soft\">·</td>";
  return fmt::format("<td class=\"m\"><span class=\"dot v-fail\">{}</span></td>",
                     says == RuleSays::accepts_all ? "A" : "a");
}

std::string heads_of(const std::vector<std::string>& names, const char* first_class) {
  std::string html;
  for (std::size_t i = 0; i < names.size(); ++i)
    html +=
        fmt::format("<th class=\"turned{}\"><span>{}</span></th>", i ? "" : first_class, html_text(names[i]));
  return html;
}

std::string row_of(const KillTable& table, const KillRow& row) {
  std::string html = fmt::format(
      "<tr><td class=\"mutant\">{}<div class=\"sub\">{}. {}</div>{}</td>", name_code(row.mutant), row.family,
      html_text(row.wrong),
      !row.equivalent.empty()
          ? fmt::format("<div class=\"sub\"><b>equivalent</b>: {}</div>", html_text(row.equivalent))
      : row.killed() ? ""
                     : "<span class=\"badge v-fail\">survives</span>");
  for (std::size_t c = 0; c < table.checks.size(); ++c)
    html += check_cell(c < row.checks.size() ? row.checks[c] : std::nullopt);
  for (std::size_t r = 0; r < table.rules.size(); ++r)
    html += r < row.rules.size() ? rule_cell(row.rules[r]) : "<td></td>";
  return html + "</tr>\n";
}

std::string matrix(const KillTable& table, bool only_open) {
  std::string rows;
  for (const auto& row : table.rows)
    if (!only_open || !row.killed()) rows += row_of(table, row);
  return fmt::format(
      "<div class=\"scroll matrix\"><table>\n<thead><tr><th>Mutant, its family and what is wrong with "
      "it</th>{}{}</tr></thead>\n"
      "<tbody>\n{}</tbody></table></div>\n",
      heads_of(table.checks, ""), heads_of(table.rules, " rule"), rows);
}

std::string n_cell(std::size_t n) { return fmt::format("<td class=\"n\">{}</td>", n); }

std::string checks_table(const KillTable& table, const Totals& totals) {
  std::string rows;
  for (std::size_t c = 0; c < table.checks.size(); ++c)
    rows += fmt::format("<tr><td>{}</td>{}{}</tr>\n", html_text(table.checks[c]), n_cell(totals.kills[c]),
                        n_cell(totals.alone[c]));
  return "<div class=\"scroll\"><table>\n<thead><tr><th>Check</th><th class=\"n\">kills</th><th "
         "class=\"n\">it "
         "alone</th></tr></thead>\n<tbody>\n" +
         rows + "</tbody></table></div>\n";
}

std::string rules_table(const KillTable& table, const Totals& totals) {
  std::string rows;
  for (std::size_t r = 0; r < table.rules.size(); ++r)
    rows += fmt::format("<tr><td>{}</td>{}{}</tr>\n", html_text(table.rules[r]),
                        n_cell(totals.accept_ordinary[r]), n_cell(totals.accept_all[r]));
  return fmt::format(
      "<div class=\"scroll\"><table>\n<thead><tr><th>Usual rule: accepts, of {}</th><th class=\"n\">ordinary "
      "input</th><th "
      "class=\"n\">every input</th></tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
      totals.mutants.all, rows);
}

template <class Key>
std::string tally_table(const char* head, const std::map<Key, Tally>& tallies) {
  std::string rows;
  for (const auto& [key, tally] : tallies)
    rows += fmt::format("<tr><td>{}</td>{}{}</tr>\n", html_text(fmt::format("{}", key)), n_cell(tally.killed),
                        n_cell(tally.all));
  return fmt::format(
      "<div class=\"scroll\"><table>\n<thead><tr><th>{}</th><th class=\"n\">killed</th><th "
      "class=\"n\">of</th></tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
      head, rows);
}

std::string verdict_of(const Totals& totals) {
  const Tally& all = totals.mutants;
  if (all.all == 0) return "No mutant was run.";
  if (all.killed == all.all) return fmt::format("All {} wrong kernels are rejected.", all.all);
  return fmt::format("{} of {} wrong kernels survive{}.", all.all - all.killed, all.all,
                     all.all - all.killed == 1 ? "s" : "");
}

}  // namespace

bool KillRow::killed() const { return std::any_of(checks.begin(), checks.end(), fails); }

std::string kill_section(const KillTable& table) {
  const Totals totals = totals_of(table);
  std::string html = fmt::format(
      "<section id=\"kill-matrix\">\n<h2>The kill matrix</h2>\n<p>{} mutants, kernels with one deliberate "
      "mistake: {} "
      "rejected by the {} battery, seed {}; {} more {} equivalent to the right kernel and count neither "
      "way. ✕: this check "
      "rejects the mutant; ·: it lets it pass; !: suspect; ?: undecided; empty: not asked. Of the usual "
      "rules, A: accepts "
      "the mutant on every input of the battery; a: on an ordinary input (gaussian, published gates), not on "
      "every one.</p>\n",
      totals.mutants.all, totals.mutants.killed, html_text(table.effort), table.seed, totals.equivalent,
      totals.equivalent == 1 ? "is" : "are");
  html += fmt::format("<div class=\"figures tables\">\n{}<div>\n{}{}</div>\n</div>\n",
                      checks_table(table, totals), rules_table(table, totals),
                      tally_table("Operator", totals.operators));
  html += fmt::format("<details><summary>By family of real faults</summary>\n{}</details>\n",
                      tally_table("Family", totals.families));
  if (totals.mutants.killed < totals.mutants.all || totals.equivalent > 0)
    html += "<h3>Mutants that no check rejects</h3>\n" + matrix(table, true);
  return html +
         fmt::format("<details open=\"open\"><summary>All {} mutants</summary>\n{}</details>\n</section>\n",
                     table.rows.size(), matrix(table, false));
}

std::string render_kill_page(const KillTable& table, const std::string& title) {
  const std::string verdict = verdict_of(totals_of(table));
  std::string body =
      fmt::format("<header>\n<h1>{}</h1>\n<p class=\"headline\">{}</p>\n", html_text(title), verdict);
  body += fmt::format(
      "<dl class=\"card facts\">\n<dt>Command</dt><dd>{}</dd>\n<dt>Seed</dt><dd>{}</dd>\n</dl>\n</header>\n",
      code(table.command), table.seed);
  return html_page(title + ": " + verdict, body + kill_section(table));
}

}  // namespace attest
