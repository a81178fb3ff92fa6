#include "reports/markdown.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "reports/escape.hpp"
#include "tests/reports/sample_records.hpp"

namespace attest {
namespace {

// Column separators of a table row: bars that no backslash precedes.
std::size_t bars(const std::string& line) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < line.size(); ++i) n += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
  return n;
}

void expect_even_table(const std::string& text) {
  std::istringstream stream(text);
  std::size_t rows = 0;
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("|")) {
      EXPECT_EQ(bars(line), 12U) << line;
      ++rows;
    }
  EXPECT_GE(rows, 3U);
}

TEST(Markdown, ShowsVerdictsFiguresAndReplayLines) {
  const auto text = render_markdown(sample_records());
  expect_even_table(text);
  for (const char* part :
       {"## 1 of 19 kernels fails.", "**FAIL**", "**UNDECIDED**", "0.21 / 3.9 / 7.25", "31 % (no power)",
        "-0x1.ap-1", "replay: `attest check --kernel k --case 'op=gated_delta", "double-double 106 bits"})
    EXPECT_NE(text.find(part), text.npos) << part;
}

TEST(Markdown, OfAnEmptyRunSaysThatNothingWasRun) {
  EXPECT_NE(render_markdown(empty_records()).find("No case was run"), std::string::npos);
}

TEST(Markdown, EscapesNamesFromOutside) {
  const auto text = render_markdown(records_of({hostile_case()}));
  expect_even_table(text);
  EXPECT_EQ(markdown_text("<b>|`*_[x](y)\n"), "&lt;b\\>\\|\\`\\*\\_\\[x\\]\\(y\\) ");
  EXPECT_EQ(markdown_code("a`b|c"), "`a'b\\|c`");
}

}  // namespace
}  // namespace attest
