#include "reference/tensor/contract.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

TEST(Contract, ReadsEveryKeyAndPrintsTheSameLine) {
  const std::string line =
      "input=bf16 product=bf16 accumulate=fp32/truncate intermediate=fp16 state=tf32 gate_sum=fp64/global "
      "inverse=powers exp=2ulp output=fp8_e4m3";
  const Contract c = parse_contract(line);
  EXPECT_EQ(to_text(c), line);
  EXPECT_TRUE(c.truncates);
  EXPECT_EQ(c.state, tf32);
  EXPECT_EQ(c.gate_scope, GateScope::global);
  EXPECT_EQ(c.inverse, InverseMethod::powers);
  EXPECT_EQ(c.exp_ulp, 2);
}

TEST(Contract, KeepsTheDefaultsOfWhatIsNotNamed) {
  EXPECT_EQ(to_text(parse_contract("")), to_text(Contract{}));
  EXPECT_EQ(parse_contract("  state=bf16\t").state, bf16);
  EXPECT_EQ(parse_contract("state=bf16").product, fp32);
}

struct Refusal {
  const char *line, *why;
};
class BadContract : public ::testing::TestWithParam<Refusal> {};

TEST_P(BadContract, IsRefusedWithTheKeyAndTheExpectation) {
  try {
    parse_contract(GetParam().line);
    FAIL() << "accepted";
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(GetParam().why));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lines, BadContract,
    ::testing::Values(Refusal{"product=bf17", "product is \"bf17\", expected one of fp64"},
                      Refusal{"producer=bf16", "unknown key \"producer\""},
                      Refusal{"product", "\"product\" has no value"}, Refusal{"product=", "product is \"\""},
                      Refusal{"accumulate=fp32/", "accumulate is \"fp32/\""},
                      Refusal{"accumulate=fp32/up", "a format, or a format/truncate"},
                      Refusal{"gate_sum=fp32/head", "/chunk or /global"},
                      Refusal{"inverse=lu", "substitution or powers"}, Refusal{"exp=2", "followed by ulp"},
                      Refusal{"exp=0ulp", "at least 0.5"}, Refusal{"exp=nanulp", "at least 0.5"},
                      Refusal{"exp=infulp", "at least 0.5"}, Refusal{"state=bf16 state=bf16", "given twice"},
                      Refusal{"product=bf16/truncate", "product is"}));

}  // namespace
}  // namespace attest
