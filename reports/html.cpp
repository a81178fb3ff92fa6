#include "reports/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "reference/tensor/atomic_file.hpp"
#include "reports/escape.hpp"
#include "reports/figures.hpp"
#include "reports/first_screen.hpp"
#include "reports/gnuplot.hpp"
#include "reports/heat_map.hpp"
#include "reports/html_parts.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"
#include "reports/theme.hpp"

namespace attest {
namespace {

constexpr std::size_t most_problems = 30;
constexpr std::size_t most_case_rows = 3000;          // in the tables of all cases, shared by the kernels
constexpr std::size_t least_case_rows = 10;           // of a kernel
constexpr std::size_t most_elements = 24;             // worst elements in the page
constexpr std::size_t most_elements_of_a_kernel = 3;  // so that one broken kernel does not hide the others
constexpr Verdict all_verdicts[] = {Verdict::fail, Verdict::suspect, Verdict::undecided, Verdict::pass,
                                    Verdict::not_run};

// Head.

std::string fact(const char* name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, value);
}

std::string run_facts(const Run& run, const End& end) {
  std::string libraries;
  for (const auto& [name, version] : run.libraries)
    libraries += (libraries.empty() ? "" : ", ") + html_text(name + " " + version);
  std::string facts =
      fact("Command", code(run.command)) + fact("Seed", run.seed ? code(std::to_string(*run.seed)) : "");
  facts += fact("Commit", run.commit.empty() ? "not known" : code(run.commit));
  facts += fact("Compiler",
                html_text(run.compiler) + (run.flags.empty() ? "" : fmt::format(" {}", code(run.flags))));
  facts += fact(
      "GPU", run.gpu.empty()
                 ? "none"
                 : html_text(run.gpu + (run.driver.empty() ? "" : fmt::format(", driver {}", run.driver))));
  facts += fact("Libraries", libraries) + fact("Started", html_text(run.started)) +
           fact("Finished", html_text(end.finished));
  return fmt::format(
      "<section class=\"card\" aria-label=\"The run\"><dl class=\"facts\">\n{}</dl></section>\n", facts);
}

std::string tiles(const End& end) {
  std::string html = "<div class=\"tiles\">\n";
  for (const auto verdict : all_verdicts) {
    const auto n = end.of(verdict);
    html += fmt::format("<div class=\"tile {}\"><b>{}</b>{} {}</div>\n",
                        n ? fmt::format("v-{}", to_string(verdict)) : "zero", n, mark(verdict),
                        verdict_words(verdict));
  }
  return html + "</div>\n";
}

std::string section_id(std::size_t group) { return fmt::format("operator-{}", group + 1); }

// Neighbours of one operator and variant.
std::vector<std::span<const KernelSummary>> groups_of(const std::vector<KernelSummary>& kernels) {
  std::vector<std::span<const KernelSummary>> groups;
  for (std::size_t first = 0, last; first < kernels.size(); first = last) {
    last = first + 1;
    while (last < kernels.size() &&
           operator_title(*kernels[last].kernel) == operator_title(*kernels[first].kernel))
      ++last;
    groups.emplace_back(&kernels[first], last - first);
  }
  return groups;
}

// What the tiles count.
std::string counts_note(const Records& records) {
  const auto& cases = records.cases;
  if (cases.empty()) return "";
  const auto battery = std::count_if(cases.begin(), cases.end(), of_the_battery);
  if (battery == 0)
    return fmt::format("Counts are cases: one kernel on one input. {} in all.", records.end.cases);
  std::size_t checks = 0;
  for (const auto& record : cases) checks += of_the_battery(record) ? record.checks.size() : 0;
  if (battery == static_cast<std::ptrdiff_t>(cases.size()))
    return fmt::format(
        "Counts are kernels, each by its worst check: {} in all, {} checks of the battery on inputs of their "
        "own.",
        cases.size(), checks);
  return fmt::format(
      "Counts are cases, one kernel on one input, and {} kernels in the battery, {} checks on inputs of "
      "their own. "
      "{} in all.",
      battery, checks, cases.size());
}

std::string head(const Records& records, const std::vector<KernelSummary>& kernels,
                 const std::vector<std::span<const KernelSummary>>& groups, const std::string& title) {
  std::string html = fmt::format("<header>\n<h1>{}</h1>\n<p class=\"headline\">{}</p>\n", html_text(title),
                                 headline(records, kernels));
  if (!records.complete)
    html +=
        "<p class=\"card warning\"><b>Incomplete.</b> The records end without their last line: the run did "
        "not finish, and cases "
        "after the last one shown are missing.</p>\n";
  html += tiles(records.end);
  if (const auto note = counts_note(records); !note.empty())
    html += fmt::format("<p class=\"soft counts\">{}</p>\n", note);
  html += first_screen(records, kernels);
  html += fmt::format(
      "<details class=\"made\"><summary>How this was made: command, commit, compiler, libraries</summary>\n{}"
      "</details>\n",
      run_facts(records.run, records.end));
  html += "<nav aria-label=\"Sections\">";
  if (!groups.empty()) html += "<a href=\"#operators\">Operators</a>";
  for (std::size_t g = 0; g < groups.size(); ++g)
    html += fmt::format("<a href=\"#{}\">{}</a>", section_id(g),
                        html_text(operator_title(*groups[g].front().kernel)));
  const bool elements =
      std::any_of(records.cases.begin(), records.cases.end(), [](auto& r) { return !r.worst.empty(); });
  return html + (elements ? "<a href=\"#elements\">Worst elements</a>" : "") +
         "<a href=\"#about\">About the verdicts</a></nav>\n</header>\n";
}

// What went wrong.

// "12 inputs, 2 undecided", of a check of the battery.
std::string inputs_of(const Check& check) {
  if (!check.inputs) return "";
  std::string text = fmt::format("{} input{}", *check.inputs, *check.inputs == 1 ? "" : "s");
  if (check.undecided) text += fmt::format(", {} undecided", *check.undecided);
  return text;
}

std::string check_item(const Check& check, const CaseRecord& record) {
  std::string html = fmt::format("<li>{} <b>{}</b> ({})", badge(check.verdict), html_text(check.name),
                                 to_string(check.rule));
  if (check.compared) html += fmt::format(": {} of {} violated", check.violations, check.compared);
  if (const auto on = inputs_of(check); !on.empty()) html += ", " + on;
  if (!check.reason.empty() && record.reason.find(check.reason) == std::string::npos)
    html += fmt::format(". {}", html_text(check.reason));
  if (check.worst)
    html += fmt::format("<br/><span class=\"soft\">worst {}: expected {}, got {}, error/bound {}</span>",
                        code(index_text(*check.worst)), number_with_bits(check.worst->expected),
                        number_with_bits(check.worst->got), digits(check.worst->ratio));
  return html + (check.replay == replay_of(record) ? "" : replay_line(check.replay)) + "</li>\n";
}

std::string problem(const KernelSummary& kernel) {
  const CaseRecord& record = *kernel.quoted;
  const auto others = std::count_if(kernel.cases.begin(), kernel.cases.end(),
                                    [](const auto* r) { return severity(r->verdict) > 1; }) -
                      1;
  std::string html = fmt::format(
      "<article class=\"card problem\">\n<div class=\"head\">{} <h3>{}</h3> <span "
      "class=\"soft\">{}</span></div>\n",
      badge(record.verdict), name_code(kernel.kernel->name),
      html_text(operator_title(*kernel.kernel) + ", " + kernel.kernel->form));
  if (!record.reason.empty()) html += fmt::format("<p>{}</p>\n", html_text(record.reason));
  if (const auto where = record.locate ? where_words(*record.locate) : ""; !where.empty())
    html += fmt::format("<p class=\"soft\">Where: {}</p>\n", where);
  std::string checks;
  for (const auto& check : record.checks)
    if (check.verdict != Verdict::pass && check.verdict != Verdict::not_run)
      checks += check_item(check, record);
  if (!checks.empty()) html += fmt::format("<ul>\n{}</ul>\n", checks);
  html += replay_line(replay_of(record));
  if (others > 0)
    html += fmt::format("<p class=\"soft\">{} more of its {} cases did not pass.</p>\n", others,
                        kernel.cases.size());
  return html + "</article>\n";
}

std::string cards(const std::vector<const KernelSummary*>& kernels) {
  std::string html;
  for (std::size_t i = 0; i < std::min(kernels.size(), most_problems); ++i) html += problem(*kernels[i]);
  if (kernels.size() > most_problems)
    html +=
        fmt::format("<p>{} more kernels; the tables below name them.</p>\n", kernels.size() - most_problems);
  return html;
}

// Failures stand open; what could not be decided is one line until it is asked for.
std::string why_undecided(const Records& records) {
  const auto reasons = undecided_reasons(records);
  if (reasons.empty()) return "";
  std::string html = fmt::format("<div class=\"card\" id=\"undecided\"><b>Why {} undecided</b>\n<ul>\n",
                                 records.end.undecided == 1 ? "a case is" : "cases are");
  for (const auto& reason : reasons)
    html += fmt::format(
        "<li><b>{}</b>: {} case{} of {} kernel{}<br/><span class=\"soft\">for example: {}</span></li>\n",
        html_text(reason.kind), reason.cases, reason.cases == 1 ? "" : "s", reason.kernels,
        reason.kernels == 1 ? "" : "s", html_text(reason.example));
  return html + "</ul></div>\n";
}

std::string problems(const Records& records, const std::vector<KernelSummary>& kernels) {
  std::vector<const KernelSummary*> wrong, undecided;
  for (const auto& kernel : kernels)
    if (kernel.verdict == Verdict::undecided)
      undecided.push_back(&kernel);
    else if (severity(kernel.verdict) > severity(Verdict::undecided))
      wrong.push_back(&kernel);
  if (wrong.empty() && undecided.empty()) return "";
  for (auto* list : {&wrong, &undecided})
    std::stable_sort(list->begin(), list->end(), [](auto* a, auto* b) { return worse_kernel(*a, *b); });
  std::string html =
      "<section id=\"problems\">\n<h2>What did not pass</h2>\n<p class=\"soft\">One case of each kernel, the "
      "worst first; the line at the bottom of a card repeats it. The element <code>o[b,t,h,c]</code> is that "
      "of batch b, "
      "token t, head h and column c, each from 0.</p>\n" +
      cards(wrong) + why_undecided(records);
  if (!undecided.empty())
    html += fmt::format(
        "<details><summary>{} kernel{} undecided: nothing was found wrong, and the reason why that proves "
        "nothing</summary>\n{}</details>\n",
        undecided.size(), undecided.size() == 1 ? "" : "s", cards(undecided));
  return html + "</section>\n";
}

// Tables.

// The columns of a table of measures, which are the labels of its cells on a narrow screen (measures_style).
struct Column {
  const char *group, *head, *label;
};
constexpr Column columns[] = {{"", "", ""},
                              {"", "Verdict", ""},
                              {"error / bound", "p50", "error/bound p50"},
                              {"error / bound", "p99", "error/bound p99"},
                              {"error / bound", "max", "error/bound max"},
                              {"ulps", "p50", "ulps p50"},
                              {"ulps", "p99", "ulps p99"},
                              {"ulps", "max", "ulps max"},
                              {"relative", "L2", "relative L2"},
                              {"plain", "ulps max", "plain: ulps max"},
                              {"", "Power", "power"},
                              {"", "Time, oracle", "time, oracle"}};

std::string measures_style() {
  std::string css = "@media (max-width: 760px) {\n";
  for (std::size_t c = 2; c < std::size(columns); ++c)
    css +=
        fmt::format(".measures td:nth-child({})::before {{ content: \"{}\"; }}\n", c + 1, columns[c].label);
  constexpr const char* of_the_overview[] = {
      "kernels", "largest error/bound", "ulps p50", "ulps p99", "ulps max", "by kernel"};
  for (std::size_t c = 0; c < std::size(of_the_overview); ++c)
    css +=
        fmt::format(".overview td:nth-child({})::before {{ content: \"{}\"; }}\n", c + 3, of_the_overview[c]);
  return css + "}\n";
}

std::string measures_head(const char* first) {
  std::string groups, heads;
  for (std::size_t c = 0, last; c < std::size(columns); c = last) {
    for (last = c + 1; last < std::size(columns) && *columns[c].group &&
                       columns[last].group == std::string(columns[c].group);)
      ++last;
    groups += last - c > 1
                  ? fmt::format("<th class=\"group\" colspan=\"{}\">{}</th>", last - c, columns[c].group)
                  : fmt::format("<th class=\"n\">{}</th>", columns[c].group);
  }
  for (std::size_t c = 0; c < std::size(columns); ++c)
    heads += fmt::format("<th{}>{}</th>", c < 2 ? "" : " class=\"n\"", c == 0 ? first : columns[c].head);
  return fmt::format("<thead>\n<tr>{}</tr>\n<tr>{}</tr>\n</thead>\n", groups, heads);
}

std::string number_cell(double value, bool over = false) {
  return fmt::format("<td class=\"n{}\">{}</td>", over ? " over" : "", digits(value));
}

std::string empty_cells(int n) {
  std::string html;
  for (; n > 0; --n) html += "<td class=\"n\">–</td>";
  return html;
}

std::string three_cells(const Quantiles& q, bool against_bound) {
  const auto over = [&](double r) { return against_bound && !(r <= 1); };
  return number_cell(q.p50, over(q.p50)) + number_cell(q.p99, over(q.p99)) + number_cell(q.max, over(q.max));
}

std::string power_cell(const TensorError& error) {
  if (!error.bounded) return "<td class=\"n over\">–<div class=\"sub\">no bound</div></td>";
  const bool enough = error.power >= 0.5;
  return fmt::format("<td class=\"n{}\">{}{}</td>", enough ? "" : " over", percent(error.power),
                     enough ? "" : "<div class=\"sub\">no power</div>");
}

std::string figure_cells(const CaseRecord& record) {
  const auto* tensor = measured_tensor(record);
  if (!tensor) return empty_cells(9);
  const TensorError& error = tensor->second;
  const auto plain = record.plain.find(tensor->first);
  return (error.bounded ? three_cells(error.ratio, true) : empty_cells(3)) + three_cells(error.ulp, false) +
         (error.norm ? number_cell(*error.norm) : empty_cells(1)) +
         (plain == record.plain.end() ? empty_cells(1) : number_cell(plain->second.ulp.max)) +
         power_cell(error);
}

std::string time_and_oracle_cell(const CaseRecord& record) {
  std::string html;
  if (record.time)
    html = fmt::format("{}<div class=\"sub\">oracle {}</div>", duration(record.time->kernel_ns),
                       duration(record.time->oracle_ns));
  if (record.oracle) {
    const auto& oracle = *record.oracle;
    html += fmt::format(
        "<div class=\"sub\">{}{}<br/>{}</div>", html_text(oracle.method),
        oracle.bits ? fmt::format(", {} bits", oracle.bits) : "",
        oracle.radius_over_bound ? "radius/bound " + digits(*oracle.radius_over_bound) : "no bound");
  }
  return fmt::format("<td class=\"n wide\">{}</td>", html.empty() ? "–" : html);
}

std::string tensor_note(const CaseRecord& record) {
  const auto* tensor = measured_tensor(record);
  if (!tensor || (record.error.size() < 2 && tensor->first == "o")) return "";
  return fmt::format("<div class=\"sub\">worst tensor: {} of {}</div>", html_text(tensor->first),
                     record.error.size());
}

// Which case the figures of a kernel are those of; "" where it has only one.
std::string measured_note(const KernelSummary& kernel) {
  if (kernel.cases.size() < 2) return "";
  const auto tokens = kernel.measured->tokens;
  return fmt::format("the longest of {} cases{}", kernel.cases.size(),
                     tokens ? fmt::format(", T = {}", *tokens) : "");
}

// The note that most kernels share is said once, above their table.
std::string common_note(std::span<const KernelSummary> group) {
  std::map<std::string, std::size_t> uses;
  for (const auto& kernel : group)
    if (const auto note = measured_note(kernel); !note.empty()) ++uses[note];
  const auto most =
      std::max_element(uses.begin(), uses.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == uses.end() ? "" : most->first;
}

std::string kernel_row(const KernelSummary& kernel, const std::string& common) {
  const KernelId& k = *kernel.kernel;
  std::string name = fmt::format(
      "<b>{}</b><div class=\"sub\">{}</div><div class=\"sub mono\" title=\"{}\">{}</div>", name_code(k.name),
      html_text(k.form), html_text(k.contract), html_text(contract_labels({k.contract}).front()));
  if (const auto note = measured_note(kernel); note != common)
    name += fmt::format("<div class=\"sub\">figures: {}</div>", note.empty() ? "its only case" : note);
  if (const std::string worse = worse_elsewhere(kernel); !worse.empty())
    name += fmt::format("<div class=\"sub\">worse elsewhere: {}</div>", html_text(worse));
  return fmt::format("<tr><td class=\"wide name\">{}{}</td><td class=\"wide\">{}</td>{}{}</tr>\n", name,
                     tensor_note(*kernel.measured), badge(kernel.verdict), figure_cells(*kernel.measured),
                     time_and_oracle_cell(*kernel.measured));
}

std::string kernel_table(std::span<const KernelSummary> group) {
  const std::string common = common_note(group);
  std::string html;
  if (!common.empty())
    html = fmt::format(
        "<p class=\"soft\">Figures: of each kernel {}{}.</p>\n", common,
        std::all_of(group.begin(), group.end(), [&](const auto& k) { return measured_note(k) == common; })
            ? ""
            : ", where a row says nothing else");
  html += fmt::format("<div class=\"scroll kernels measures\"><table>\n{}<tbody>\n", measures_head("Kernel"));
  for (const auto& kernel : group) html += kernel_row(kernel, common);
  return html + "</tbody></table></div>\n";
}

// What the mouse shows over a check: on how many inputs it decided, and its reason.
std::string title_of(const Check& check) {
  std::string text = inputs_of(check);
  if (!check.reason.empty()) text += (text.empty() ? "" : ": ") + check.reason;
  return text.empty() ? "" : fmt::format(" title=\"{}\"", html_text(text));
}

// Kernels by the checks of the battery.
std::string check_matrix(std::span<const KernelSummary> group) {
  std::vector<std::string> names;
  for (const auto& kernel : group)
    for (const auto& check : kernel.quoted->checks)
      if (std::find(names.begin(), names.end(), check.name) == names.end()) names.push_back(check.name);
  std::string html =
      "<p class=\"soft\">Every check of the battery on inputs of its own. ✓ passes, ✕ fails, ! suspect, ? "
      "undecided, – could "
      "not run; the mouse shows on how many inputs, and why.</p>\n<div class=\"scroll "
      "matrix\"><table>\n<thead><tr><th>Kernel</th><th>Verdict</th>";
  for (const auto& name : names)
    html += fmt::format("<th class=\"turned\"><span>{}</span></th>", html_text(name));
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& kernel : group) {
    html += fmt::format("<tr><td>{}</td><td>{}</td>", name_code(kernel.kernel->name), badge(kernel.verdict));
    for (const auto& name : names) {
      const auto& checks = kernel.quoted->checks;
      const auto check =
          std::find_if(checks.begin(), checks.end(), [&](const auto& c) { return c.name == name; });
      html += check == checks.end()
                  ? "<td class=\"m\"></td>"
                  : fmt::format("<td class=\"m\"{}><span class=\"dot v-{}\">{}</span></td>", title_of(*check),
                                to_string(check->verdict), mark(check->verdict));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// What an operator's section opens with: measures, the checks of the battery, or both.
std::string tables_of(std::span<const KernelSummary> group) {
  std::vector<KernelSummary> measured, battery;
  for (const auto& kernel : group) (of_the_battery(*kernel.measured) ? battery : measured).push_back(kernel);
  return (measured.empty() ? "" : kernel_table(measured)) + (battery.empty() ? "" : check_matrix(battery));
}

std::string case_row(const CaseRecord& record) {
  std::string reason =
      record.reason.empty() ? "" : fmt::format("<div class=\"sub\">{}</div>", html_text(record.reason));
  return fmt::format("<tr><td class=\"wide name\">{}{}{}</td><td class=\"wide\">{}</td>{}{}</tr>\n",
                     code(record.case_line), reason, tensor_note(record), badge(record.verdict),
                     figure_cells(record), time_and_oracle_cell(record));
}

// The cases of a kernel in their order, or the worst `limit` of them, the worst first.
std::vector<const CaseRecord*> worst_cases(const KernelSummary& kernel, std::size_t limit) {
  auto cases = kernel.cases;
  if (cases.size() <= limit) return cases;
  std::stable_sort(cases.begin(), cases.end(), [](const auto* a, const auto* b) {
    const int left = severity(a->verdict), right = severity(b->verdict);
    return left != right ? left > right : worse_number(largest_ratio(*a), largest_ratio(*b));
  });
  cases.resize(limit);
  return cases;
}

std::string case_table(std::span<const KernelSummary> kernels, std::size_t rows_of_a_kernel) {
  if (std::all_of(kernels.begin(), kernels.end(), [](const auto& k) { return of_the_battery(*k.measured); }))
    return "";  // the matrix of checks says it all
  std::size_t cases = 0, shown = 0;
  std::string rows;
  for (const auto& kernel : kernels) {
    const auto worst = worst_cases(kernel, rows_of_a_kernel);
    cases += kernel.cases.size(), shown += worst.size();
    rows += fmt::format(
        "<tr class=\"operator\"><th colspan=\"{}\">{}<div class=\"sub\">{} · {}{}</div></th></tr>\n",
        std::size(columns), name_code(kernel.kernel->name), html_text(kernel.kernel->door),
        html_text(kernel.kernel->contract),
        worst.size() < kernel.cases.size()
            ? fmt::format(" · the worst {} of {} cases", worst.size(), kernel.cases.size())
            : "");
    for (const auto* record : worst) rows += case_row(*record);
  }
  const std::string summary =
      shown == cases
          ? fmt::format("All {} cases as a table", cases)
          : fmt::format("The worst {} of {} cases as a table (attest report --csv lists all)", shown, cases);
  return fmt::format(
      "<details><summary>{}</summary>\n<div class=\"scroll kernels "
      "measures\"><table>\n{}<tbody>\n{}</tbody></table>"
      "</div></details>\n",
      summary, measures_head("Case"), rows);
}

// Overview.

// The kernel with the largest error/bound of any case; nullptr when none was measured.
const KernelSummary* worst_kernel(std::span<const KernelSummary> group) {
  const KernelSummary* worst = nullptr;
  const auto largest = [](const KernelSummary& k) { return worst_tensor(*k.extreme)->second.ratio.max; };
  for (const auto& kernel : group)
    if (kernel.extreme && (!worst || worse_number(largest(kernel), largest(*worst)))) worst = &kernel;
  return worst;
}

std::string overview_row(std::span<const KernelSummary> group, std::size_t number, bool with_measures) {
  std::string verdicts;
  for (const auto verdict : all_verdicts) {
    const auto n =
        std::count_if(group.begin(), group.end(), [&](const auto& k) { return k.verdict == verdict; });
    if (n)
      verdicts += fmt::format("<span class=\"badge v-{}\">{} {} {}</span> ", to_string(verdict),
                              mark(verdict), n, verdict_words(verdict));
  }
  std::string cells;
  if (with_measures) {
    cells = empty_cells(5);
    if (const auto* worst = worst_kernel(group)) {
      const TensorError& error = worst_tensor(*worst->extreme)->second;
      cells = number_cell(error.ratio.max, !(error.ratio.max <= 1)) + three_cells(error.ulp, false) +
              fmt::format("<td class=\"wide\">{}{}</td>", name_code(worst->kernel->name),
                          worst->extreme->tokens ? fmt::format(", T = {}", *worst->extreme->tokens) : "");
    }
  }
  return fmt::format(
      "<tr><td class=\"wide\"><a href=\"#{}\"><b>{}</b></a></td><td class=\"wide\">{}</td><td class=\"n\">{}"
      "</td>{}</tr>\n",
      section_id(number), html_text(operator_title(*group.front().kernel)), verdicts, group.size(), cells);
}

constexpr const char* overview_words =
    "<p class=\"soft\">A kernel counts by its worst case. Error/bound is what is judged, and above 1 is a "
    "failure. Ulps (units in "
    "the last place of the output format) are of the same case: the median and the 99th percentile say how "
    "good the kernel "
    "is; the maximum is that of some element near zero, whose last place is tiny, and large numbers there "
    "are no alarm.</p>\n";

std::string overview(const std::vector<std::span<const KernelSummary>>& groups) {
  const bool measures =
      std::any_of(groups.begin(), groups.end(), [](const auto& g) { return worst_kernel(g) != nullptr; });
  std::string html = "<section id=\"operators\">\n<h2>Operators</h2>\n";
  html += measures ? overview_words : "<p class=\"soft\">A kernel counts by its worst check.</p>\n";
  html += fmt::format(
      "<div class=\"scroll kernels overview\"><table>\n<thead><tr><th>Operator</th><th>Verdicts</th><th "
      "class=\"n\">Kernels</th>{}</tr></thead>\n<tbody>\n",
      measures ? "<th class=\"n\">Largest<br/>error/bound</th><th class=\"n\">ulps<br/>p50</th><th "
                 "class=\"n\">ulps<br/>p99</th>"
                 "<th class=\"n\">ulps<br/>max</th><th>By kernel</th>"
               : "");
  for (std::size_t g = 0; g < groups.size(); ++g) html += overview_row(groups[g], g, measures);
  return html + "</tbody></table></div>\n</section>\n";
}

// Figures.

class Gallery {
 public:
  explicit Gallery(const std::string& program) : program_(program) {}

  // `drawn`: figures that stand already, put before the others.
  std::string show(const std::vector<Figure>& figures, const std::string& drawn = "") {
    std::string html = drawn;
    for (const auto& figure : figures) html += one(figure);
    return html.empty() ? "" : fmt::format("<div class=\"figures\">\n{}</div>\n", html);
  }
  bool missing() const { return missing_; }

 private:
  std::string one(const Figure& figure) {
    if (program_.empty()) missing_ = true;
    if (missing_) return "";
    const auto svg = gnuplot_svg(program_, figure.script, fmt::format("f{}-", ++drawn_));
    if (!svg) {
      missing_ = true;
      return "";
    }
    return fmt::format(
        "<figure>\n<h3>{}</h3>\n<div class=\"plot\" role=\"img\" "
        "aria-label=\"{}\">{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
        html_text(figure.title), html_text(figure.title), themed_svg(*svg), html_text(figure.caption));
  }

  std::string program_;
  int drawn_ = 0;
  bool missing_ = false;
};

constexpr const char* how_to_read =
    "<p class=\"soft\">The verdict is that of a kernel's worst case, the figures are those of its longest "
    "case, "
    "which the figures below draw too; what is worse elsewhere is said. Ulps are of the output format; "
    "relative L2 is "
    "the l2 norm of the error over that of o, in the worst sequence and head; <i>plain</i> is the plain "
    "low-precision "
    "evaluation of the same case. Power is the share of the elements on which the bound is tight enough to "
    "catch anything.</p>\n";

constexpr const char* printed_note =
    "<p class=\"card warning\">These kernels compute the formula as printed in the paper, which <code>attest "
    "prove</code> refutes. A pass says that they compute the printed formula, not that it is the "
    "operator.</p>\n";

std::string operator_sections(const std::vector<std::span<const KernelSummary>>& groups, Gallery& gallery) {
  const bool measures = std::any_of(groups.begin(), groups.end(), [](const auto& g) {
    return std::any_of(g.begin(), g.end(), [](const auto& k) { return !of_the_battery(*k.measured); });
  });
  std::size_t kernels = 0;
  for (const auto& group : groups) kernels += group.size();
  const std::size_t rows = std::max(least_case_rows, most_case_rows / std::max<std::size_t>(kernels, 1));
  std::string html;
  for (std::size_t g = 0; g < groups.size(); ++g)
    html += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}{}{}{}{}</section>\n", section_id(g),
                        html_text(operator_title(*groups[g].front().kernel)),
                        groups[g].front().kernel->variant == "printed" ? printed_note : "",
                        g == 0 && measures ? how_to_read : "", tables_of(groups[g]),
                        gallery.show(operator_figures(groups[g]), heat_map(groups[g])),
                        case_table(groups[g], rows));
  return html;
}

// Worst elements.

struct Element {
  const CaseRecord* record;
  const WorstElement* worst;
};

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::vector<Element> worst_elements(const std::vector<KernelSummary>& kernels) {
  const auto worse = [](const Element& a, const Element& b) {
    return worse_number(a.worst->ratio, b.worst->ratio);
  };
  std::vector<Element> all;
  for (const auto& kernel : kernels) {
    std::vector<Element> own;
    for (const auto* record : kernel.cases)
      for (const auto& worst : record->worst) own.push_back({record, &worst});
    std::stable_sort(own.begin(), own.end(), worse);
    // Prefixes of one input repeat its elements: each is listed once, with the shortest case that shows it.
    const auto same = [](const Element& a, const Element& b) {
      return a.worst->tensor == b.worst->tensor && a.worst->index == b.worst->index &&
             same_number(a.worst->expected, b.worst->expected) && same_number(a.worst->got, b.worst->got);
    };
    std::vector<Element> once;
    for (const Element& element : own)
      if (once.size() < most_elements_of_a_kernel &&
          std::none_of(once.begin(), once.end(), [&](const Element& e) { return same(e, element); }))
        once.push_back(element);
    all.insert(all.end(), once.begin(), once.end());
  }
  std::stable_sort(all.begin(), all.end(), worse);
  if (all.size() > most_elements) all.resize(most_elements);
  return all;
}

std::string value_of(const char* name, double value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, number_with_bits(value));
}

std::string element_card(const Element& element) {
  const WorstElement& w = *element.worst;
  const std::string replay = w.replay.empty() ? replay_of(*element.record) : w.replay;
  return fmt::format(
             "<article class=\"card element\">\n<div class=\"head\">{} <h3>{}</h3> <span class=\"soft\">{} · "
             "{}</span></div>\n<dl>\n",
             badge(element.record->verdict), code(index_text(w)),
             html_text(operator_title(element.record->kernel)), name_code(element.record->kernel.name)) +
         value_of("expected", w.expected) + value_of("got", w.got) + value_of("bound", w.bound) +
         fmt::format("<div><dt>error / bound</dt><dd>{}</dd></div>\n</dl>\n{}</article>\n", digits(w.ratio),
                     replay_line(replay));
}

std::string element_section(const std::vector<KernelSummary>& kernels) {
  const auto elements = worst_elements(kernels);
  if (elements.empty()) return "";
  std::string html = fmt::format(
      "<section id=\"elements\">\n<h2>Worst elements</h2>\n<p>The elements with the largest error/bound, at "
      "most {} of a kernel and {} in all. "
      "<code>o[b,t,h,c]</code> is the element of batch b, token t, head h and column c, each from 0. Behind "
      "every number "
      "stand its bits as a hex float, which loses nothing; the expected value is the leading part of the "
      "oracle's. "
      "The line below repeats the case "
      "bit for bit.</p>\n",
      most_elements_of_a_kernel, most_elements);
  html += "<div class=\"elements\">\n";
  for (const auto& element : elements) html += element_card(element);
  return html + "</div>\n</section>\n";
}

constexpr std::string_view about = R"html(<section id="about">
<h2>About the verdicts</h2>
<p><b>Bound.</b> No tolerance was chosen. Every element has its own bound, derived from what the kernel promises about its arithmetic (its
contract: the formats of inputs, products, accumulators, state and output) and from how much each of its roundings moves that element, at the
actual values of the case. <b>Fail</b> means that an error exceeds the bound that holds for every way the roundings may fall, or that a check
of structure or of bits is violated, or that a value is NaN or infinite where the contract excludes it. <b>Pass</b> means that all errors also
stay within the smaller bound that independent roundings keep except with probability 10<sup>-9</sup>. <b>Suspect</b> lies between the two;
fresh seeds tell a bias from bad luck.</p>
<p><b>Power.</b> A bound that is too wide catches nothing, and passing it says nothing. Power is the share of the elements whose bound is below
a quarter of the value itself; below one half the value check claims nothing.</p>
<p><b>Undecided</b> is the honest answer where the bound has no power, where the oracle cannot enclose the true value tightly enough, where a
stage may overflow its format on this case, or where the problem is too ill-conditioned. It is neither a pass nor a failure.</p>
<p><b>Oracle.</b> The true value comes from exact or arbitrary-precision arithmetic with a certified radius; radius/bound says how far that
radius lies below the bound it serves. <b>Plain</b> is the straightforward evaluation of the definition in the same low precision, for
comparison: a kernel far below it is better than the format suggests, one far above it has lost something.</p>
<details><summary>Names of stages</summary>
<p>A stage is a place where a form rounds. Composed operators (HLA, and the first-order ones with <code>o</code> alone) are made of causal
products, named by one letter as in the formulas of <code>attest list --formulas</code>: x = Lin(queries, keys, values). Of each,</p>
<dl class="facts">
<dt>x.weights</dt><dd>the products of queries and keys inside a chunk, rounded before they meet the values</dd>
<dt>x.keys</dt><dd>the keys, faded to the end of their chunk, rounded before they update the state</dd>
<dt>x.state</dt><dd>the state at the beginning of a chunk, rounded before the queries read it</dd>
<dt>x.carry</dt><dd>the state rounded to its own format when it is handed to the next chunk or token</dd>
<dt>x.rows</dt><dd>the result of x, rounded before the next causal product reads it</dd>
</dl>
<p>Without a letter the same words mean the only product of the operator. The delta rules and the log-linear operators also have</p>
<dl class="facts">
<dt>scores</dt><dd>products of queries and keys, or of keys with one another, inside a chunk</dd>
<dt>ut</dt><dd>the inverse of the chunk's triangular matrix times beta (the UT transform)</dd>
<dt>start_keys, w</dt><dd>keys faded from the chunk's beginning, and the UT matrix times them: what the chunk removes from the state</dd>
<dt>u</dt><dd>the values that the chunk writes: UT times v, less w times the state</dd>
<dt>queries, removed, gain</dt><dd>log-linear: queries less what the chunk removes, what is removed from an older block, what a new block gains</dd>
<dt>S</dt><dd>the state of a form that goes token by token or by scan, rounded to its own format</dd>
<dt>output</dt><dd>the result rounded to the output format</dd>
</dl>
<p>The shares are those of the errors to first order; sums in the accumulator and products of errors are in the bound and not in the figure. Forms
that are bounded by a running error analysis (stream and scan of HLA) have no stages and are not drawn.</p>
</details>
</section>
)html";

}  // namespace

std::string render_html(const Records& records, const HtmlOptions& options) {
  const auto kernels = summarise(records);
  const auto groups = groups_of(kernels);
  Gallery gallery(options.gnuplot);
  const std::string overall = gallery.show(run_figures(groups));
  const std::string operators = operator_sections(groups, gallery);

  std::string html = head(records, kernels, groups, options.title) + problems(records, kernels);
  if (!kernels.empty()) html += overview(groups);
  if (gallery.missing())
    html +=
        "<p class=\"card\">Plots were left out: the program gnuplot was not found or failed. Install "
        "gnuplot-nox and make the page again.</p>\n";
  if (!overall.empty())
    html += fmt::format("<section id=\"overview\">\n<h2>The whole run</h2>\n{}</section>\n", overall);
  html += operators + element_section(kernels) + std::string(about);
  html += fmt::format("<footer>Made from records of schema {} alone.</footer>\n", records_schema);
  return html_page(options.title + ": " + headline(records, kernels), html, measures_style());
}

void write_html(const Records& records, const std::filesystem::path& page, const HtmlOptions& options) {
  write_file_atomically(page, render_html(records, options));
}

void write_html(const std::filesystem::path& records, const std::filesystem::path& page,
                const HtmlOptions& options) {
  write_html(read_records(records, Incomplete::accept), page, options);
}

}  // namespace attest
