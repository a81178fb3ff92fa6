// attest report and attest compare as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "reports/record_file.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

class ReportCommand : public testing::Test {
 protected:
  std::string write(const char* name, const Records& records) const {
    RecordWriter writer(folder / name, records.run);
    for (const CaseRecord& record : records.cases) writer.add(record);
    writer.end("2026-11-29T19:20:02Z");
    return (folder / name).string();
  }
  ProgramRun run(const std::string& arguments) const { return run_attest(folder, arguments); }
  TemporaryFolder folder;
};

// Records made by the program itself.
class Made : public ReportCommand {
 protected:
  Made() {
    made = (folder / "out").string();
    run("check --kernel 'cpu.linear.chunk16.*' --shape T=16,d=4,dv=4 --seed 3 --output " + made);
    made += "/records.jsonl";
  }
  std::string made;
};

TEST_F(Made, RecordsBecomeEveryForm) {
  const std::pair<const char*, const char*> forms[] = {{"html", "<!DOCTYPE html>"},
                                                       {"markdown", "| kernel |"},
                                                       {"junit", "<testsuites"},
                                                       {"csv", "kernel,operator,variant"},
                                                       {"sarif", "\"2.1.0\""}};
  for (const auto& [form, part] : forms) {
    const std::string out = (folder / form).string(), line = "report " + made + " --" + form;
    const ProgramRun written = run(line + " --output " + out);
    EXPECT_EQ(written.exit_code, 0) << written.err;
    EXPECT_EQ(written.out, "");
    EXPECT_THAT(text_of(out), HasSubstr(part)) << form;
    const ProgramRun printed = run(line);
    EXPECT_EQ(printed.out, text_of(out)) << form;
  }
}

TEST_F(Made, RecordsTakeTheirFormFromTheNameOfTheFile) {
  for (const auto& [ending, option] : {std::pair{"html", "html"},
                                       {"md", "markdown"},
                                       {"xml", "junit"},
                                       {"csv", "csv"},
                                       {"sarif", "sarif"}}) {
    const std::string out = (folder / "out").string() + "." + ending;
    EXPECT_EQ(run("report " + made + " --output " + out).exit_code, 0) << ending;
    EXPECT_EQ(text_of(out), run("report " + made + " --" + option).out) << ending;
  }
  const std::string out = (folder / "out.html").string();
  EXPECT_EQ(run("report " + made + " --csv --output " + out).exit_code, 0);
  EXPECT_EQ(text_of(out), run("report " + made + " --csv").out);
}

TEST_F(ReportCommand, OfAHuntIsItsPageOrJunitAsTheHuntWroteThem) {
  const std::string hunt = (folder / "hunt").string(), junit = (folder / "hunt.xml").string(),
                    out = (folder / "out").string();
  run("fuzz --kernel mutant.hla2.cross_dropped --cases 12 --seed 3 --output " + hunt + " --junit " + junit);
  ASSERT_TRUE(std::filesystem::exists(hunt + "/fuzz.json"));
  EXPECT_THAT(text_of(junit), HasSubstr("failures=\"1\""));
  for (const std::string& path : {hunt, hunt + "/fuzz.json"}) {
    EXPECT_EQ(run("report " + path + " --html --output " + out).exit_code, 0);
    EXPECT_EQ(text_of(out), text_of(hunt + "/index.html"));
    EXPECT_EQ(run("report " + path + " --junit --output " + out).exit_code, 0);
    EXPECT_EQ(text_of(out), text_of(junit));
  }
  const std::pair<std::string, const char*> refused[] = {
      {hunt + " --csv", "expected --html or --junit"},
      {hunt + " " + hunt + " --html", "expected them alone"},
      {hunt + "/fuzz.json --html --output " + hunt + "/fuzz.json", "--output"}};
  for (const auto& [arguments, why] : refused) {
    const ProgramRun one = run("report " + arguments);
    EXPECT_EQ(one.exit_code, 2) << arguments;
    EXPECT_THAT(one.err, HasSubstr(why));
    EXPECT_EQ(std::count(one.err.begin(), one.err.end(), '\n'), 1) << one.err;
  }
}

TEST_F(Made, RecordsOfSeveralFilesAreMerged) {
  const std::string one = run("report " + made + " --csv").out,
                    two = run("report " + made + " " + made + " --csv").out;
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(two), 2 * lines(one) - 1);
}

TEST_F(Made, RecordsAreRefusedInOneLine) {
  const std::pair<std::string, const char*> commands[] = {
      {"report " + made, "no form is given, expected one of --html"},
      {"report " + made + " --output " + made + ".pdf", "the endings .html .md .xml .csv .sarif"},
      {"report " + made + " --csv --junit", "at most 1"},
      {"report --csv", "RECORDS"},
      {"report " + made + " missing.jsonl --csv", "missing.jsonl"},
      {"report " + made + " --csv --output ''", "expected a path"},
      {"report " + made + " --csv --output " + made, "the same file"},
      {"report " + made + " --csv --output /nonexistent/x", "/nonexistent/x"},
      {"report dev --csv", "dev"},
      {"compare " + made, "AFTER"},
      {"compare " + made + " dev", "dev"},
      {"compare " + made + " " + made + " --json " + made, "the same file"},
  };
  const std::string before = text_of(made);
  for (const auto& [command, part] : commands) {
    const ProgramRun refused = run(command);
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << command << '\n' << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(part)) << command;
  }
  EXPECT_EQ(text_of(made), before);
}

TEST_F(Made, RecordsAreComparedWithThoseOfAnotherRun) {
  EXPECT_EQ(run("compare " + made + " " + made).exit_code, 0);
  Records changed = read_records(made);
  changed.cases[0].verdict = Verdict::fail, changed.cases[0].reason = "a mutant";
  const std::string worse = write("worse.jsonl", changed), json = (folder / "c.json").string();
  const ProgramRun regression = run("compare " + made + " " + worse + " --json " + json);
  EXPECT_EQ(regression.exit_code, 1);
  EXPECT_THAT(regression.out, HasSubstr("PASS -> FAIL (a mutant)"));
  EXPECT_THAT(text_of(json), HasSubstr("attest.compare/1"));
  EXPECT_EQ(run("compare " + worse + " " + made).exit_code, 0);
  changed.cases.clear();
  const std::string empty = write("empty.jsonl", changed);
  EXPECT_EQ(run("compare " + empty + " " + made).exit_code, 77);
  EXPECT_EQ(run("compare " + made + " " + empty).exit_code, 1);
}

}  // namespace
}  // namespace attest
