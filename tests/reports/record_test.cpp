#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/record_file.hpp"
#include "tests/reports/sample_records.hpp"

namespace attest {
namespace {

std::filesystem::path fresh_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = std::filesystem::temp_directory_path() /
                      ("attest-" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) + "-" +
                       std::to_string(::getpid()) + "-" + test->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::string lines_of(const Records& records) {
  std::string text = to_json_line(records.run) + "\n";
  for (const auto& record : records.cases) text += to_json_line(record) + "\n";
  return text + to_json_line(records.end) + "\n";
}

Records parse(const std::string& text, Incomplete incomplete = Incomplete::refuse) {
  std::istringstream stream(text);
  return parse_records(stream, "run.jsonl", incomplete);
}

// What the reader says about the text; "" when it accepts it.
std::string complaint(const std::string& text) {
  try {
    parse(text);
    return "";
  } catch (const BadInput& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos)
        << "more than one line: " << error.what();
    return error.what();
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, text.npos) << from << " is not in the text";
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

TEST(HexFloat, ComesBackBitForBit) {
  for (const double value :
       {0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    const auto back = from_hex_float(to_hex_float(value));
    ASSERT_TRUE(back) << to_hex_float(value);
    EXPECT_EQ(*back, value);
    EXPECT_EQ(std::signbit(*back), std::signbit(value));
  }
  EXPECT_TRUE(std::isnan(from_hex_float(to_hex_float(std::nan(""))).value()));
}

TEST(HexFloat, RefusesEverythingElse) {
  for (const char* text :
       {"",        "1.5",      "0x",       "0x1",        "0xp1",     "0x1.8p",   "0x1.8p+1 ",
        " 0x1p+0", "+0x1p+0",  "--0x1p+0", "-0x-1p+0",   "0x-1p+0",  "0x0x1p+0", "NaN",
        "INF",     "infinity", "-nan",     "0x1p+99999", "0x1p+0,5", "0x1gp+0"})
    EXPECT_FALSE(from_hex_float(text)) << text;
}

TEST(Records, ComeBackAsTheyWereWritten) {
  auto records = sample_records();
  records.cases.push_back(hostile_case());
  records.end.count(Verdict::fail);
  const auto text = lines_of(records);
  const auto back = parse(text);
  EXPECT_TRUE(back.complete);
  EXPECT_EQ(back.cases.size(), records.cases.size());
  EXPECT_EQ(lines_of(back), text);
}

TEST(Records, OfARunThatDrewNothingHaveNoSeed) {
  Records records = sample_records();
  records.run.seed.reset();
  const std::string text = lines_of(records);
  EXPECT_EQ(text.find("\"seed\":"), text.npos);
  EXPECT_FALSE(parse(text).run.seed);
}

TEST(Records, OfAnEmptyRunComeBack) {
  const auto back = parse(lines_of(empty_records()));
  EXPECT_TRUE(back.complete);
  EXPECT_EQ(back.end.cases, 0);
}

TEST(RecordWriter, RenamesAtTheEndAndNotBefore) {
  const auto path = fresh_folder() / "records.jsonl";
  const auto records = sample_records();
  RecordWriter writer(path, records.run);
  for (const auto& record : records.cases) {
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.add(record);
  }
  const End end = writer.end("2026-11-29T19:20:02Z");
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(partial_name(path)));
  EXPECT_EQ(end.fail, records.end.fail);
  EXPECT_EQ(lines_of(read_records(path)), lines_of(parse(lines_of(records))));
}

TEST(RecordWriter, LeavesNothingWhenTheRunIsAbandoned) {
  const auto folder = fresh_folder();
  { RecordWriter writer(folder / "records.jsonl", sample_records().run); }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(RecordWriter, SaysWhenThePathCannotBeWritten) {
  const auto folder = fresh_folder();
  EXPECT_THROW(RecordWriter(folder / "missing" / "records.jsonl", attest::Run{}), BadInput);
  EXPECT_THROW(RecordWriter(folder, attest::Run{}), BadInput);
  EXPECT_FALSE(std::filesystem::exists(partial_name(folder)));
  EXPECT_THROW(write_file_atomically(folder / "missing" / "page.html", "text"), BadInput);
  EXPECT_THROW(write_file_atomically(folder, "text"), BadInput);
  EXPECT_FALSE(std::filesystem::exists(partial_name(folder)));
}

TEST(RecordWriter, SaysWhenTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const auto path = fresh_folder() / "records.jsonl";
  std::filesystem::create_symlink("/dev/full", partial_name(path));
  EXPECT_THROW(RecordWriter(path, attest::Run{}), BadInput);
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));
}

TEST(RecordReader, SaysThatAFileWithoutItsLastLineIsIncomplete) {
  const auto text = lines_of(sample_records());
  const auto last = text.rfind('\n', text.size() - 2) + 1;
  for (const std::size_t kept : {last, last + 10, text.size() - 1, last - 1}) {
    const auto cut = text.substr(0, kept);
    EXPECT_NE(complaint(cut).find("incomplete"), std::string::npos) << complaint(cut);
    const auto accepted = parse(cut, Incomplete::accept);
    EXPECT_FALSE(accepted.complete);
    EXPECT_GE(accepted.cases.size(), sample_records().cases.size() - 1);
  }
  EXPECT_NE(complaint(to_json_line(attest::Run{}) + "\n").find("incomplete"), std::string::npos);
  EXPECT_NE(complaint("").find("empty"), std::string::npos);
}

TEST(RecordReader, SaysWhatIsWrongAndWhere) {
  const auto good = lines_of(records_of({sample_records().cases[0]}));
  ASSERT_EQ(complaint(good), "");
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& because) {
    const auto said = complaint(replaced(good, from, to));
    EXPECT_NE(said.find(because), std::string::npos) << "'" << from << "' -> '" << to << "' said: " << said;
    EXPECT_EQ(said.rfind("run.jsonl:", 0), 0U) << said;
  };
  refused("attest.records/1", "attest.records/2", "expected schema attest.records/1");
  refused("\"seed\":20261129", "\"seed\":-1", "run.seed");
  refused("\"seed\":20261129", "\"seed\":1.5", "run.seed");
  refused("\"commit\":", "\"comit\":", "missing");
  refused("\"verdict\":\"pass\"", "\"verdict\":\"passed\"", "verdict: expected one of pass, suspect");
  refused("\"verdict\":\"pass\"", "\"verdict\":true", "expected a string");
  refused("\"rule\":\"bound\"", "\"rule\":\"guess\"", "checks[0].rule");
  refused("\"violations\":0", "\"violations\":-1", "checks[0].violations");
  refused("\"compared\":8192", "\"compared\":18446744073709551615", "too large");
  refused("\"compared\":8192", "\"compared\":null", "checks[0].compared");
  refused("\"tokens\":64", "\"tokens\":64,\"surprise\":1", "unknown member \"surprise\"");
  refused("\"tokens\":64", "\"tokens\":64,\"tokens\":65", "given twice");
  refused("\"position\":0", "\"position\":0.5", "curve[0].position");
  refused("\"power\":\"0x1.", "\"power\":\"0x7.", "error.o.power: expected a share");
  refused("\"power\":\"0x", "\"power\":\"", "hex-float");
  refused("\"index\":[0,", "\"index\":[-1,", "worst[0].index[0]");
  refused("\"cases\":1", "\"cases\":2", "end.cases: expected 1");
  refused("\"pass\":1", "\"pass\":0", "end.pass: expected 1");
  refused("{\"case\"", "[{\"case\"", "expected one JSON object per line");
  refused("{\"case\"", "\n{\"case\"", "expected one JSON object per line");
  EXPECT_NE(complaint(good + "{}\n").find("nothing after the end"), std::string::npos);
  EXPECT_NE(complaint("\x89PNG\r\n\x1a\n").find("run.jsonl:1"), std::string::npos);
  EXPECT_THROW(read_records("/nonexistent/records.jsonl"), BadInput);
  EXPECT_THROW(read_records("/"), BadInput);
}

TEST(RecordReader, RefusesQuantilesOutOfOrder) {
  auto record = sample_records().cases[0];
  record.error["o"].ratio = {0.3, 0.2, 0.4};
  EXPECT_NE(complaint(lines_of(records_of({record}))).find("p50 <= p99 <= max"), std::string::npos);
}

TEST(RecordReader, ReadsErrorsWithoutABoundAndInANorm) {
  auto record = sample_records().cases[0];
  TensorError& error = record.error["o"];
  error.bounded = false, error.norm = 0x1p-9, record.oracle->radius_over_bound.reset();
  record.plain["o"].bounded = false;
  const std::string text = lines_of(records_of({record}));
  EXPECT_EQ(text.find("\"power\""), std::string::npos);
  const CaseRecord read = parse(text).cases.at(0);
  EXPECT_FALSE(read.error.at("o").bounded);
  EXPECT_FALSE(read.plain.at("o").bounded);
  EXPECT_EQ(read.error.at("o").ulp.max, error.ulp.max);
  EXPECT_EQ(read.error.at("o").norm, 0x1p-9);
  EXPECT_FALSE(read.oracle->radius_over_bound);
  // The controls: a power without a ratio, a norm that is none.
  std::string broken = text;
  broken.replace(broken.find("\"norm\""), 6, "\"power\":\"0x1p-1\",\"norm\"");
  EXPECT_NE(complaint(broken).find("ratio and power together"), std::string::npos);
  broken = text;
  broken.replace(broken.find("\"norm\":\""), 8, "\"norm\":\"-");
  EXPECT_NE(complaint(broken), "");
}

TEST(RecordReader, NeverAcceptsATornLineAsWhole) {
  const auto text = lines_of(records_of({sample_records().cases[0]}));
  for (std::size_t kept = 0; kept < text.size(); kept += 7)
    EXPECT_NE(complaint(text.substr(0, kept)), "") << kept;
}

TEST(RecordReader, SurvivesEveryDamagedByte) {
  auto record = sample_records().cases[0];
  record.curve.resize(1);
  const auto text = lines_of(records_of({record}));
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const char damage : {'\0', '"', '{', '9', '\xff'}) {
      auto damaged = text;
      damaged[at] = damage;
      complaint(damaged);  // throws BadInput or accepts; anything else ends the test
    }
}

TEST(Curve, KeepsTheWorstPointOfEachGroup) {
  std::vector<CurvePoint> curve;
  for (std::int64_t t = 0; t < 1000; ++t) curve.push_back({"o", t, t == 777 ? 9.0 : 0.5, 0, 0});
  curve[333].ratio_max = std::nan("");
  curve.push_back({"dq", 3, 0.1, 0, 0});
  const auto thin = thin_curve(curve, 16);
  ASSERT_EQ(thin.size(), 17U);
  bool peak = false, not_a_number = false;
  for (const auto& p : thin) {
    peak |= p.position == 777;
    not_a_number |= p.position == 333;
  }
  EXPECT_TRUE(peak);
  EXPECT_TRUE(not_a_number);
}

TEST(Curve, LongerThanTheLimitIsThinnedByTheWriterAndRefusedByTheReader) {
  auto record = sample_records().cases[2];
  ASSERT_GT(record.curve.size(), curve_limit);
  const auto back = parse(lines_of(records_of({record})));
  EXPECT_EQ(back.cases[0].curve.size(), curve_limit);
  const auto text = lines_of(back);
  const std::string point =
      "{\"tensor\":\"o\",\"position\":9999,\"ratio_max\":\"0x0p+0\",\"error_max\":\"0x0p+0\","
      "\"bound_at_max\":\"0x0p+0\"},";
  const auto said = complaint(replaced(text, "\"curve\":[", "\"curve\":[" + point));
  EXPECT_NE(said.find("at most 256 points"), std::string::npos) << said;
}

}  // namespace
}  // namespace attest
