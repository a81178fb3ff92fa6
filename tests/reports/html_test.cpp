#include "reports/html.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stack>
#include <vector>

#include "reference/tensor/bad_input.hpp"
#include "reports/escape.hpp"
#include "reports/figures.hpp"
#include "reports/gnuplot.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"
#include "tests/reports/count.hpp"
#include "tests/reports/sample_records.hpp"

namespace attest {
namespace {

bool has_gnuplot() { return gnuplot_svg("gnuplot", "set terminal svg\nplot 1\n", "x-").has_value(); }

bool is_entity(const std::string& text) {
  for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
    if (text.starts_with(entity)) return true;
  return false;
}

// The quoted values that follow `before` ("href=") anywhere in the page.
std::vector<std::string> values_of(const std::string& page, const std::string& before) {
  std::vector<std::string> values;
  for (auto at = page.find(before); at != page.npos; at = page.find(before, at + 1)) {
    const auto start = at + before.size();
    if (start >= page.size() || (page[start] != '"' && page[start] != '\'')) continue;
    values.push_back(page.substr(start + 1, page.find(page[start], start + 1) - start - 1));
  }
  return values;
}

// What is wrong with the tags: "" when every one is closed in order, and text holds no bare '<' or '&'.
std::string imbalance(std::string page) {
  for (const char* raw : {"style", "script"}) {
    const auto start = page.find(std::string("<") + raw + ">"),
               end = page.find(std::string("</") + raw + ">");
    if (start != page.npos && end != page.npos)
      page.erase(start + std::string(raw).size() + 2, end - start - std::string(raw).size() - 2);
  }
  std::stack<std::string> open;
  for (std::size_t i = 0; i < page.size(); ++i) {
    if (page[i] == '&' && !is_entity(page.substr(i, 8))) return "bare & at " + page.substr(i, 40);
    if (page[i] != '<') continue;
    const auto close = page.find('>', i);
    if (close == page.npos) return "unclosed tag at " + page.substr(i, 40);
    const std::string tag = page.substr(i + 1, close - i - 1);
    i = close;
    if (tag.starts_with("!DOCTYPE") || tag.ends_with("/")) continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" \n\t") - (tag[0] == '/'));
    if (tag[0] != '/')
      open.push(name);
    else if (open.empty() || open.top() != name)
      return "</" + name + "> closes " + (open.empty() ? "nothing" : open.top());
    else
      open.pop();
  }
  return open.empty() ? "" : "<" + open.top() + "> is not closed";
}

// References that a browser would follow outside the page.
std::set<std::string> outside_references(const std::string& page) {
  std::set<std::string> found;
  for (const char* attribute : {"src=", "href=", "action=", "data=", "poster=", "srcset="})
    for (const auto& target : values_of(page, attribute))
      if (!target.starts_with("#")) found.insert(attribute + target);
  for (auto at = page.find("url("); at != page.npos; at = page.find("url(", at + 1))
    if (page[at + 4] != '#' && page.compare(at + 4, 2, "'#") != 0) found.insert(page.substr(at, 40));
  if (page.find("@import") != page.npos) found.insert("@import");
  return found;
}

// "" when xmllint is missing or has no objection.
std::string xmllint_objection(const std::string& page) {
  if (std::system("command -v xmllint >/dev/null 2>&1") != 0) return "";
  const auto path =
      std::filesystem::temp_directory_path() / ("attest-page-" + std::to_string(::getpid()) + ".html");
  std::ofstream(path, std::ios::binary) << page;
  const int status = std::system(("xmllint --noout '" + path.string() + "' >/dev/null 2>&1").c_str());
  std::filesystem::remove(path);
  return status == 0 ? "" : "xmllint finds the page ill-formed";
}

void expect_sound(const std::string& page) {
  EXPECT_EQ(imbalance(page), "");
  EXPECT_EQ(xmllint_objection(page), "");
  EXPECT_TRUE(outside_references(page).empty()) << *outside_references(page).begin();
  EXPECT_EQ(count(page, "http:"), 0U);
  EXPECT_EQ(count(page, "https:"), 0U);
  EXPECT_EQ(count(page, "<script>"), 1U);
  std::set<std::string> ids;
  for (const char* before : {" id=", "\nid="})
    for (const auto& id : values_of(page, before))
      EXPECT_TRUE(ids.insert(id).second) << "id used twice: " << id;
  for (const auto& target : values_of(page, "href="))
    EXPECT_TRUE(ids.count(target.substr(1))) << "leads nowhere: " << target;
}

TEST(HtmlChecks, NoticeUnsoundPages) {
  EXPECT_NE(imbalance("<p><b>text</p></b>"), "");
  EXPECT_NE(imbalance("<p>text"), "");
  EXPECT_NE(imbalance("<p>a & b</p>"), "");
  EXPECT_EQ(xmllint_objection("<p><b>text</b></p>"), "");
  if (std::system("command -v xmllint >/dev/null 2>&1") == 0) {
    EXPECT_NE(xmllint_objection("<p><b>text</p></b>"), "");
  }
  EXPECT_FALSE(outside_references("<img src=\"https://example.org/x.png\"/>").empty());
  EXPECT_FALSE(outside_references("<style>a { background: url(x.png) }</style>").empty());
}

TEST(Html, OfARealisticRunIsSoundAndSelfContained) { expect_sound(render_html(sample_records())); }

TEST(Html, OfAnEmptyRunSaysThatNothingWasRun) {
  const auto page = render_html(empty_records());
  expect_sound(page);
  EXPECT_NE(page.find("No case was run, which is never a success"), page.npos);
}

TEST(Html, EscapesNamesFromOutside) {
  std::filesystem::remove("gnuplot_was_here");
  const auto page = render_html(records_of({hostile_case(), hostile_case()}));
  expect_sound(page);
  EXPECT_EQ(page.find("<script>alert"), page.npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;"), page.npos);
  EXPECT_FALSE(std::filesystem::exists("gnuplot_was_here"));
}

TEST(Html, HoldsFactsVerdictsFiguresAndReplayLines) {
  const auto records = sample_records();
  const auto page = render_html(records);
  for (const char* part :
       {"20261129", "8fc183d0c2f1", "g++ 12.2.0", "✕ FAIL", "! SUSPECT", "? UNDECIDED", "✓ PASS", "– NOT RUN",
        "7.25", "0x1.c2p-9", "-0x1.ap-1", "no power", "NaN", "infinite", "About the verdicts", "no GPU",
        "attest check --kernel k --case &#39;op=gated_delta variant=masked T=1024"})
    EXPECT_NE(page.find(part), page.npos) << part;
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is missing: figures not checked";
  for (const char* title :
       {"Every kernel at a glance", "Magnitudes and cancellation", "Forms side by side: error in ulps",
        "Error against position", "Error/bound against T", "Share of the bound by stage",
        "Distribution of error/bound over the cases", "Worst elements by head and token"})
    EXPECT_NE(page.find(title), page.npos) << title;
  EXPECT_EQ(count(page, "<svg"), count(page, "<figure>"));
  EXPECT_GE(count(page, "<svg"), 20U);
}

TEST(Html, IsTheSameEveryTime) { EXPECT_EQ(render_html(sample_records()), render_html(sample_records())); }

TEST(Html, KeepsItsTablesWithoutGnuplot) {
  HtmlOptions options;
  for (const char* program : {"", "no-such-program-anywhere", "false", "true"}) {
    options.gnuplot = program;
    const auto page = render_html(sample_records(), options);
    expect_sound(page);
    EXPECT_EQ(count(page, "<svg"), count(page, "Worst elements by head and token</h3>"));  // needs no program
    EXPECT_EQ(count(page, "Plots were left out"), 1U) << program;
    EXPECT_NE(page.find("cpu.<wbr/>gated_<wbr/>delta.<wbr/>chunk.<wbr/>bf16.<wbr/>broken"), page.npos);
  }
}

TEST(Html, SaysThatAnUnfinishedRunIsIncomplete) {
  const auto folder = std::filesystem::temp_directory_path() / ("attest-html-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto records = sample_records();
  std::ofstream(folder / "cut.jsonl") << to_json_line(records.run) << "\n"
                                      << to_json_line(records.cases[0]) << "\n{\"case\":";
  write_html(folder / "cut.jsonl", folder / "page.html");
  std::stringstream page;
  page << std::ifstream(folder / "page.html").rdbuf();
  EXPECT_NE(page.str().find("The run did not finish"), std::string::npos);
  EXPECT_NE(page.str().find("<b>Incomplete.</b>"), std::string::npos);
  std::ofstream(folder / "bad.jsonl") << "{}\n";
  EXPECT_THROW(write_html(folder / "bad.jsonl", folder / "other.html"), BadInput);
  EXPECT_FALSE(std::filesystem::exists(folder / "other.html"));
  std::filesystem::remove_all(folder);
}

TEST(Svg, StandsAloneUnderItsPrefix) {
  const auto svg = embeddable_svg(
      "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://x\" xmlns:xlink=\"http://y\"><title>T</title>"
      "<g id=\"a\"/><path id='b'/><use xlink:href='#b'/><rect fill='url(#a)'/></svg>\n",
      "f1-");
  ASSERT_TRUE(svg);
  EXPECT_EQ(*svg,
            "<svg  ><g id=\"f1-a\"/><path id='f1-b'/><use href='#f1-b'/><rect fill='url(#f1-a)'/></svg>");
  EXPECT_FALSE(embeddable_svg("no drawing", "f1-"));
}

TEST(GnuplotText, CannotLeaveItsQuotes) {
  EXPECT_EQ(gnuplot_text("a'b\"c`d\\e\nf"), "'a’b’c‘d/e f'");
  EXPECT_EQ(gnuplot_text("abcdef", 3), "'abc…'");
}

TEST(Escape, QuotesWordsOfAShellWhereItMust) {
  EXPECT_EQ(shell_word("build/attest"), "build/attest");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Escape, ReplacesWhatIsNotText) {
  EXPECT_EQ(html_text("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(clean_text("é√\n\t"), "é√  ");
  EXPECT_EQ(clean_text("\x01"), "\xEF\xBF\xBD");
  EXPECT_EQ(clean_text("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(clean_text("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(clean_text("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(clean_text("\u202Eabc"),
            "\xEF\xBF\xBD"
            "abc");
}

TEST(Html, ListsAnElementOnceThoughSeveralPrefixesShowIt) {
  Records records = sample_records();
  CaseRecord one = records.cases.front();
  ASSERT_EQ(one.worst.size(), 1u);
  one.checks.clear();
  CaseRecord other = one;  // a longer prefix of the same input, the same element
  other.tokens = *one.tokens * 2;
  const auto cards = [](const Records& r) {
    const std::string html = render_html(r, {.gnuplot = ""});
    std::size_t count = 0;
    for (auto at = html.find("card element"); at != html.npos; at = html.find("card element", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(cards(records_of({one, other})), 1u);
  other.worst[0].got += 1;  // the control: another value at the same place
  EXPECT_EQ(cards(records_of({one, other})), 2u);
}

// The numbers of a figure's data lines, in order.
std::vector<double> numbers_of(const Figure& figure) {
  std::vector<double> numbers;
  std::istringstream lines(figure.script);
  bool data = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("<< EOD") != line.npos) {
      data = true;
    } else if (line == "EOD") {
      data = false;
    } else if (data) {
      std::istringstream words(line);
      for (double x; words >> x;) numbers.push_back(x);
    }
  }
  return numbers;
}

Figure figure_of(const Records& records, const std::string& title) {
  const auto kernels = summarise(records);
  auto figures = run_figures({kernels});
  for (auto& figure : operator_figures(kernels)) figures.push_back(figure);
  for (const auto& figure : figures)
    if (figure.title == title) return figure;
  ADD_FAILURE() << "no figure " << title;
  return {};
}

TEST(Figures, ShowNumbersWhereTheyAreHoweverFarApart) {
  CaseRecord record = sample_records().cases[0];
  record.magnitude = Quantiles{1.5, 3e7, 2e11};
  const Figure figure = figure_of(records_of({record}), "Magnitudes and cancellation");
  const std::vector<double> drawn = numbers_of(figure),
                            expected = {std::log10(3e7), 1, std::log10(1.5), std::log10(2e11)};
  ASSERT_EQ(drawn.size(), expected.size());
  for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_NEAR(drawn[i], expected[i], 1e-4);
  EXPECT_EQ(figure.caption.find("end of the axis"), std::string::npos);
  if (has_gnuplot()) {
    EXPECT_TRUE(gnuplot_svg("gnuplot", figure.script, "x-"));
  }
}

TEST(Figures, SayWhatLiesOnTheEndOfAnAxis) {
  CaseRecord record = sample_records().cases[0];
  record.magnitude = Quantiles{1e-305, 1, INFINITY};
  const Figure figure = figure_of(records_of({record}), "Magnitudes and cancellation");
  EXPECT_NE(figure.caption.find("infinite values lie on the upper end"), std::string::npos) << figure.caption;
  record.magnitude = Quantiles{1e-305, 1, 1e305};  // an axis that gnuplot's own ticks would hold for minutes
  const Figure widest = figure_of(records_of({record}), "Magnitudes and cancellation");
  EXPECT_EQ(numbers_of(widest), (std::vector<double>{0, 1, -305, 305}));
  EXPECT_EQ(widest.caption.find("end of the axis"), std::string::npos) << widest.caption;
  if (has_gnuplot()) {
    EXPECT_TRUE(gnuplot_svg("gnuplot", widest.script, "x-"));
  }
  record = sample_records().cases[0];
  record.curve[3].bound_at_max = 0;
  const Figure absolute = figure_of(records_of({record}), "Error and bound in absolute size");
  EXPECT_NE(absolute.caption.find("Zeros"), std::string::npos) << absolute.caption;
}

// Three lengths of one kernel, of which the shortest has the largest error/bound and the longest the least power.
std::vector<CaseRecord> three_lengths() {
  std::vector<CaseRecord> cases;
  const Records sample = sample_records();
  for (std::size_t i = 0; i < 3; ++i) {
    cases.push_back(sample.cases[i]);
    TensorError& error = cases[i].error["o"];
    error.ratio = {0.1, 0.2, 0.75 - 0.125 * static_cast<double>(i)};
    error.ulp = {1, 2, i == 1 ? 77.0 : 33.0 + static_cast<double>(i)};
    error.power = 0.9 - 0.1 * static_cast<double>(i);
    error.norm = 0.001 * static_cast<double>(i + 1);
  }
  return cases;
}

TEST(Summary, TakesItsFiguresFromTheLongestCaseAndSaysWhereItIsWorse) {
  const Records records = records_of(three_lengths());
  const auto kernels = summarise(records);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].measured->tokens, 1024);
  EXPECT_EQ(kernels[0].extreme->tokens, 64);
  EXPECT_EQ(worse_elsewhere(kernels[0]), "error/bound 0.75 at T = 64, ulps 77 at T = 256");
  const std::string page = render_html(records, {.gnuplot = ""});
  EXPECT_NE(page.find("Figures: of each kernel the longest of 3 cases, T = 1024."), page.npos);
  EXPECT_NE(page.find("worse elsewhere: error/bound 0.75 at T = 64, ulps 77 at T = 256"), page.npos);
  EXPECT_NE(page.find("<td class=\"n\">70 %</td>"), page.npos);
  const auto numbers = numbers_of(figure_of(records, "Every kernel at a glance"));
  ASSERT_FALSE(numbers.empty());
  EXPECT_NEAR(numbers[0], std::log10(0.75), 1e-5);  // over all cases, as it says
  auto level = three_lengths();                     // the control: nothing is worse elsewhere
  level[0].error = level[1].error = level[2].error;
  EXPECT_EQ(worse_elsewhere(summarise(records_of(level)).at(0)), "");
}

TEST(Html, ShowsErrorsWithoutABoundAndNoRatioThatIsNone) {
  auto cases = three_lengths();
  for (auto& record : cases) {
    record.verdict = Verdict::undecided, record.reason = "range: the stage `u` reaches 4e+43 in fp32";
    TensorError& error = record.error["o"];
    error.bounded = false, error.ratio = {}, error.power = 0;
    record.plain["o"].bounded = false, record.oracle->radius_over_bound.reset();
    record.curve.clear(), record.worst.clear(), record.stages.clear();
  }
  cases[1].reason = "no power: the bound is below a quarter of the value on 3 % of the elements";
  const std::string page = render_html(records_of(cases));
  expect_sound(page);
  EXPECT_NE(page.find("no bound"), page.npos);
  EXPECT_EQ(page.find("radius/bound 0"), page.npos);
  EXPECT_NE(page.find("<td class=\"n\">35</td>"), page.npos);
  EXPECT_NE(page.find("<td class=\"n\">0.003</td>"), page.npos);
  EXPECT_NE(page.find("<b>range</b>: 2 cases of 1 kernel"), page.npos);
  EXPECT_NE(page.find("<b>no power</b>: 1 case of 1 kernel"), page.npos);
  EXPECT_LT(page.find("Why cases are undecided"), page.find("<h2>Operators</h2>"));
  EXPECT_EQ(render_html(records_of(three_lengths()), {.gnuplot = ""}).find("Why"), page.npos);
}

TEST(Html, SaysThatPrintedVariantsAreRefutedFormulas) {
  const std::string page = render_html(sample_records(), {.gnuplot = ""});
  EXPECT_EQ(count(page, "compute the formula as printed in the paper"), 1U);
  EXPECT_EQ(render_html(records_of(three_lengths()), {.gnuplot = ""}).find("as printed in the paper"),
            page.npos);
}

TEST(Summary, QuotesTheWorstCaseOfAKernel) {
  const auto records = sample_records();
  for (const auto& kernel : summarise(records))
    for (const auto* record : kernel.cases) EXPECT_GE(severity(kernel.verdict), severity(record->verdict));
  EXPECT_EQ(overall(records), Verdict::fail);
  EXPECT_EQ(overall(empty_records()), Verdict::not_run);
}

TEST(Summary, DoesNotRoundSharesToTheLimit) {
  EXPECT_EQ(percent(0.497), "49.7 %");
  EXPECT_EQ(percent(0.49999), "49.9 %");
  EXPECT_EQ(percent(0.5), "50 %");
  EXPECT_EQ(percent(0.494), "49 %");
}

TEST(Summary, NaNIsTheWorstNumber) {
  EXPECT_TRUE(worse_number(NAN, 1e300));
  EXPECT_FALSE(worse_number(1e300, NAN));
  EXPECT_FALSE(worse_number(NAN, NAN));
}

TEST(Summary, ShortensContractsToWhatIsNotDefault) {
  EXPECT_EQ(contract_labels({"input=bf16 product=bf16 accumulate=fp32 state=fp32 output=bf16"}).front(),
            "bf16; accumulate, state=fp32");
  EXPECT_EQ(contract_labels({"input=bf16 state=fp32 exp=2ulp"}).front(), "input=bf16; state=fp32; exp=2ulp");
  EXPECT_EQ(contract_labels({"input=bf16 gate_sum=fp32/chunk inverse=powers exp=1ulp"}).front(),
            "input=bf16; inverse=powers");
  EXPECT_EQ(contract_labels({""}).front(), "no contract");
}

}  // namespace
}  // namespace attest
