// What every subcommand spells, refuses and exits with alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kernel = "check --kernel cpu.linear.chunk16.fp32 ";
constexpr const char* reference = "reference linear --input missing.safetensors --output out.safetensors ";

class Options : public testing::Test {
 protected:
  ProgramRun run(const std::string& arguments) const { return run_attest(folder, arguments); }
  void expect_refused(const std::string& arguments, const std::string& part) const {
    const ProgramRun refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments << '\n' << refused.out;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << arguments << '\n'
                                                                           << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(part)) << arguments;
    EXPECT_EQ(refused.out, "") << arguments;
    EXPECT_EQ(folder.entries(), 2u) << arguments;  // what the program printed
  }
  TemporaryFolder folder;
};

TEST_F(Options, NumbersOutsideTheirRangeAreRefusedBySubcommandAndName) {
  const std::string huge = "18446744073709551616";
  for (const std::string command : {"prove ", kernel})
    for (const std::string& text :
         {std::string("-1"), huge, std::string("1.5"), std::string("0x10"), std::string("''")})
      expect_refused(command + "--seed " + text, "0 .. 18446744073709551615");
  for (const std::string command : {"prove ", kernel, reference})
    for (const std::string& text : {std::string("-1"), std::string("1025"), huge, std::string("two")})
      expect_refused(command + "--threads " + text, "0 .. 1024");
  for (const std::string& text : {std::string("-1"), std::string("0"), huge, std::string("99999999999")})
    expect_refused(reference + ("--chunk " + text), "1 .. 1048576");
  for (const std::string text : {"1", "-1", "10001"}) expect_refused("prove --trials " + text, "2 .. 10000");
}

TEST_F(Options, PathsThatAreEmptyAreRefused) {
  for (const std::string command : {"list ", "prove ", "prove --list ", kernel, reference})
    expect_refused(command + "--json ''", "--json \"\": expected a path");
  expect_refused(std::string(kernel) + "--output ''", "--output \"\": expected a path");
  expect_refused("reference linear --input x --output ''", "--output \"\": expected a path");
  expect_refused("reference linear --output x --input ''", "--input \"\": expected a path");
}

TEST_F(Options, ShapesRefuseKeysThatWouldChangeNothing) {
  expect_refused(std::string(kernel) + "--shape T=8,op=hla2", "\"op=hla2\"");
  expect_refused(std::string(kernel) + "--shape T=8,variant=printed", "variant=printed");
  expect_refused(std::string(kernel) + "--shape T=8,gates=extreme", "gates=extreme");
  expect_refused("check --operator delta --shape T=8,unit_keys=false", "unit_keys=false");
  expect_refused(std::string(kernel) + "--shape T=8,checksum=fnv1a64-0000000000000000", "checksum");
  expect_refused(std::string(kernel) + "--shape T=8,seed=9 --seed 3", "seed=9 beside --seed 3");
  expect_refused(std::string(kernel) + "--unit-keys", "--input");
}

TEST_F(Options, AShapeOfOneVariantChoosesTheKernelsOfThatVariant) {
  const ProgramRun chosen =
      run("check --kernel 'cpu.hla2.*' --shape T=4,d=2,dv=2,variant=unmasked --whole --seed 1");
  EXPECT_THAT(chosen.out, HasSubstr("hla2 unmasked"));
  EXPECT_THAT(chosen.out, Not(HasSubstr("hla2 printed")));
}

TEST_F(Options, TheSeedThatIsPrintedAndRecordedIsTheOneThatWasUsed) {
  const std::string json = (folder / "v.json").string(), shape = "--shape 'T=8 d=2, dv=2'";
  const auto document = [&] { return nlohmann::json::parse(text_of(json)); };
  const ProgramRun of_the_shape = run(std::string(kernel) + "--shape T=8,d=2,dv=2,seed=9 --json " + json);
  EXPECT_THAT(of_the_shape.out, HasSubstr("seed 9\n"));
  EXPECT_EQ(document()["seed"], 9);
  EXPECT_EQ(run(std::string(kernel) + "--shape T=8,seed=9 --seed 9").exit_code, 0);
  EXPECT_THAT(run(std::string(kernel) + shape + " --seed 18446744073709551615").out,
              HasSubstr("seed 18446744073709551615\n"));
  const ProgramRun two = run(std::string(kernel) + "--shape T=8,seed=9 --shape T=8,seed=4 --json " + json);
  EXPECT_THAT(two.out, HasSubstr("seed 4, 9\n"));
  EXPECT_FALSE(document().contains("seed"));
  const ProgramRun of_the_case =
      run(std::string(kernel) + "--case 'linear T=8 seed=5' --seed 6 --json " + json);
  EXPECT_THAT(of_the_case.out, HasSubstr("seed 5\n"));
  EXPECT_THAT(of_the_case.err, HasSubstr("--seed has no effect"));
  const ProgramRun read =
      run(std::string(kernel) +
          "--case 'linear input=reports/baseline/activations/minilm_layer.safetensors T=8' --json " + json);
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(read.out, Not(HasSubstr("seed")));
  EXPECT_FALSE(document().contains("seed"));
}

TEST_F(Options, EveryHelpSaysTheSameExitCodes) {
  for (const std::string command : {"", "list ", "prove ", "reference ", "check ", "report ", "compare "})
    EXPECT_THAT(
        run(command + "--help").out,
        HasSubstr("Exit codes: 0 all passed, 1 something failed, 2 "
                  "usage or bad input, 3 undecided or suspect and none "
                  "failed, 77 nothing could run, 70 internal error, 130 interrupted before anything failed."))
        << command;
}

TEST_F(Options, ARefutedClaimIsDecided) { EXPECT_EQ(run("prove --claim hla.sec4.3 --seed 1").exit_code, 0); }

TEST_F(Options, ListsOfClaimsKernelsAndRecipesAreWritten) {
  const std::string json = (folder / "list.json").string();
  const auto written = [&] { return nlohmann::json::parse(text_of(json)); };
  EXPECT_EQ(run("prove --list --claim hla.fig1c --json " + json).exit_code, 0);
  ASSERT_EQ(written()["claims"].size(), 1u);
  EXPECT_EQ(written()["claims"][0]["id"], "hla.fig1c");
  const ProgramRun kernels = run("list --kernels --json " + json);
  EXPECT_THAT(kernels.out, HasSubstr("cpu.linear.chunk16.fp32"));
  EXPECT_THAT(kernels.out, HasSubstr("input=bf16"));
  EXPECT_EQ(written()["kernels"].size() + 1,
            static_cast<std::size_t>(std::count(kernels.out.begin(), kernels.out.end(), '\n')));
  const ProgramRun recipes = run("list --recipes --json " + json);
  const auto document = written();
  for (const auto& recipe : document["recipes"]) {
    EXPECT_THAT(recipes.out, HasSubstr(recipe["name"]));
    EXPECT_THAT(recipes.out, HasSubstr(recipe["description"]));
  }
  EXPECT_EQ(run("list --kernels --recipes").exit_code, 2);
}

TEST_F(Options, AShapeThatNoMemoryHoldsNamesTheField) {
  expect_refused(std::string(kernel) + "--whole --shape T=65536,d=1,dv=4096,H=4096",
                 "v [1, 65536, 4096, 4096]");
}

TEST_F(Options, AFileThatNoMemoryHoldsNamesTheFieldToo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer reserves more than any limit allows";
#endif
  const std::vector<std::byte> half(2 << 24);
  SafetensorsWriter writer;
  for (const char* name : {"q", "k", "v"}) writer.add(name, Dtype::f16, {1 << 22, 4}, half);
  const std::string in = (folder / "in").string(), err = (folder / "stderr").string();
  writer.write(in);
  const std::string line = std::string("ulimit -v 400000; ") + std::getenv("ATTEST_PROGRAM") +
                           " reference linear --rows 0:1 --input " + in + " --output " +
                           (folder / "out").string() + " 2>" + err;
  EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 2);
  EXPECT_THAT(text_of(err), HasSubstr("shape [4194304, 4] needs 134217728 bytes as F64"));
}

TEST_F(Options, NotesSayWhatAUserMayNotExpect) {
  write_fields(folder / "nan.safetensors",
               {{"q", {{2, 1}, {1, 2}}}, {"k", {{2, 1}, {1, 2}}}, {"v", {{2, 1}, {1, std::nan("")}}}});
  const std::string input = "--input " + (folder / "nan.safetensors").string(),
                    output = " --output " + (folder / "o").string();
  for (const std::string& line : {"reference linear " + input + output, kernel + input}) {
    const ProgramRun noted = run(line);
    EXPECT_THAT(noted.err, HasSubstr("attest: note: ")) << line;
    EXPECT_THAT(noted.err, HasSubstr("\"v\" holds 1 NaN")) << line;
    EXPECT_EQ(std::count(noted.err.begin(), noted.err.end(), '\n'), 1) << noted.err;
  }
  const std::string without = "epsilon has no effect without normalize=true";
  EXPECT_THAT(run(std::string(kernel) + "--shape T=4,epsilon=1/2").err, HasSubstr(without));
  EXPECT_THAT(run(std::string(kernel) + "--case 'linear T=4 epsilon=1/2'").err, HasSubstr(without));
  EXPECT_THAT(run("reference linear " + input + output + " --option epsilon=1/2").err, HasSubstr(without));
  EXPECT_EQ(run(std::string(kernel) + "--shape T=4,epsilon=1/2,normalize=true").err, "");
}

}  // namespace
}  // namespace attest
