#include "reports/kill_table.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

KillTable table() {
  KillTable table;
  table.command = "attest check --mutants --seed 1", table.effort = "quick", table.seed = 1;
  table.checks = {"lattice", "split", "value"}, table.rules = {"allclose 1e-2"};
  const auto fail = Verdict::fail, pass = Verdict::pass;
  table.rows = {{"mutant.hla2.mask_strict",
                 "hla2",
                 "the mask is strict",
                 3,
                 {fail, pass, fail},
                 {RuleSays::rejects},
                 ""},
                {"mutant.hla2.state_transposed",
                 "hla2",
                 "S <transposed>",
                 4,
                 {pass, fail, std::nullopt},
                 {RuleSays::accepts_all},
                 ""},
                {"mutant.ahla.exp_fast",
                 "ahla",
                 "a fast exp",
                 9,
                 {pass, pass, Verdict::undecided},
                 {RuleSays::accepts_ordinary},
                 ""},
                {"mutant.ahla.tuning",
                 "ahla",
                 "tuned in place",
                 11,
                 {pass, pass, pass},
                 {RuleSays::accepts_all},
                 "no input is read twice"}};
  return table;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(KillTable, CountsWhatIsRejectedAndSaysWhatSurvives) {
  const std::string page = render_kill_page(table());
  EXPECT_TRUE(has(page, "1 of 3 wrong kernels survives."));  // the equivalent one counts neither way
  EXPECT_TRUE(has(
      page,
      "3 mutants, kernels with one deliberate mistake: 2 rejected by the quick battery, seed 1; 1 more is"));
  EXPECT_TRUE(has(page, "<td>lattice</td><td class=\"n\">1</td><td class=\"n\">0</td>"));
  EXPECT_TRUE(has(page, "<td>split</td><td class=\"n\">1</td><td class=\"n\">1</td>"));
  EXPECT_TRUE(has(page, "<td>allclose 1e-2</td><td class=\"n\">2</td><td class=\"n\">1</td>"));
  EXPECT_TRUE(has(page, "<td>ahla</td><td class=\"n\">0</td><td class=\"n\">1</td>"));
  EXPECT_TRUE(has(page, "survives"));
  EXPECT_TRUE(has(page, "no input is read twice"));
  EXPECT_TRUE(has(page, "S &lt;transposed&gt;"));
}

TEST(KillTable, SaysThatNoneSurvivesOnlyWhenNoneDoes) {
  KillTable all = table();
  all.rows[2].checks[0] = Verdict::fail;
  EXPECT_TRUE(has(render_kill_page(all), "All 3 wrong kernels are rejected."));
  EXPECT_FALSE(has(render_kill_page(all), ">survives</span>"));
  all.rows.clear();
  EXPECT_TRUE(has(render_kill_page(all), "No mutant was run."));
}

TEST(KillTable, TakesASuspicionForNoKill) {
  KillTable one = table();
  one.rows = {one.rows[2]};
  one.rows[0].checks[1] = Verdict::suspect;
  EXPECT_TRUE(has(render_kill_page(one), "1 of 1 wrong kernels survives."));
}

}  // namespace
}  // namespace attest
