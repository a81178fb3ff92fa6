// JUnit, CSV, SARIF and merged records, read back by parsers that are not attest's: Python's for XML and CSV (the test is
// skipped where there is no Python), nlohmann's for JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/tensor/bad_input.hpp"
#include "reports/csv.hpp"
#include "reports/junit.hpp"
#include "reports/markdown.hpp"
#include "reports/merge.hpp"
#include "reports/record_file.hpp"
#include "reports/sarif.hpp"
#include "reports/summary.hpp"
#include "tests/reports/sample_records.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

bool has_python() { return std::system("python3 -c 'import xml.etree, csv, json' >/dev/null 2>&1") == 0; }

// What a Python program prints as JSON about `text`; null when it fails.
Json by_python(const std::string& program, const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text", std::ios::binary) << text;
  std::ofstream(folder / "program.py") << program;
  const std::string line = "cd '" + folder.path().string() + "' && python3 program.py >out 2>err";
  if (std::system(line.c_str()) != 0) return nullptr;
  std::ifstream out(folder / "out");
  return Json::parse(out);
}

// Every element as [tag, attributes, text, children].
Json xml(const std::string& text) {
  return by_python(
      "import json, xml.etree.ElementTree as E\n"
      "def tree(e): return [e.tag, e.attrib, e.text or '', [tree(c) for c in e]]\n"
      "print(json.dumps(tree(E.parse('text').getroot())))\n",
      text);
}

Json csv(const std::string& text) {
  return by_python(
      "import csv, json\n"
      "print(json.dumps(list(csv.reader(open('text', newline='', encoding='utf-8'), strict=True))))\n",
      text);
}

Records with_hostile() {
  Records records = sample_records();
  records.cases.push_back(hostile_case());
  records.end.count(Verdict::fail);
  return records;
}

class Junit : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_python()) GTEST_SKIP() << "no Python to read XML with";
  }
};

std::int64_t elements(const Json& suite, const char* element) {
  std::int64_t found = 0;
  for (const auto& test : suite[3])
    for (const auto& outcome : test[3]) found += outcome[0] == element;
  return found;
}

TEST_F(Junit, IsXmlWhoseCountsAgree) {
  const Records records = with_hostile();
  const Json root = xml(render_junit(records));
  ASSERT_TRUE(root.is_array());
  EXPECT_EQ(root[0], "testsuites");
  std::int64_t tests = 0, failures = 0, errors = 0, skipped = 0;
  for (const auto& suite : root[3]) {
    EXPECT_EQ(suite[0], "testsuite");
    EXPECT_EQ(suite[1]["tests"], std::to_string(suite[3].size()));
    EXPECT_EQ(suite[1]["failures"], std::to_string(elements(suite, "failure")));
    EXPECT_EQ(suite[1]["errors"], std::to_string(elements(suite, "error")));
    EXPECT_EQ(suite[1]["skipped"], std::to_string(elements(suite, "skipped")));
    tests += static_cast<std::int64_t>(suite[3].size()), failures += elements(suite, "failure");
    errors += elements(suite, "error"), skipped += elements(suite, "skipped");
    for (const auto& test : suite[3]) {
      EXPECT_EQ(test[0], "testcase");
      for (const char* attribute : {"classname", "name", "time"})
        EXPECT_TRUE(test[1].contains(attribute)) << test;
      EXPECT_LE(test[3].size(), 1u);
      for (const auto& outcome : test[3]) EXPECT_TRUE(outcome[1].contains("message"));
    }
  }
  const End& end = records.end;
  EXPECT_EQ(tests, end.cases);
  EXPECT_EQ(failures, end.fail + end.suspect);
  EXPECT_EQ(errors, end.undecided);
  EXPECT_EQ(skipped, end.not_run);
  EXPECT_EQ(root[1]["tests"], std::to_string(tests));
  EXPECT_EQ(root[1]["failures"], std::to_string(failures));
}

TEST_F(Junit, SaysTheReasonAndHowToRepeatIt) {
  const std::string text = render_junit(sample_records());
  EXPECT_THAT(text, testing::HasSubstr(
                        "type=\"fail\" message=\"FAIL: error above the bound on 1984 of 131072 elements"));
  EXPECT_THAT(text, testing::HasSubstr("replay: attest check --kernel k --case"));
}

TEST_F(Junit, NeverCallsAnEmptyOrUnfinishedRunASuccess) {
  EXPECT_EQ(xml(render_junit(empty_records()))[1]["errors"], "1");
  Records unfinished = records_of({sample_records().cases[0]});
  EXPECT_EQ(xml(render_junit(unfinished))[1]["errors"], "0");
  unfinished.complete = false;
  EXPECT_EQ(xml(render_junit(unfinished))[1]["errors"], "1");
}

TEST_F(Junit, AndItsReaderRefuseWhatIsNoXml) {  // the control of the tests above
  EXPECT_TRUE(xml("<testsuites><testsuite></testsuites>").is_null());
}

TEST(Csv, GivesEveryFieldBack) {
  if (!has_python()) GTEST_SKIP() << "no Python to read CSV with";
  const Records records = with_hostile();
  const std::string text = render_csv(records);
  const Json rows = csv(text);
  ASSERT_TRUE(rows.is_array());
  ASSERT_EQ(rows.size(), records.cases.size() + 1);
  const auto column = [&](const char* name) {
    const auto at = std::find(rows[0].begin(), rows[0].end(), name);
    EXPECT_NE(at, rows[0].end()) << name;
    return static_cast<std::size_t>(at - rows[0].begin());
  };
  for (std::size_t i = 0; i < records.cases.size(); ++i) {
    const CaseRecord& record = records.cases[i];
    ASSERT_EQ(rows[i + 1].size(), rows[0].size()) << i;
    EXPECT_EQ(rows[i + 1][column("verdict")], to_string(record.verdict));
    if (i + 1 < records.cases.size()) {
      EXPECT_EQ(rows[i + 1][column("kernel")], record.kernel.name);
      EXPECT_EQ(rows[i + 1][column("case")], record.case_line);
      EXPECT_EQ(rows[i + 1][column("reason")], record.reason);
    }
    if (const auto* tensor = worst_tensor(record); tensor && !std::isnan(tensor->second.ratio.max)) {
      EXPECT_EQ(std::stod(rows[i + 1][column("ratio_max")].get<std::string>()), tensor->second.ratio.max);
    }
  }
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; ++at) EXPECT_EQ(text[at - 1], '\r');
  EXPECT_TRUE(text.ends_with("\r\n"));
  EXPECT_TRUE(csv("a,\"b\"c\r\n").is_null());  // the control: the reader is strict
}

MergedRecords merged(const Records& records) {
  MergedRecords m{records, {}};
  for (std::size_t i = 0; i < records.cases.size(); ++i)
    m.origins.push_back({"a folder/records.jsonl", static_cast<std::int64_t>(i) + 2});
  return m;
}

TEST(Sarif, HoldsWhatTheStandardAsksFor) {
  const Records records = with_hostile();
  const Json log = Json::parse(render_sarif(merged(records)));
  EXPECT_EQ(log["version"], "2.1.0");
  ASSERT_EQ(log["runs"].size(), 1u);
  const Json& run = log["runs"][0];
  EXPECT_EQ(run["tool"]["driver"]["name"], "attest");
  EXPECT_EQ(run["invocations"][0]["executionSuccessful"], true);
  ASSERT_EQ(run["results"].size(),
            static_cast<std::size_t>(records.end.fail + records.end.suspect + records.end.undecided));
  for (const auto& result : run["results"]) {
    EXPECT_EQ(run["tool"]["driver"]["rules"][result["ruleIndex"].get<std::size_t>()]["id"], result["ruleId"]);
    EXPECT_FALSE(result["message"]["text"].get<std::string>().empty());
    EXPECT_EQ(result["kind"] == "fail", result["level"] != "none");  // section 3.27.9
    const Json& place = result["locations"][0];
    EXPECT_EQ(place["physicalLocation"]["artifactLocation"]["uri"], "a%20folder/records.jsonl");
    EXPECT_GE(place["physicalLocation"]["region"]["startLine"], 2);
    EXPECT_FALSE(place["logicalLocations"][0]["fullyQualifiedName"].get<std::string>().empty());
  }
}

TEST(Sarif, OfAnUnfinishedRunSaysSo) {
  Records records = sample_records();
  records.complete = false;
  EXPECT_EQ(Json::parse(render_sarif(merged(records)))["runs"][0]["invocations"][0]["executionSuccessful"],
            false);
}

TEST(Markdown, IsCutAtALineAndSaysSo) {
  const std::string text = "one\ntwo\n" + std::string(300, 'x') + "\nfour\n";
  EXPECT_EQ(fit_markdown(text, text.size()), text);
  const std::string cut = fit_markdown(text, 200);
  EXPECT_LE(cut.size(), 200u);
  EXPECT_EQ(cut, "one\ntwo\n\n**Cut here: 2 more lines do not fit.**\n");
  EXPECT_LE(fit_markdown(std::string(5000, 'x'), 1000).size(), 1000u);
}

TEST(Merged, RecordsAreTheCasesOfAllWithTheirLines) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const Records& records) {
    RecordWriter writer(folder / name, records.run);
    for (const CaseRecord& record : records.cases) writer.add(record);
    writer.end(records.end.finished);
    return folder / name;
  };
  Records first = sample_records(), second = records_of({sample_records().cases[0]});
  second.run.commit = "another", second.run.seed = 4;
  const MergedRecords both = read_merged({write("a", first), write("b", second)});
  ASSERT_EQ(both.records.cases.size(), first.cases.size() + 1);
  ASSERT_EQ(both.origins.size(), both.records.cases.size());
  EXPECT_EQ(both.origins[0].line, 2);
  EXPECT_EQ(both.origins.back().file, (folder / "b").string());
  EXPECT_EQ(both.origins.back().line, 2);
  EXPECT_EQ(both.records.run.commit, first.run.commit + "; another");
  EXPECT_EQ(both.records.run.compiler, first.run.compiler);
  EXPECT_FALSE(both.records.run.seed);
  EXPECT_EQ(both.records.end.cases, first.end.cases + 1);
  EXPECT_EQ(both.records.end.fail, first.end.fail);
  EXPECT_EQ(read_merged({folder / "a"}).records.run.seed, first.run.seed);
  EXPECT_TRUE(both.records.complete);
  std::ofstream(folder / "c") << to_json_line(first.run) << '\n';
  EXPECT_FALSE(read_merged({folder / "a", folder / "c"}).records.complete);
  EXPECT_THROW(read_merged({folder / "a", folder / "none"}), BadInput);
}

}  // namespace
}  // namespace attest
