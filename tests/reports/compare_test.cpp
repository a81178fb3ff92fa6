#include "reports/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/reports/sample_records.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

// One case before and after; T = 256, for which noise is a factor of 1.71.
struct Pair {
  Records before = records_of({sample_records().cases[4]}), after = before;
  CaseRecord& was() { return before.cases[0]; }
  CaseRecord& is() { return after.cases[0]; }
  CaseChange change() const { return compare_records(before, after).cases.at(0); }
};

void scale(CaseRecord& record, double factor) {
  Quantiles& ratio = record.error.at("o").ratio;
  ratio.p50 *= factor, ratio.p99 *= factor, ratio.max *= factor;
}

TEST(Compare, FindsARunEqualToItself) {
  const Records records = sample_records();
  const Comparison comparison = compare_records(records, records);
  EXPECT_EQ(comparison.common, records.end.cases);
  EXPECT_EQ(comparison.regressions, 0);
  for (const CaseChange& change : comparison.cases) EXPECT_EQ(change.change, Change::same) << change.what;
}

TEST(Compare, CallsAVerdictThatBecameWorseARegression) {
  const Verdict order[] = {Verdict::pass, Verdict::suspect, Verdict::undecided, Verdict::not_run,
                           Verdict::fail};
  for (int before = 0; before < 5; ++before)
    for (int after = 0; after < 5; ++after) {
      Pair pair;
      pair.was().verdict = order[before], pair.is().verdict = order[after];
      EXPECT_EQ(pair.change().regression, after > before) << before << after;
      EXPECT_EQ(pair.change().change, after > before   ? Change::worse
                                      : after < before ? Change::better
                                                       : Change::same);
    }
}

TEST(Compare, CallsAccuracyBeyondNoiseADriftAndNothingLess) {
  Pair pair;
  ASSERT_EQ(*pair.was().tokens, 256);
  EXPECT_NEAR(drift_factor(256), 1.71, 0.01);
  scale(pair.is(), 1.6);
  EXPECT_EQ(pair.change().change, Change::same);
  scale(pair.is(), 1.2);
  EXPECT_TRUE(pair.change().regression);
  EXPECT_THAT(pair.change().what, HasSubstr("error/bound p99"));
  std::swap(pair.before, pair.after);
  EXPECT_FALSE(pair.change().regression);
  EXPECT_EQ(pair.change().change, Change::better);
  Pair exact;  // no error before, some after
  exact.was().error["o"] = {};
  EXPECT_TRUE(exact.change().regression);
  Pair undefined;
  undefined.is().error.at("o").ratio.p99 = NAN;
  EXPECT_TRUE(undefined.change().regression);
}

// The definition against a simulation: half-normal errors drawn anew stay within the noise, a kernel twice as bad does not.
TEST(Compare, NoiseHoldsForErrorsDrawnAnew) {
  std::uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  const auto quantiles = [&](double size) {
    std::vector<double> errors(1024);
    for (double& e : errors)
      e = size * std::abs(std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform()));
    std::sort(errors.begin(), errors.end());
    return Quantiles{errors[511], errors[1013], errors[1023]};
  };
  Pair pair;
  pair.was().tokens = pair.is().tokens = 1024;
  for (int i = 0; i < 1000; ++i) {
    pair.was().error["o"].ratio = quantiles(0.1), pair.is().error["o"].ratio = quantiles(0.1);
    ASSERT_EQ(pair.change().change, Change::same) << i;
  }
  pair.is().error["o"].ratio = quantiles(0.2);
  EXPECT_TRUE(pair.change().regression);
}

TEST(Compare, ClaimsNoDriftAcrossContracts) {
  Pair pair;
  pair.is().kernel.contract = "input=fp16";
  scale(pair.is(), 100);
  EXPECT_EQ(pair.change().change, Change::other_contract);
  EXPECT_FALSE(pair.change().regression);
}

TEST(Compare, NamesNewAndVanishedCases) {
  const Records all = sample_records();
  Records fewer = all;
  fewer.cases.erase(fewer.cases.begin());
  const Comparison lost = compare_records(all, fewer), gained = compare_records(fewer, all);
  EXPECT_EQ(lost.regressions, 1);
  EXPECT_EQ(lost.cases.back().change, Change::vanished);
  EXPECT_EQ(gained.regressions, 0);
  EXPECT_EQ(gained.cases.front().change, Change::appeared);
  Records none = records_of({}), failing = records_of({hostile_case()});
  EXPECT_EQ(compare_records(none, failing).regressions, 1);  // new, and it fails
}

TEST(Compare, TakesAFileByItsChecksumWhateverItsPath) {
  Pair pair;
  pair.was().case_line = "hla2 variant=masked input=a/x.safetensors checksum=fnv1a64-85944171f73967e8 T=4";
  pair.is().case_line = "hla2 variant=masked input=/b/y.safetensors checksum=fnv1a64-85944171f73967e8 T=4";
  EXPECT_EQ(compare_records(pair.before, pair.after).common, 1);
  pair.is().case_line = "hla2 variant=masked input=a/x.safetensors checksum=fnv1a64-85944171f73967e9 T=4";
  EXPECT_EQ(compare_records(pair.before, pair.after).common, 0);
}

TEST(Compare, CallsAnUnfinishedLaterRunARegression) {
  Pair pair;
  pair.after.complete = false;
  EXPECT_EQ(compare_records(pair.before, pair.after).regressions, 1);
  EXPECT_EQ(compare_records(pair.after, pair.before).regressions, 0);
  EXPECT_THAT(render_comparison(compare_records(pair.before, pair.after)), HasSubstr("did not finish"));
}

TEST(Compare, WritesWhatItFound) {
  Records after = sample_records();
  after.cases[0].verdict = Verdict::fail;
  const Records before = sample_records();
  const Comparison comparison = compare_records(before, after);
  EXPECT_THAT(render_comparison(comparison), HasSubstr("REGRESSION  " + after.cases[0].kernel.name));
  const auto json = nlohmann::json::parse(comparison_json(comparison));
  EXPECT_EQ(json["schema"], "attest.compare/1");
  EXPECT_EQ(json["regressions"], 1);
  ASSERT_EQ(json["changes"].size(), 1u);
  EXPECT_EQ(json["changes"][0]["after"], "fail");
}

}  // namespace
}  // namespace attest
