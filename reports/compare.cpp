#include "reports/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/tensor/bad_input.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

// Kernel and case line, without the path of an input whose checksum is known; repeated cases are numbered.
class Keys {
 public:
  std::string of(const CaseRecord& record) {
    std::string line, word;
    const bool known = record.case_line.find(" checksum=") != std::string::npos;
    for (std::istringstream words(record.case_line); words >> word;)
      if (!(known && word.starts_with("input="))) line += ' ' + word;
    const std::string key = record.kernel.name + line;
    return fmt::format("{} #{}", key, ++seen_[key]);
  }

 private:
  std::map<std::string, int> seen_;
};

int rank(Verdict verdict) {
  constexpr std::array order{Verdict::pass, Verdict::suspect, Verdict::undecided, Verdict::not_run,
                             Verdict::fail};
  return static_cast<int>(std::find(order.begin(), order.end(), verdict) - order.begin());
}

void add_words(CaseChange& change, const std::string& words) {
  change.what += (change.what.empty() ? "" : "; ") + words;
}

void settle(CaseChange& change, bool worse) {
  change.regression |= worse;
  change.change = change.regression ? Change::worse : Change::better;
}

void compare_quantile(CaseChange& change, const std::string& name, double before, double after,
                      double factor) {
  const bool same = before == after || (std::isnan(before) && std::isnan(after));
  const bool worse = !same && (std::isnan(after) || after > before * factor);
  const bool better = !same && !worse && (std::isnan(before) || before > after * factor);
  if (!worse && !better) return;
  add_words(change, fmt::format("{} {} -> {} (noise: a factor of {})", name, digits(before), digits(after),
                                digits(factor)));
  settle(change, worse);
}

void compare_case(CaseChange& change) {
  const CaseRecord &before = *change.before, &after = *change.after;
  if (before.verdict != after.verdict) {
    add_words(change, verdict_words(before.verdict) + " -> " + verdict_words(after.verdict) +
                          (after.reason.empty() ? "" : " (" + after.reason + ")"));
    settle(change, rank(after.verdict) > rank(before.verdict));
  }
  if (before.kernel.contract != after.kernel.contract) {
    add_words(change, "the contract changed: accuracy is not compared");
    if (change.change == Change::same) change.change = Change::other_contract;
    return;
  }
  const double factor = drift_factor(after.tokens.value_or(1));
  for (const auto& [tensor, error] : after.error) {
    const auto earlier = before.error.find(tensor);
    if (earlier == before.error.end() || !error.bounded || !earlier->second.bounded) continue;
    compare_quantile(change, tensor + " error/bound p50", earlier->second.ratio.p50, error.ratio.p50, factor);
    compare_quantile(change, tensor + " error/bound p99", earlier->second.ratio.p99, error.ratio.p99, factor);
  }
}

}  // namespace

std::string_view to_string(Change change) {
  constexpr std::array<std::string_view, 6> names{"same", "better", "worse", "contract", "new", "vanished"};
  return names.at(static_cast<std::size_t>(change));
}

double drift_factor(std::int64_t tokens) {
  return 1 + 6 * std::sqrt(2.0) * 1.34 / std::sqrt(static_cast<double>(std::max<std::int64_t>(tokens, 1)));
}

Comparison compare_records(const Records& before, const Records& after) {
  Comparison comparison;
  comparison.complete = before.complete && after.complete;
  std::map<std::string, const CaseRecord*> earlier;
  std::vector<std::string> order;
  Keys keys_before, keys_after;
  for (const CaseRecord& record : before.cases) {
    order.push_back(keys_before.of(record));
    earlier[order.back()] = &record;
  }
  for (const CaseRecord& record : after.cases) {
    CaseChange& change = comparison.cases.emplace_back();
    change.after = &record;
    if (const auto found = earlier.find(keys_after.of(record)); found != earlier.end()) {
      ++comparison.common;
      change.before = found->second;
      compare_case(change);
      earlier.erase(found);
    } else {
      change.change = Change::appeared, change.what = "new: " + verdict_words(record.verdict);
      change.regression = record.verdict == Verdict::fail;
    }
  }
  for (const std::string& key : order)
    if (const auto left = earlier.find(key); left != earlier.end())
      comparison.cases.push_back({left->second, nullptr, Change::vanished, true,
                                  "vanished, was " + verdict_words(left->second->verdict)});
  for (const CaseChange& change : comparison.cases) comparison.regressions += change.regression;
  if (!after.complete) ++comparison.regressions;
  return comparison;
}

std::string render_comparison(const Comparison& comparison) {
  std::string text;
  std::array<int, 6> counts{};
  for (const CaseChange& change : comparison.cases) {
    ++counts.at(static_cast<std::size_t>(change.change));
    if (change.change == Change::same) continue;
    const CaseRecord& record = change.after ? *change.after : *change.before;
    text += fmt::format(
        "{:<10}  {}  {}\n            {}\n", change.regression ? "REGRESSION" : to_string(change.change),
        printable(record.kernel.name, 200), printable(record.case_line, 400), printable(change.what, 1000));
  }
  if (!comparison.complete) text += "a run did not finish\n";
  text += fmt::format(
      "{} cases in both: {} same, {} better, {} worse, {} with another contract; {} new, {} vanished; {} "
      "regression{}\n",
      comparison.common, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5],
      comparison.regressions, comparison.regressions == 1 ? "" : "s");
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  using Json = nlohmann::ordered_json;
  Json changes = Json::array();
  for (const CaseChange& change : comparison.cases) {
    if (change.change == Change::same) continue;
    const CaseRecord& record = change.after ? *change.after : *change.before;
    Json entry{{"kernel", record.kernel.name},
               {"case", record.case_line},
               {"change", to_string(change.change)},
               {"regression", change.regression},
               {"what", change.what}};
    if (change.before) entry["before"] = to_string(change.before->verdict);
    if (change.after) entry["after"] = to_string(change.after->verdict);
    changes.push_back(entry);
  }
  const Json document{{"schema", "attest.compare/1"},
                      {"common", comparison.common},
                      {"regressions", comparison.regressions},
                      {"complete", comparison.complete},
                      {"changes", changes}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attest
