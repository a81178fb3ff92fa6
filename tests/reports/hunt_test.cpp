#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "reference/tensor/bad_input.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/hunt_json.hpp"
#include "reports/hunt_junit.hpp"
#include "reports/shard.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

using OrderedJson = nlohmann::ordered_json;
using testing::HasSubstr;

FuzzInput input_of(const std::string& line, std::size_t values) {
  FuzzInput input;
  input.shape = parse_case("hla2 variant=masked " + line);
  input.zeros = true;
  for (std::size_t i = 0; i < values; ++i)
    input.edits.push_back({"q", {0, static_cast<Index>(i), 0, 0}, 1.5});
  return input;
}

Finding finding_of(const std::string& cause, const FuzzInput& shrunk, Index duplicates) {
  Finding finding;
  finding.cause = cause, finding.reason = "1 of 3 elements <differ>, and \x1b[31m";
  finding.first = finding.shrunk = shrunk;
  finding.at_case = 7, finding.shrinking = 30, finding.duplicates = duplicates,
  finding.unseen = duplicates / 2;
  finding.replay = "attest replay --kernel mine " + std::to_string(shrunk.edits.size()) + ".case";
  return finding;
}

HuntReport report_of(const std::vector<Finding>& findings) {
  HuntReport r;
  r.kernel = "mine", r.op = "hla2", r.source = "--plugin ./mine.so";
  r.cases = 20, r.decided = 19, r.replayed = 2, r.unanswered = 1, r.not_replayed = 3, r.seconds = 1.5;
  r.grid = {{"value T=C one", 0.25}}, r.cells = 1, r.best = 0.25, r.best_at = 4;
  r.best_input = input_of("T=3 d=1 dv=1 H=1 B=1 seed=1", 1);
  r.questions[Question::lattice] = {20, 19, 3, 1500000000};
  r.undecided = {{"no certificate", 1}};
  r.findings = findings;
  if (!findings.empty()) r.first_failure = 7;
  return r;
}

OrderedJson document_of(const HuntReport& report) {
  return {{"schema", hunt_schema},
          {"command", "attest fuzz --plugin ./mine.so"},
          {"seed", 3u},
          {"objective", "fail"},
          {"ranks", 1},
          {"interrupted", false},
          {"kernels", OrderedJson::array({to_json(report)})},
          {"corpus", OrderedJson::object()}};
}

OrderedJson joined(const std::vector<HuntReport>& parts) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto of = static_cast<std::int64_t>(parts.size());
    OrderedJson document = document_of(parts[i]);
    document["shard"] = to_json(Shard{static_cast<std::int64_t>(i) + 1, of, 1, "attest fuzz", "1", "sum"});
    paths.push_back(folder / std::to_string(i));
    std::ofstream(paths.back()) << document;
  }
  return join_hunts(paths);
}

TEST(HuntDocument, IsTheSameAfterBeingReadAndWritten) {
  const OrderedJson document =
      document_of(report_of({finding_of("a", input_of("T=4 d=1 dv=1 H=1 B=1 seed=1", 2), 3)}));
  const Hunts read = read_hunts(document, "here");
  EXPECT_EQ(read.command, "attest fuzz --plugin ./mine.so");
  ASSERT_EQ(read.reports.size(), 1u);
  EXPECT_EQ(to_json(read.reports[0]), document["kernels"][0]);
  EXPECT_EQ(render_fuzz_page(read), render_fuzz_page({read.command, false, {read.reports[0]}}));
}

TEST(HuntDocument, ThatIsDamagedIsRefusedWithItsPlace) {
  const OrderedJson whole =
      document_of(report_of({finding_of("a", input_of("T=4 d=1 dv=1 H=1 B=1 seed=1", 2), 3)}));
  const auto refused = [](const OrderedJson& document, const char* why) {
    try {
      read_hunts(document, "x.json");
      ADD_FAILURE() << "read: " << document;
    } catch (const BadInput& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("x.json: "));
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  refused(OrderedJson(), "no hunt");
  refused(OrderedJson::parse("{broken", nullptr, false), "expected JSON");
  OrderedJson other = whole;
  other["schema"] = "attest.fuzz/9";
  refused(other, "attest.fuzz/1");
  other = whole, other["kernels"][0].erase("cases");
  refused(other, "cases");
  other = whole, other["kernels"][0]["findings"][0]["shrunk"] = "attest.corpus/1\nnonsense";
  refused(other, "expected check");
  other = whole, other["kernels"][0]["cases"] = "many";
  refused(other, "cases: \"many\": expected a count");
  other["kernels"][0]["cases"] = -1;
  refused(other, "expected a count");
  other["kernels"][0]["cases"] = 1e18;
  refused(other, "expected a count");
  other = whole, other["kernels"][0]["findings"] = OrderedJson::parse("[3]");
  refused(other, "no hunt");
  other = whole, other["kernels"] = OrderedJson::object();
  refused(other, "kernels: expected a list");
  other = whole, other["kernels"].push_back(other["kernels"][0]);
  refused(other, "twice");
  other = whole, other["kernels"][0]["decided"] = 999999;
  refused(other, "999999 decided of");
  other = whole, other["seed"] = -1;
  refused(other, "seed: expected a whole number");
  for (const auto& [place, value, why] : std::initializer_list<std::array<const char*, 3>>{
           {"/ranks", "-5", "ranks: -5: expected a count"},
           {"/ranks", "0", "ranks: 0: expected 1 or more"},
           {"/ranks", "1.5", "ranks: 1.5: expected a count"},
           {"/corpus/cases", "-1", "cases: -1: expected a count"},
           {"/kernels/0/seconds", "-1", "seconds: -1: expected a number of 0 or more"},
           {"/kernels/0/seconds", "null", "seconds: null: expected a number of 0 or more"},
           {"/kernels/0/largest_ratio", "-0.5", "largest_ratio: -0.5: expected a number of 0 or more"},
           {"/kernels/0/grid/value T=C one", "-0.25", "grid: value T=C one: -0.25: expected 0 or more"},
           {"/kernels/0/checks/lattice/cpu_seconds", "1e300", "cpu_seconds: 1e+300: expected at most 9e9"},
           {"/kernels/0/checks/lattice/decided", "21", "21 decided and 3 failed of 20 asked"},
           {"/kernels/0/checks/lattice/failed", "21", "19 decided and 21 failed of 20 asked"}}) {
    other = whole, other[OrderedJson::json_pointer(place)] = OrderedJson::parse(value);
    refused(other, why);
  }
}

// Whatever the order of the shards.
TEST(HuntShards, OfOneCauseTheSmallestInputIsKeptAndTheOthersAreCounted) {
  const Finding large = finding_of("a", input_of("T=9 d=2 dv=1 H=1 B=1 seed=1", 5), 1),
                small = finding_of("a", input_of("T=3 d=1 dv=1 H=1 B=1 seed=2", 2), 4),
                other = finding_of("b", input_of("T=8 d=1 dv=1 H=1 B=1 seed=3", 3), 0);
  const struct {
    std::vector<HuntReport> parts;
    const char* shard;
  } orders[] = {{{report_of({large}), report_of({small, other})}, "2/2"},
                {{report_of({small}), report_of({other, large})}, "1/2"}};
  for (const auto& [parts, shard] : orders) {
    const OrderedJson kernel = joined(parts)["kernels"][0];
    ASSERT_EQ(kernel["findings"].size(), 2u);
    const OrderedJson& one = kernel["findings"][0];
    EXPECT_EQ(one["cause"], "a");
    EXPECT_EQ(one["shrunk"], to_text({small.shrunk, {}, {}, {}}));
    EXPECT_EQ(one["replay"], small.replay);
    EXPECT_EQ(one["shard"], shard);
    EXPECT_EQ(one["duplicates"], 1 + 4 + 1);
    EXPECT_EQ(one["not_looked_at"], 2);
    EXPECT_EQ(kernel["findings"][1]["duplicates"], 0);
    EXPECT_EQ(kernel["cases"], 40);
    EXPECT_EQ(kernel["unanswered"], 2);
    EXPECT_EQ(kernel["checks"]["lattice"]["asked"], 40);
    EXPECT_DOUBLE_EQ(kernel["checks"]["lattice"]["cpu_seconds"], 3);
  }
}

// As within one hunt (fuzz/finding.hpp).
TEST(HuntShards, FindingsOfOneShrunkInputOrOneWayOfBreakingAreOne) {
  Finding first = finding_of("lattice", input_of("T=3 d=1 dv=1 H=1 B=1 seed=1", 2), 0), second = first;
  second.cause = "value", second.shrunk.question = Question::lattice, second.shrunk.shape.seed = 99;
  EXPECT_EQ(joined({report_of({first}), report_of({second})})["kernels"][0]["findings"].size(), 1u);
  second.shrunk.edits.pop_back();
  EXPECT_EQ(joined({report_of({first}), report_of({second})})["kernels"][0]["findings"].size(), 2u);
  first.reason = second.reason = "the kernel failed: it died of SIGSEGV";
  EXPECT_EQ(joined({report_of({first}), report_of({second})})["kernels"][0]["findings"].size(), 1u);
}

TEST(HuntJunit, HasATestCaseForEachKernelWithItsCausesAndTheLinesThatRepeatThem) {
  const Finding a = finding_of("cause a", input_of("T=4 d=1 dv=1 H=1 B=1 seed=1", 2), 3),
                b = finding_of("cause b", input_of("T=5 d=1 dv=1 H=1 B=1 seed=1", 3), 0);
  HuntReport right = report_of({}), silent = right;
  right.kernel = "right", silent.kernel = "silent", silent.decided = 0;
  const std::string text = render_hunt_junit({"attest fuzz", false, {report_of({a, b}), right, silent}});
  for (const char* part :
       {"tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\"", "<testsuite name=\"hla2\"",
        "<testcase classname=\"hla2\" name=\"mine\"", "FAIL: cause a, and 1 more", "cause b",
        "replay: attest replay --kernel mine 2.case", "replay: attest replay --kernel mine 3.case",
        "case 7; shrunk in 30 questions; 3 more of this cause, 1 of them not looked at closely",
        "&lt;differ&gt;", "name=\"right\" time=\"1.500000\"/>", "type=\"undecided\"", "no certificate: 1",
        "1 not answered before the end"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(render_hunt_junit({"attest fuzz", true, {right}}), HasSubstr("The hunt was interrupted."));
  EXPECT_THAT(render_hunt_junit({"attest fuzz", false, {}}), HasSubstr("errors=\"1\""));
}

}  // namespace
}  // namespace attest
