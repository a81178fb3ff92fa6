// attest reference and attest list as a user meets them: files, metadata, and one line for everything that is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

Tensor filled(std::vector<Index> shape, double value = 1) {
  Tensor tensor{std::move(shape), {}};
  tensor.data.assign(static_cast<std::size_t>(element_count(tensor.shape)), value);
  return tensor;
}

// Two sequences of four tokens, two heads.
Tensors good_fields() {
  return {{"q", filled({1, 4, 2, 3})},      {"k", filled({1, 4, 2, 3})},
          {"v", filled({1, 4, 2, 2})},      {"alpha", filled({1, 4, 2}, 0.5)},
          {"beta", filled({1, 4, 2}, 0.5)}, {"level_scales", filled({1, 4, 2, 3})}};
}

struct BadCase {
  std::string name, op, options;
  std::string message;   // after "attest: ", IN for the input file
  Tensors spoiled = {};  // in place of the good fields
};
void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

const Tensor absent{{-1}, {}};

Tensor spoiled(Tensor tensor, std::size_t at, double value) {
  tensor.data[at] = value;
  return tensor;
}

const std::string every_field =
    "alpha, beta, cu_seqlens, decay, dfinal_state.C, dfinal_state.E, dfinal_state.F, dfinal_state.G, "
    "dfinal_state.P, dfinal_state.S, dfinal_state.SK, "
    "dfinal_state.SQ";

const std::vector<BadCase> bad_cases{
    {"MissingField",
     "linear",
     "",
     R"(IN: tensor "k": missing, expected [B, T, H, D] or [T, D] for linear)",
     {{"k", absent}}},
    {"MissingGate",
     "mamba2",
     "",
     R"(IN: tensor "g": missing, expected "g" (log-gate) or "alpha" (linear gate) [B, T, H] for mamba2)",
     {{"alpha", absent}}},
    {"MissingBeta",
     "delta",
     "",
     R"(IN: tensor "beta": missing, expected [B, T, H] or [T] for delta)",
     {{"beta", absent}}},
    {"BothGates",
     "mamba2",
     "",
     R"(IN: tensor "g": given together with "alpha", expected one of the two)",
     {{"g", filled({1, 4, 2}, -1)}}},
    {"BothGatesWhereNoneIsTaken",
     "linear",
     "",
     R"(IN: tensor "g": given together with "alpha", expected one of the two)",
     {{"g", filled({1, 4, 2}, -1)}}},
    {"ZeroHeads",
     "linear",
     "",
     R"(IN: tensor "q": shape [1, 4, 0, 3], expected [B, T, H, D] or [T, D] with H at least 1)",
     {{"q", filled({1, 4, 0, 3})}}},
    {"WrongRank",
     "linear",
     "",
     R"(IN: tensor "q": shape [4, 2, 3], expected [B, T, H, D] or [T, D])",
     {{"q", filled({4, 2, 3})}}},
    {"TokensDiffer",
     "linear",
     "",
     R"(IN: tensor "v": shape [1, 5, 2, 2], expected [B, T, H, D] or [T, D] with B=1 T=4 as in "q")",
     {{"v", filled({1, 5, 2, 2})}}},
    {"KeyDimDiffers",
     "linear",
     "",
     R"(IN: tensor "k": last size 2, expected 3 as in "q")",
     {{"k", filled({1, 4, 2, 2})}}},
    {"HeadsDoNotDivide",
     "linear",
     "",
     R"(IN: tensor "k": 2 heads, expected a number that divides H=3)",
     {{"q", filled({1, 4, 3, 3})}}},
    {"GateHeads",
     "mamba2",
     "",
     R"(IN: tensor "alpha": 1 heads, expected H=2)",
     {{"alpha", filled({1, 4, 1}, 0.5)}}},
    {"LogGatePositive",
     "mamba2",
     "",
     R"(IN: tensor "g": the value 0.25 at flat index 0, expected a log-gate <= 0 (-inf is legal))",
     {{"alpha", absent}, {"g", filled({1, 4, 2}, 0.25)}}},
    {"LogGateNaN",
     "mamba2",
     "",
     R"(IN: tensor "g": the value nan at flat index 5, expected a log-gate <= 0 (-inf is legal))",
     {{"alpha", absent}, {"g", spoiled(filled({1, 4, 2}, -1), 5, nan_value)}}},
    {"AlphaNaN",
     "mamba2",
     "",
     R"(IN: tensor "alpha": the value nan at flat index 2, expected a linear gate in [0, 1])",
     {{"alpha", spoiled(filled({1, 4, 2}, 0.5), 2, nan_value)}}},
    {"AlphaAboveOne",
     "mamba2",
     "",
     R"(IN: tensor "alpha": the value 2 at flat index 7, expected a linear gate in [0, 1])",
     {{"alpha", spoiled(filled({1, 4, 2}, 0.5), 7, 2)}}},
    {"BetaNaN",
     "delta",
     "",
     R"(IN: tensor "beta": the value nan at flat index 0, expected a finite number)",
     {{"beta", spoiled(filled({1, 4, 2}, 0.5), 0, nan_value)}}},
    {"LevelScalesNaN",
     "log_linear",
     "",
     R"(IN: tensor "level_scales": the value inf at flat index 3, expected a finite number)",
     {{"level_scales", spoiled(filled({1, 4, 2, 3}, 1), 3, infinity)}}},
    {"TooFewLevels",
     "log_linear",
     "",
     R"(IN: tensor "level_scales": 2 levels, expected at least 3 for positions up to 3)",
     {{"level_scales", filled({1, 4, 2, 2})}}},
    {"TooFewLevelsAtPosition",
     "log_linear",
     "",
     R"(IN: tensor "level_scales": 3 levels, expected at least 4 for positions up to 7)",
     {{"initial_state.S", filled({1, 2, 4, 3, 2}, 0)}, {"initial_state.position", filled({1}, 4)}}},
    {"StateInADeadLevel",
     "log_linear",
     "",
     R"(IN: tensor "initial_state.S": level 0 of sequence 0 is not zero, expected zeros as position 2 has no such block)",
     {{"initial_state.S", filled({1, 2, 4, 3, 2})}, {"initial_state.position", filled({1}, 2)}}},
    {"StateWithoutPosition",
     "log_linear",
     "",
     R"(IN: tensor "initial_state.position": missing, expected [N] beside the state for log_linear)",
     {{"initial_state.S", filled({1, 2, 4, 3, 2})}}},
    {"PositionWithoutState",
     "log_linear",
     "",
     R"(IN: tensor "initial_state.S": missing, expected [N, H, L, d, dv] as position 2 is not 0)",
     {{"initial_state.position", filled({1}, 2)}}},
    {"DecayNaN",
     "retention",
     "",
     R"(IN: tensor "decay": the value nan at flat index 0, expected a decay in [0, 1])",
     {{"decay", filled({2}, nan_value)}}},
    {"DecayShape",
     "retention",
     "",
     R"(IN: tensor "decay": shape [3], expected [H] = [2])",
     {{"decay", filled({3}, 0.5)}}},
    {"DecayTwice",
     "retention",
     "--option decay=1/2",
     R"(IN: tensor "decay": given together with the option decay, expected one of the two)",
     {{"decay", filled({2}, 0.5)}}},
    {"SequencesDecrease",
     "linear",
     "",
     R"(IN: tensor "cu_seqlens": decreases from 3 to 2 at index 2, expected ascending ends)",
     {{"cu_seqlens", {{4}, {0, 3, 2, 4}}}}},
    {"SequencesEndEarly",
     "linear",
     "",
     R"(IN: tensor "cu_seqlens": ends with 3, expected T=4)",
     {{"cu_seqlens", {{3}, {0, 2, 3}}}}},
    {"SequencesStartLate",
     "linear",
     "",
     R"(IN: tensor "cu_seqlens": starts with 1, expected 0)",
     {{"cu_seqlens", {{2}, {1, 4}}}}},
    {"SequencesOfABatch",
     "linear",
     "",
     R"(IN: tensor "cu_seqlens": B=2, expected packed sequences in tensors with B=1)",
     {{"q", filled({2, 4, 1, 3})},
      {"k", filled({2, 4, 1, 3})},
      {"v", filled({2, 4, 1, 2})},
      {"cu_seqlens", {{2}, {0, 4}}}}},
    {"StateShape",
     "linear",
     "",
     R"(IN: tensor "initial_state.S": shape [1, 2, 2, 3], expected [N, H, d, dv] = [1, 2, 3, 2])",
     {{"initial_state.S", filled({1, 2, 2, 3})}}},
    {"StateIncomplete",
     "hla2",
     "",
     R"(IN: tensor "initial_state.C": missing, expected [N, H, d, dv] (a state has all its moments) for hla2)",
     {{"initial_state.S", filled({1, 2, 3, 3})}}},
    {"StateWithoutNormaliser",
     "linear",
     "--option normalize=true",
     R"(IN: tensor "initial_state.z": missing, expected [N, H, d] (a state has all its moments) for linear)",
     {{"initial_state.S", filled({1, 2, 3, 2})}}},
    {"NoCotangent", "linear", "--gradient",
     R"(IN: tensor "do": missing, expected the cotangent [B, T, H, dv] or [T, dv] for linear)"},
    {"CotangentShape",
     "linear",
     "--gradient",
     R"(IN: tensor "do": shape [1, 4, 2, 3], expected [B, T, H, dv] = [1, 4, 2, 2])",
     {{"do", filled({1, 4, 2, 3})}}},
    {"UnknownOperator", "lienar", "",
     R"(operator "lienar": unknown, expected of: ahla, delta, gated_delta, hla2, hla3, linear, log_linear, log_linear_gated_delta, log_linear_mamba2, mamba2, retention, softmax)"},
    {"UnknownVariant", "hla2", "--variant maskd",
     R"(variant "maskd": unknown, expected of: masked, unmasked, printed (operator hla2))"},
    {"VariantThatTheOperatorHasNot", "linear", "--variant printed",
     R"(variant "printed": unknown, expected of: masked (operator linear))"},
    {"UnknownForm", "linear", "--form blocked",
     R"(form "blocked": unknown, expected of: direct, stream, scan, chunk, fastest)"},
    {"FormThatTheOperatorHasNot", "softmax", "--form scan",
     "form scan: softmax (masked) has none, expected of: direct, stream"},
    {"DecayedScanThatIsNone", "hla3", "--variant printed --form scan --option decay=1/2",
     "form scan: hla3 (printed) has none with decay, expected of: direct, stream"},
    {"ChunkOfZero", "linear", "--form chunk --chunk 0",
     R"(--chunk "0": expected a whole number of 1 .. 1048576)"},
    {"ChunkNoPowerOfTwo", "log_linear", "--form chunk --chunk 3",
     "chunk 3: expected a power of two for log_linear"},
    {"UnknownAlgebra", "hla2", "--algebra add",
     R"(algebra "add": hla2 has none of that name, expected of: subtract, direct)"},
    {"OptionNotTaken", "linear", "--option ridge=1",
     R"(option "ridge": linear does not take it, expected of: scale, normalize, epsilon)"},
    {"OptionUnknown", "delta", "--option norm=1",
     R"(option "norm": delta does not take it, expected of: scale)"},
    {"OptionWithoutValue", "linear", "--option scale", R"(option "scale": expected KEY=VALUE)"},
    {"OptionNoNumber", "linear", "--option scale=fast",
     "option scale=fast: expected an exact number such as 3/4 or 0.1"},
    {"OptionTwice", "linear", "--option scale=1 --option scale=2",
     R"(option "scale": given twice, expected once)"},
    {"OptionNoFlag", "linear", "--option normalize=yes", "option normalize=yes: expected true or false"},
    {"DecayOptionAboveOne", "retention", "--option decay=5/4",
     "option decay=5/4: expected a number in [0, 1]"},
    {"ExactWithLogGate",
     "mamba2",
     "--precision exact",
     R"(precision exact: field "g" enters as exp(g), expected the linear gate in "alpha")",
     {{"alpha", absent}, {"g", filled({1, 4, 2}, -1)}}},
    {"ExactSoftmax", "softmax", "--precision exact",
     R"(precision exact: softmax has an exponential, expected an operator of rational operations (gates in "alpha"))"},
    {"PrecisionNoNumber", "linear", "--precision high",
     R"(precision "high": expected exact, adaptive, double-double or a number of bits from 24 to 1000000)"},
    {"RowsBeyond", "linear", "--rows 2:5", "rows 2:5: expected A:B with 0 <= A <= B <= T=4"},
    {"RowsNoRange", "linear", "--rows 2", R"(rows "2": expected A:B, half-open token numbers from 0)"},
};

class BadInputOf : public testing::TestWithParam<BadCase> {};

TEST_P(BadInputOf, IsOneLineAndLeavesNoOutput) {
  const TemporaryFolder folder;
  Tensors fields = good_fields();
  for (const auto& [name, tensor] : GetParam().spoiled) {
    if (tensor.shape == absent.shape)
      fields.erase(name);
    else
      fields[name] = tensor;
  }
  const std::string in = (folder / "in.safetensors").string(), out = (folder / "out.safetensors").string();
  write_fields(in, fields);
  const ProgramRun run = run_attest(folder, fmt::format("reference {} --input {} --output {} {}",
                                                        GetParam().op, in, out, GetParam().options));
  std::string expected = GetParam().message;
  if (expected.starts_with("IN:")) expected.replace(0, 2, in);
  EXPECT_EQ(run.err, "attest: " + expected + "\n");
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(folder.entries(), 3u);  // the input and what the program printed
}
INSTANTIATE_TEST_SUITE_P(Reference, BadInputOf, testing::ValuesIn(bad_cases),
                         [](const auto& info) { return info.param.name; });

class ReferenceCommand : public testing::Test {
 protected:
  ProgramRun run(const std::string& arguments) { return run_attest(folder, arguments); }
  ProgramRun reference(const std::string& op, const std::string& more = "") {
    return run(fmt::format("reference {} --input {} --output {} {}", op, in, out, more));
  }
  TemporaryFolder folder;
  std::string in = (folder / "in.safetensors").string(), out = (folder / "out.safetensors").string();
};

TEST_F(ReferenceCommand, RefusesAFieldThatNoOperatorKnows) {
  Tensors fields = good_fields();
  fields["gamma"] = filled({2});
  write_fields(in, fields);
  const ProgramRun refused = reference("linear");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.err.starts_with(
      "attest: " + in + R"(: tensor "gamma": no operator knows this field, expected of: )" + every_field))
      << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1);
}

TEST_F(ReferenceCommand, LeavesOutAFieldOfOtherOperatorsAndSaysSo) {
  write_fields(in, good_fields());
  const ProgramRun run = reference("linear");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "attest: note: linear does not take alpha, beta, level_scales: left out\n");
}

TEST_F(ReferenceCommand, RefusesAWrongDtype) {
  SafetensorsWriter writer;
  const std::vector<std::int64_t> whole(3, 1);
  for (const char* name : {"q", "k", "v"}) writer.add(name, {3, 1}, std::span<const std::int64_t>(whole));
  writer.write(in);
  const ProgramRun run = reference("linear");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(run.err.find("tensor \"k\": ") != std::string::npos && run.err.find("I64") != std::string::npos)
      << run.err;
}

TEST_F(ReferenceCommand, RefusesAPathThatCannotBeWrittenBeforeItComputes) {
  write_fields(in, good_fields());
  for (const std::string place : {"--output /nonexistent/out.safetensors", "--output /tmp"}) {
    const ProgramRun refused = run(fmt::format("reference linear --input {} {}", in, place));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  const ProgramRun refused = reference("hla2", "--json /nonexistent/out.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ReferenceCommand, RefusesAFullDisk) {
  write_fields(in, good_fields());
  const ProgramRun refused = run(fmt::format("reference linear --input {} --output /dev/full", in));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.err.find("/dev/full") != std::string::npos) << refused.err;
}

TEST_F(ReferenceCommand, RefusesATruncatedFile) {
  write_fields(in, good_fields());
  std::filesystem::resize_file(in, 100);
  const ProgramRun refused = reference("linear");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_TRUE(refused.err.starts_with("attest: " + in)) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ReferenceCommand, GivesEmptyOutputsForNoTokens) {
  for (const std::string op : {"linear", "hla3", "log_linear", "delta", "softmax"}) {
    write_fields(in, {{"q", {{0, 2}, {}}},
                      {"k", {{0, 2}, {}}},
                      {"v", {{0, 2}, {}}},
                      {"beta", {{0}, {}}},
                      {"level_scales", {{0, 1}, {}}},
                      {"do", {{0, 2}, {}}}});
    const ProgramRun run = reference(op, "--gradient");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(SafetensorsFile(out).info("o").shape, (std::vector<std::int64_t>{1, 0, 1, 2}));
    EXPECT_EQ(SafetensorsFile(out).info("dq").shape, (std::vector<std::int64_t>{1, 0, 1, 2}));
  }
}

TEST_F(ReferenceCommand, RefusesAMissingFileAndAMissingSubcommand) {
  EXPECT_EQ(reference("linear").exit_code, 2);
  for (const std::string line : {"", "refrence", "reference", "reference linear --input x",
                                 "reference linear --inptu x", "--frobnicate"}) {
    const ProgramRun refused = run(line);
    EXPECT_EQ(refused.exit_code, 2) << line;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_TRUE(refused.err.starts_with("attest: ")) << refused.err;
  }
}

TEST_F(ReferenceCommand, HelpsWithAnExample) {
  for (const std::string line : {"--help", "list --help", "reference --help"}) {
    const ProgramRun help = run(line);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("Example: attest "), std::string::npos) << line;
  }
  EXPECT_EQ(run("--version").out, "attest " ATTEST_VERSION "\n");
}

TEST_F(ReferenceCommand, WritesValueRestRadiusMagnitudeStatesAndMetadata) {
  write_fields(in, good_fields());
  ASSERT_EQ(reference("hla2", "--option decay=3/4 --option normalize=true --option epsilon=0.1").exit_code,
            0);
  const SafetensorsFile file(out);
  for (const char* name :
       {"o", "final_state.S", "final_state.C", "final_state.m", "final_state.G", "final_state.h"})
    for (const char* part : {"", "_low", "_radius", "_magnitude"})
      EXPECT_TRUE(file.has(std::string(name) + part)) << name << part;
  EXPECT_EQ(file.info("o").shape, (std::vector<std::int64_t>{1, 4, 2, 2}));
  EXPECT_EQ(file.info("final_state.m").shape, (std::vector<std::int64_t>{1, 2, 3}));
  const std::map<std::string, std::string> expected{{"program", "attest " ATTEST_VERSION},
                                                    {"operator", "hla2"},
                                                    {"variant", "masked"},
                                                    {"options", "decay=3/4 epsilon=1/10 normalize=true"},
                                                    {"precision", "adaptive"},
                                                    {"method", "mpfi-192"},
                                                    {"form", "chunk"},
                                                    {"chunk", "16"}};
  EXPECT_EQ(file.metadata(), expected);
}

TEST_F(ReferenceCommand, ContinuesWhatItWrote) {
  Tensors fields = good_fields();
  write_fields(in, fields);
  ASSERT_EQ(reference("log_linear_gated_delta").exit_code, 0);
  const SafetensorsFile first(out);
  fields["level_scales"] = filled({1, 4, 2, 4});
  fields["initial_state.S"] = {first.info("final_state.S").shape, first.as_double("final_state.S")};
  fields["initial_state.position"] = {{1}, {static_cast<double>(first.as_int64("final_state.position")[0])}};
  write_fields(in, fields);
  ASSERT_EQ(reference("log_linear_gated_delta").exit_code, 0);
  EXPECT_EQ(SafetensorsFile(out).as_int64("final_state.position")[0], 8);
}

TEST_F(ReferenceCommand, WritesExactFractionsAndGradients) {
  write_fields(
      in,
      {{"q", {{2, 1}, {1, 3}}}, {"k", {{2, 1}, {1, 1}}}, {"v", {{2, 1}, {2, 5}}}, {"do", {{2, 1}, {1, 1}}}});
  ASSERT_EQ(reference("linear", "--precision exact --gradient --option scale=1/3 --json " +
                                    (folder / "out.json").string())
                .exit_code,
            0);
  const auto json = nlohmann::json::parse(text_of(folder / "out.json"));
  EXPECT_EQ(json["schema"], "attest.reference/1");
  EXPECT_EQ(json["tensors"]["o"]["values"], (std::vector<std::string>{"2/3", "7"}));
  EXPECT_EQ(json["tensors"]["dq"]["values"], (std::vector<std::string>{"2/3", "7/3"}));
  EXPECT_EQ(json["tensors"]["dv"]["values"], (std::vector<std::string>{"4/3", "1"}));
  for (const char* name : {"dq", "dk_low", "dv_radius", "dq_magnitude"})
    EXPECT_TRUE(SafetensorsFile(out).has(name)) << name;
}

TEST_F(ReferenceCommand, TakesTheCommittedActivationsForEveryOperator) {
  for (const std::string op : {"linear", "log_linear_gated_delta", "softmax"}) {
    const ProgramRun run =
        run_attest(folder, fmt::format("reference {} --form fastest --rows 20:24 --input "
                                       "reports/baseline/activations/minilm_layer.safetensors --output {}",
                                       op, out));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(SafetensorsFile(out).info("o").shape, (std::vector<std::int64_t>{1, 4, 8, 32}));
  }
}

TEST_F(ReferenceCommand, ComputesByCertifiedDoubleDoubleSums) {
  const std::string input = " --input reports/baseline/activations/minilm_layer.safetensors --output ";
  const auto compute = [&](const std::string& options) {
    const ProgramRun run = run_attest(folder, "reference hla2 --precision " + options + input + out);
    EXPECT_EQ(run.exit_code, 0) << run.err;
  };
  const auto values = [&](const std::string& name) { return SafetensorsFile(out).as_double(name); };
  compute("double-double --rows 0:64");
  const auto o = values("o"), low = values("o_low"), radius = values("o_radius"),
             magnitude = values("o_magnitude");
  EXPECT_EQ(SafetensorsFile(out).metadata().at("method"), "double-double");
  EXPECT_FALSE(SafetensorsFile(out).has("final_state.S"));
  compute("adaptive --rows 0:64");
  const auto exact = values("o"), exact_low = values("o_low"), exact_radius = values("o_radius");
  ASSERT_EQ(o.size(), exact.size());
  for (std::size_t i = 0; i < o.size(); ++i) {
    EXPECT_LE(std::abs((o[i] - exact[i]) + (low[i] - exact_low[i])),
              radius[i] + exact_radius[i] + 0x1p-100 * std::abs(o[i]))
        << i;
    EXPECT_LE(radius[i], 0x1p-60 * magnitude[i]) << i;
  }
  compute("double-double");
  EXPECT_FALSE(SafetensorsFile(out).has("final_state.S"));
  EXPECT_EQ(values("o").size(), 256u * 8 * 32);
}

TEST_F(ReferenceCommand, SaysWhatDoubleDoubleDoesNotReach) {
  write_fields(in, good_fields());
  const ProgramRun states = reference("linear", "--precision double-double");
  EXPECT_EQ(states.exit_code, 0);
  EXPECT_NE(states.err.find("no final_state.X is written"), std::string::npos) << states.err;
  EXPECT_EQ(states.err.find("do not reach"), std::string::npos) << states.err;
  const ProgramRun softmax = reference("softmax", "--precision double-double");
  EXPECT_EQ(softmax.exit_code, 0);
  EXPECT_NE(softmax.err.find("do not reach this, by mpfi-192 instead"), std::string::npos) << softmax.err;
  const ProgramRun delta = reference("delta", "--precision double-double");
  EXPECT_EQ(delta.exit_code, 0);
  EXPECT_EQ(delta.err.find("do not reach"), std::string::npos) << delta.err;
  EXPECT_EQ(reference("linear", "--precision double-double --gradient").exit_code, 2);
}

TEST_F(ReferenceCommand, ListsEveryOperatorInMarkdown) {
  const ProgramRun list = run("list --markdown");
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_NE(list.out.find("| hla3 | printed | direct stream scan(undecayed) chunk(undecayed) |"),
            std::string::npos)
      << list.out;
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 2 + 16);
}

}  // namespace
}  // namespace attest
