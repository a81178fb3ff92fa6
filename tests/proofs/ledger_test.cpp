// What the ledger is expected to say. The program that decides reads none of this.
#include "proofs/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reference/forms/operator.hpp"

namespace attest {
namespace {

struct Expected {
  const char* id;
  const char* verdict;
  const char* corrected = "";  // where refuted and a correction stands in the ledger
  const char* instead = "";    // where it can be said what the printed formula computes
  Shape smallest = {};         // of the counterexample
};

// Published claims; every law and every claim of our own holds.
const std::vector<Expected> expected = {
    {"hla.thm3.1", "holds"},
    {"hla.thm3.1.matrix", "holds"},
    {"hla.sec3.1.unmasked", "holds"},
    {"hla.op4.1.associative", "holds"},
    {"hla.op4.1.identity", "holds"},
    {"hla.op4.1.scan", "holds"},
    {"hla.op4.2.unmasked.associative", "holds"},
    {"hla.op4.2.unmasked.scan", "holds"},
    {"hla.op4.2.masked.associative", "refuted", "holds", "", {3, 1, 1}},
    {"hla.op4.2.masked.identity", "holds"},
    {"hla.op4.2.masked.fold", "refuted", "holds", "holds", {2, 1, 1}},
    {"hla.thm4.1.undecayed", "holds"},
    {"hla.thm4.1.decay", "refuted", "holds", "", {2, 1, 1}},
    {"hla.sec4.3", "refuted", "holds", "holds", {2, 1, 1}},
    {"hla.sec4.3.second", "refuted", "holds", "", {2, 1, 1}},
    {"hla.eq3.2.metric", "holds"},
    {"hla.eq3.2.tied", "holds"},
    {"hla.alg1.undecayed", "holds"},
    {"hla.alg1.decay", "refuted", "holds", "", {3, 1, 1}},
    {"hla.ridge", "holds"},
    {"hla.fig1c", "refuted", "holds", "holds", {2, 1, 1}},
    {"hla.sec5.2.packed", "holds"},
    {"hla.sec5.2.multi_query", "holds"},
    {"hla.sec5.2.state_size", "holds"},
    {"hla.backward", "holds"},
    {"hla.backward.decay", "refuted", "holds", "", {2, 1, 1}},
    {"ahla.thm6.1", "holds"},
    {"ahla.thm6.1.decay", "holds"},
    {"ahla.thm6.1.matrix", "holds"},
    {"ahla.op6.2.associative", "holds"},
    {"ahla.op6.2.identity", "holds"},
    {"ahla.op6.2.scan", "holds"},
    {"ahla.op6.2.decay.associative", "refuted", "holds", "", {3, 1, 1}},
    {"ahla.op6.2.decay.identity", "holds"},
    {"ahla.op6.2.decay.scan", "refuted", "holds", "", {5, 1, 1}},
    {"ahla.op6.2.decay.fold", "holds"},
    {"ahla.fig2c", "refuted", "holds", "holds", {2, 1, 1}},
    {"ahla.backward", "holds"},
    {"ahla.backward.decay", "refuted", "holds", "", {5, 1, 1}},
    {"hla3.thm7.1", "refuted", "holds", "holds", {2, 1, 1}},
    {"hla3.sec7.decay", "holds"},
    {"hla3.eq7.5", "holds"},
    {"hla3.thm7.2.associative", "holds"},
    {"hla3.thm7.2.identity", "holds"},
    {"hla3.thm7.2.scan", "holds"},
    {"hla3.alg3.decay.operator", "refuted", "holds", "holds", {2, 1, 1}},
    {"hla3.alg3.decay.associative", "refuted", "holds", "", {3, 1, 1}},
    {"hla3.alg3.decay.scan", "refuted", "holds", "", {2, 1, 1}},
    {"hla3.maps.needed", "holds"},
    {"hla3.maps.smaller", "holds"},
    {"hla3.backward", "holds"},
    {"lla.partition.cover", "holds"},
    {"lla.partition.count", "holds"},
    {"lla.partition.level", "holds"},
    {"lla.partition.levels", "holds"},
    {"lla.recurrence.plain", "holds"},
    {"lla.recurrence.mamba2", "holds"},
    {"lla.recurrence.gated_delta", "holds"},
    {"lla.chunk.plain", "holds"},
    {"lla.chunk.mamba2", "holds"},
    {"lla.chunk.gated_delta", "holds"},
    {"lla.reduce.plain", "holds"},
    {"lla.reduce.mamba2", "holds"},
    {"lla.reduce.gated_delta", "holds"},
    {"lla.rank.block", "holds"},
    {"lla.rank.key", "holds"},
    {"lla.rank.query", "holds"},
    {"lla.rank.h2", "refuted", "holds", "", {8, 1, 1}},
    {"lla.cost.live", "holds"},
    {"lla.cost.states", "holds"},
    {"lla.cost.operations", "holds"},
    {"delta.wy.product", "holds"},
    {"delta.wy.ut", "holds"},
    {"delta.wy.chunk", "holds"},
    {"delta.wy.chunk.gated", "holds"},
    {"compose.hla2", "holds"},
    {"compose.hla2.direct", "holds"},
    {"compose.ahla", "holds"},
    {"compose.hla3", "holds"},
    {"compose.hla3.printed", "holds"},
    {"chunk.hla2", "holds"},
    {"chunk.ahla", "holds"},
    {"chunk.hla3", "holds"},
};

bool is_law(const Claim& claim) { return claim.id.starts_with("law."); }
std::vector<const Claim*> claims_that(bool laws) {
  std::vector<const Claim*> list;
  for (const Claim& claim : all_claims())
    if (is_law(claim) == laws) list.push_back(&claim);
  return list;
}
LedgerOptions seeded(std::uint64_t seed, bool controls = false) {
  LedgerOptions options;
  options.seed = seed, options.controls = controls;
  return options;
}

TEST(Ledger, PublishedClaimsHaveTheVerdictsThatAreExpected) {
  const auto entries = decide_claims(claims_that(false), seeded(20251127));
  std::set<std::string> seen;
  for (const Entry& entry : entries) {
    SCOPED_TRACE(entry.claim->id);
    const auto found = std::find_if(expected.begin(), expected.end(),
                                    [&](const Expected& e) { return entry.claim->id == e.id; });
    ASSERT_NE(found, expected.end()) << "no expectation";
    seen.insert(entry.claim->id);
    EXPECT_STREQ(claim_verdict_name(entry.decision.verdict), found->verdict);
    EXPECT_STREQ(entry.corrected ? claim_verdict_name(entry.corrected->verdict) : "", found->corrected);
    EXPECT_STREQ(entry.instead ? claim_verdict_name(entry.instead->verdict) : "", found->instead);
    if (entry.decision.counterexample) {
      EXPECT_EQ(entry.decision.counterexample->shape, found->smallest);
    }
  }
  EXPECT_EQ(seen.size(), expected.size()) << "a claim left the ledger";
}

TEST(Ledger, EveryLawHolds) {
  for (const Entry& entry : decide_claims(claims_that(true), seeded(7)))
    EXPECT_EQ(entry.decision.verdict, ClaimVerdict::holds)
        << entry.claim->id << ": " << summary(entry.decision);
}

void expect_controls_refuted(bool laws) {
  for (const Claim* claim : claims_that(laws)) {
    ASSERT_FALSE(claim->controls.empty()) << claim->id << " has no control";
    for (const Control& control : claim->controls)
      EXPECT_EQ(decide(control.statement, claim->id + "/" + control.name, seeded(3)).verdict,
                ClaimVerdict::refuted)
          << claim->id << ": the control survived: " << control.name;
  }
}
TEST(Ledger, EveryControlOfAPublishedClaimIsRefuted) { expect_controls_refuted(false); }
TEST(Ledger, EveryControlOfALawIsRefuted) { expect_controls_refuted(true); }

TEST(Ledger, LawsCoverEveryOperatorAndVariant) {
  std::set<std::string> ids;
  for (const Claim& claim : all_claims()) EXPECT_TRUE(ids.insert(claim.id).second) << claim.id << " twice";
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    const std::string name = "law." + d.name + "." + d.variant + ".";
    if (!d.exact) {
      EXPECT_EQ(ids.count(name + "causal"), 1u);
      continue;
    }
    for (const char* law : {"associative", "identity", "stream", "scan", "chunk", "split", "causal",
                            "gradient", "adjoint", "homogeneous.v"})
      EXPECT_EQ(ids.count(name + law), 1u) << name + law;
    EXPECT_EQ(ids.count(name + "homogeneous.q"), d.degree_q >= 0 ? 1u : 0u) << name;
    EXPECT_EQ(ids.count(name + "homogeneous.k"), d.degree_k >= 0 ? 1u : 0u) << name;
  }
}

TEST(Ledger, EvidenceOfWhatHoldsNamesItsFailureProbability) {
  const auto json = ledger_json(decide_claims(claims_matching("hla.thm3.1"), seeded(1)), 1);
  EXPECT_EQ(json["schema"], "attest.claims/1");
  EXPECT_EQ(json["seed"], 1);
  const auto& claim = json["claims"][0];
  for (const char* key : {"id", "source", "statement", "verdict", "evidence"})
    EXPECT_TRUE(claim.contains(key)) << key;
  const auto& evidence = claim["evidence"];
  EXPECT_EQ(evidence["field"], "Z/(2^61-1)");
  EXPECT_EQ(evidence["instances"], 16 + 2 * 256);  // no tokens, no inputs: once
  EXPECT_EQ(evidence["shapes"]["count"], 272);
  EXPECT_EQ(evidence["shapes"]["tokens"], (nlohmann::ordered_json{0, 16}));
  EXPECT_EQ(evidence["shapes"]["key_dim"], (nlohmann::ordered_json{1, 4}));
  EXPECT_EQ(evidence["shapes"]["value_dim"], (nlohmann::ordered_json{1, 4}));
  EXPECT_EQ(evidence["total_degree"], 5);  // q q k k v
  EXPECT_LE(evidence["failure_probability"], std::exp2(-100));
  EXPECT_GT(evidence["failure_probability"], 0);
}

TEST(Ledger, FailureProbabilityNeverExceedsTwoToTheMinusHundred) {
  for (const char* glob : {"hla.op4*", "hla3.thm7.2*", "hla3.maps.*", "lla.rank*",
                           "law.gated_delta.masked.stream", "law.hla3.*.gradient"})
    for (const Entry& entry : decide_claims(claims_matching(glob), seeded(5)))
      for (const Decision* decision : {&entry.decision, entry.corrected ? &*entry.corrected : nullptr})
        if (decision && decision->verdict == ClaimVerdict::holds) {
          EXPECT_LE(decision->log2_failure, -100) << entry.claim->id;
        }
}

TEST(Ledger, EvidenceOfWhatIsRefutedIsACompleteInstance) {
  const auto json = ledger_json(decide_claims(claims_matching("hla.sec4.3"), seeded(1)), 1)["claims"][0];
  EXPECT_EQ(json["verdict"], "refuted");
  const auto& evidence = json["evidence"];
  EXPECT_EQ(evidence["field"], "Q");
  EXPECT_EQ(evidence["shape"]["tokens"], 2);
  for (const char* field : {"q", "k", "v", "decay"}) EXPECT_TRUE(evidence["inputs"].contains(field)) << field;
  EXPECT_NE(evidence["left"], evidence["right"]);
  EXPECT_NE(evidence["differs_at"]["left"], evidence["differs_at"]["right"]);
  EXPECT_EQ(json["corrected"]["verdict"], "holds");
  EXPECT_EQ(json["instead"]["verdict"], "holds");
}

TEST(Ledger, TheSameSeedGivesTheSameLedgerOnAnyNumberOfThreads) {
  auto ledger = [](std::uint64_t seed, int threads) {
    LedgerOptions options = seeded(seed, true);
    options.threads = threads;
    return ledger_json(decide_claims(claims_matching("ahla.*"), options), seed).dump();
  };
  const std::string once = ledger(11, 1);
  EXPECT_EQ(once, ledger(11, 2));
  EXPECT_NE(once, ledger(12, 1));
}

TEST(Ledger, AGlobThatMatchesNothingGivesNoClaims) { EXPECT_TRUE(claims_matching("no.such.claim").empty()); }

}  // namespace
}  // namespace attest
