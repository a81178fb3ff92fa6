#include "gpu_checks/mutants/mutants.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/mutants/kill_matrix.hpp"
#include "gpu_checks/mutants/usual_rules.hpp"

namespace attest {
namespace {

TEST(Mutants, AreManyDistinctAndOfEveryFamilyThatCanBeHere) {
  EXPECT_GE(edits().size(), 120u);
  std::set<std::string> names;
  std::map<int, int> families;
  std::map<std::string, int> operators;
  for (const Mutant& mutant : mutants()) {
    EXPECT_TRUE(names.insert(mutant.kernel.name).second) << mutant.kernel.name;
    ++families[mutant.info->family], ++operators[mutant.kernel.op];
  }
  std::set<Edit> values;
  for (const EditInfo& info : edits()) EXPECT_TRUE(values.insert(info.edit).second) << info.name;
  for (const MissingFamily& missing : missing_families()) {
    EXPECT_FALSE(families.contains(missing.family));
    families[missing.family] = 5;
  }
  for (int family = 1; family <= 13; ++family) EXPECT_GE(families[family], 5) << family;
  for (const std::string& op : production_operators()) EXPECT_GE(operators[op], 10) << op;
}

// One mutant of every family; the whole matrix is a nightly test.
TEST(Mutants, OfEveryFamilyAreKilledQuickly) {
  for (const char* name :
       {"mutant.hla2.tail_decay_full_chunk", "mutant.gated_delta.exp_start_anchor",
        "mutant.hla2.cross_swapped", "mutant.ahla.state_transposed",
        "mutant.log_linear_mamba2.level_float_log", "mutant.hla3.packed_no_reset",
        "mutant.log_linear_gated_delta.address_gate_head_zero", "mutant.hla2.round_before_subtraction",
        "mutant.ahla.race_order", "mutant.gated_delta.cache_by_address", "mutant.hla2.skip_when_keys_small",
        "mutant.hla3.backward_state_not_carried"}) {
    const KillMatrix matrix = kill_matrix(name, Effort::quick, 1, 1);
    ASSERT_EQ(matrix.rows.size(), 1u) << name;
    EXPECT_TRUE(matrix.rows[0].killed()) << name;
  }
}

// The output of these mutants is right, so the usual rules are asked about the gradients as well.
TEST(Mutants, OfTheBackwardAreSeenByTheirGradientsAlone) {
  const KillMatrix matrix = kill_matrix("mutant.ahla.backward_chunk_last_key", Effort::quick, 1, 1);
  ASSERT_EQ(matrix.rows.size(), 1u);
  for (const BatteryEntry& entry : matrix.rows[0].entries)
    EXPECT_EQ(entry.outcome.verdict == Verdict::fail, std::string(entry.check->name) == "gradient")
        << entry.check->name << ": " << entry.outcome.reason;
  EXPECT_EQ(matrix.rows[0].rules.ordinary, (std::array<bool, 5>{}));
}

std::array<bool, 5> rules(std::vector<double> got, std::vector<double> expected,
                          const Format& format = fp32) {
  return accepted_by(got, expected, format);
}

TEST(UsualRules, FollowTheirDefinitions) {
  using Accepted = std::array<bool, 5>;
  EXPECT_EQ(rules({1, 2}, {1, 2}), (Accepted{true, true, true, true, true}));
  EXPECT_EQ(rules({1.005, 2}, {1, 2}), (Accepted{false, true, true, false, true}));
  EXPECT_EQ(rules({1.005, 2}, {1, 2}, bf16), (Accepted{false, true, true, true, true}));
  EXPECT_EQ(rules({0, 0}, {1e-3, -1e-3}), (Accepted{false, true, false, false, true}));
  EXPECT_EQ(rules({1.5, 2}, {1, 2}), (Accepted{false, false, false, false, false}));
  const double nan = std::nan("");
  EXPECT_EQ(rules({nan}, {nan}), (Accepted{false, false, false, false, false}));
  // One element in 50,000 completely wrong.
  std::vector<double> many(50000, 1.0), wrong = many;
  wrong[7] = 0;
  EXPECT_EQ(rules(wrong, many), (Accepted{false, false, true, false, false}));
}

TEST(KillMatrices, OfOneCheckAskNoOther) {
  const std::vector<const Mutant*> chosen = find_mutants("mutant.hla2.packed_chunks_global");
  for (const auto& [check, kills] : {std::pair("packing", true), std::pair("paths", false)}) {
    const KillMatrix matrix = kill_matrix(chosen, Effort::quick, 1, 1, {}, check);
    ASSERT_EQ(matrix.rows.size(), 1u);
    EXPECT_EQ(matrix.rows[0].entries.size(), battery_checks().size());
    EXPECT_EQ(matrix.rows[0].killed(), kills) << check;
    for (const BatteryEntry& entry : matrix.rows[0].entries)
      EXPECT_EQ(entry.outcome.verdict == Verdict::not_run, entry.check->name != std::string_view(check))
          << entry.check->name;
  }
}

}  // namespace
}  // namespace attest
