#include "reference/cases/case.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/forms/operator.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

std::string message_of(std::string_view line) {
  try {
    parse_case(line);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(Case, IsPrintedAsTheLineThatGivesItBack) {
  for (const std::string line :
       {"hla2 variant=masked T=64 d=16 dv=8 H=2 B=1 recipe=gaussian gates=published seed=123",
        "hla2 variant=printed T=0 d=1 dv=1 H=6 B=1 Hq=2 Hk=1 Hv=3 normalize=true epsilon=1/1024 ridge=1/10 "
        "scale=-3 "
        "decay=3/4 recipe=heavy gates=extreme seed=18446744073709551615",
        "delta variant=masked T=9 d=4 dv=4 H=1 B=1 packed=0:0:5:9 unit_keys=true recipe=sparse gates=none "
        "seed=0",
        "gated_delta variant=masked input=a%20file%27s%25.safetensors T=64 unit_keys=true",
        "mamba2 variant=masked input=layer.safetensors checksum=fnv1a64-85944171f73967e8",
        "mamba2 variant=masked input=layer.safetensors"})
    EXPECT_EQ(to_text(parse_case(line)), line);
}

TEST(Case, FillsInDefaultsAndReadsDecimals) {
  EXPECT_EQ(to_text(parse_case("  hla2   T=8 decay=0.75\tseed=7 ")),
            "hla2 variant=masked T=8 d=32 dv=32 H=1 B=1 decay=3/4 recipe=gaussian gates=published seed=7");
}

TEST(Case, KeepsSpecialCharactersOfAPath) {
  EXPECT_EQ(parse_case("delta input=a%20file%27s%25.safetensors").input, "a file's%.safetensors");
  Case c;
  c.op = "delta", c.input = "b c,d\n\"e\\";
  EXPECT_EQ(parse_case(to_text(c)).input, c.input);
}

TEST(Case, RefusesAZeroByteInAPathHoweverItIsWritten) {
  const std::string_view raw("delta input=a\0b", 15);
  EXPECT_THROW(parse_case(raw), BadInput);
  EXPECT_THROW(parse_case("delta input=a%00b"), BadInput);
  EXPECT_EQ(parse_case("delta input=a%01b").input,
            "a\x01"
            "b");
}

TEST(Case, NamesTheTokenThatIsWrongAndWhatWasExpected) {
  const std::pair<const char*, std::vector<const char*>> lines[] = {
      {"", {"an operator"}},
      {"T=3 hla2", {"\"T=3\"", "operator first"}},
      {"hla2", {"\"T\"", "T=64"}},
      {"hla2 T=", {"\"T=\"", "integer"}},
      {"hla2 T=-1", {"\"T=-1\"", "0 .. 1048576"}},
      {"hla2 T=64x", {"\"T=64x\"", "integer"}},
      {"hla2 T=4 d=0", {"\"d=0\"", "1 .. 4096"}},
      {"hla2 T=4 T=5", {"\"T=5\"", "once"}},
      {"hla2 T=4 tau=5", {"\"tau=5\"", "KEY=VALUE"}},
      {"hla2 T=4 banana", {"\"banana\"", "KEY=VALUE"}},
      {"hla2 T=4 decay=half", {"\"decay=half\"", "3/4"}},
      {"hla2 T=4 normalize=yes", {"\"normalize=yes\"", "true or false"}},
      {"hla2 T=4 recipe=nice", {"\"recipe=nice\"", "gaussian"}},
      {"hla2 T=4 gates=nice", {"\"gates=nice\"", "published"}},
      {"hla2 T=4 seed=18446744073709551616", {"seed=", "integer"}},
      {"hla2 T=4 H=4 Hk=3", {"\"H=4\"", "multiple"}},
      {"hla2 T=4 packed=0:3", {"packed", "T=4"}},
      {"hla2 T=4 packed=0:3:2:4", {"packed", "integer"}},
      {"hla2 T=4 packed=4", {"packed", "boundaries"}},
      {"hla2 input=a.safetensors seed=3", {"\"seed\"", "input="}},
      {"hla2 T=4 checksum=fnv1a64-85944171f73967e8", {"checksum", "input="}},
      {"hla2 input=a checksum=1", {"\"checksum=1\"", "fnv1a64-"}},
      {"hla2 input=a%2", {"input=", "%XX"}},
      {"hla2 input=", {"input=", "path"}},
  };
  for (const auto& [line, parts] : lines)
    for (const char* part : parts) EXPECT_THAT(message_of(line), HasSubstr(part)) << line;
}

TEST(Case, TakesAListWithCommasOrSpacesAndSaysWhichKeysItHeld) {
  for (const char* list : {"T=8,d=4,seed=7", "T=8 d=4 seed=7", " T=8, d=4 ,\tseed=7 "}) {
    Case c;
    EXPECT_EQ(set_from_list(c, list, "list"), (std::vector<std::string>{"T", "d", "seed"}));
    EXPECT_EQ(*c.tokens, 8);
    EXPECT_EQ(c.key_dim, 4);
    EXPECT_EQ(c.seed, 7u);
  }
  Case c;
  EXPECT_THROW(set_from_list(c, "T=8;d=4", "list"), BadInput);
}

TEST(Case, NamesTheFieldForWhichThereIsNoMemory) {
  const Case c = parse_case("linear T=65536 d=1 dv=4096 H=4096");
  try {
    draw_problem(c, find_operator(c.op)->declaration());
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("v [1, 65536, 4096, 4096]"));
  }
}

TEST(Case, DrawsTheFieldsThatTheOperatorTakes) {
  const Case c = parse_case("log_linear_gated_delta T=9 d=4 dv=3 H=2 B=2 Hk=1 seed=5");
  const Problem problem = draw_problem(c, find_operator(c.op)->declaration());
  EXPECT_EQ(problem.fields.at("q").shape, (std::vector<Index>{2, 9, 2, 4}));
  EXPECT_EQ(problem.fields.at("k").shape, (std::vector<Index>{2, 9, 1, 4}));
  EXPECT_EQ(problem.fields.at("v").shape, (std::vector<Index>{2, 9, 2, 3}));
  EXPECT_EQ(problem.fields.at("g").shape, (std::vector<Index>{2, 9, 2}));
  EXPECT_EQ(problem.fields.at("level_scales").shape, (std::vector<Index>{2, 9, 2, 5}));
  EXPECT_EQ(draw_problem(parse_case("linear T=3 d=4"), find_operator("linear")->declaration()).fields.size(),
            3u);
}

}  // namespace
}  // namespace attest
