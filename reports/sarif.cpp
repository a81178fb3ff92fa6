#include "reports/sarif.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/escape.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

Json text(const std::string& words) { return {{"text", clean_text(words)}}; }

// A relative reference with what RFC 3986 asks to be escaped.
std::string uri(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    constexpr char digits[] = "0123456789ABCDEF";
    const auto code = static_cast<unsigned char>(c);
    escaped += plain ? std::string(1, c) : std::string{'%', digits[code >> 4], digits[code & 15]};
  }
  return escaped;
}

// The checks that did not pass, "value" when the record names none.
std::string rule_of(const CaseRecord& record) {
  for (const Check& check : record.checks)
    if (check.verdict == record.verdict) return clean_text(check.name);
  return "value";
}

Json result_of(const CaseRecord& record, const Origin& origin, const std::string& rule, std::size_t index) {
  const bool undecided = record.verdict == Verdict::undecided;
  const std::string kernel = clean_text(record.kernel.name);
  return {{"ruleId", rule},
          {"ruleIndex", index},
          {"kind", undecided ? "open" : "fail"},  // any kind but fail has the level none
          {"level", undecided                         ? "none"
                    : record.verdict == Verdict::fail ? "error"
                                                      : "warning"},
          {"message", text(verdict_words(record.verdict) + " " + record.kernel.name + ": " + record.reason +
                           ". Replay: " + replay_of(record))},
          {"locations",
           {{{"physicalLocation",
              {{"artifactLocation", {{"uri", uri(origin.file)}}}, {"region", {{"startLine", origin.line}}}}},
             {"logicalLocations", {{{"fullyQualifiedName", kernel}, {"kind", "function"}}}}}}},
          {"partialFingerprints",
           {{"kernelAndCase/v1", clean_text(record.kernel.name + " " + record.case_line)}}}};
}

}  // namespace

std::string render_sarif(const MergedRecords& merged) {
  const Records& records = merged.records;
  std::vector<std::string> rules;
  Json results = Json::array(), described = Json::array();
  for (std::size_t i = 0; i < records.cases.size(); ++i) {
    const CaseRecord& record = records.cases[i];
    if (severity(record.verdict) < severity(Verdict::undecided)) continue;
    const std::string rule = rule_of(record);
    const auto known = std::find(rules.begin(), rules.end(), rule);
    const auto index = static_cast<std::size_t>(known - rules.begin());
    if (known == rules.end()) rules.push_back(rule);
    results.push_back(result_of(record, merged.origins.at(i), rule, index));
  }
  for (const std::string& rule : rules)
    described.push_back({{"id", rule}, {"shortDescription", text("The check " + rule + " of attest")}});
  const Json driver{{"name", "attest"}, {"version", ATTEST_VERSION}, {"rules", described}};
  const Json invocation{{"commandLine", clean_text(records.run.command)},
                        {"executionSuccessful", records.complete && !records.cases.empty()}};
  const Json run{
      {"tool", {{"driver", driver}}}, {"invocations", Json::array({invocation})}, {"results", results}};
  return Json{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
              {"version", "2.1.0"},
              {"runs", Json::array({run})}}
             .dump(1) +
         "\n";
}

}  // namespace attest
