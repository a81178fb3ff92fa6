#include "reports/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "reports/escape.hpp"

namespace attest {

int severity(Verdict verdict) {
  switch (verdict) {
    case Verdict::fail:
      return 4;
    case Verdict::suspect:
      return 3;
    case Verdict::undecided:
      return 2;
    case Verdict::pass:
      return 1;
    case Verdict::not_run:
      return 0;
  }
  return 0;
}

bool worse_number(double a, double b) {
  if (std::isnan(b)) return false;
  return std::isnan(a) || a > b;
}

const std::pair<const std::string, TensorError>* worst_tensor(const CaseRecord& record) {
  const std::pair<const std::string, TensorError>* worst = nullptr;
  for (const auto& entry : record.error)
    if (entry.second.bounded && (!worst || worse_number(entry.second.ratio.max, worst->second.ratio.max)))
      worst = &entry;
  return worst;
}

const std::pair<const std::string, TensorError>* measured_tensor(const CaseRecord& record) {
  const auto* worst = worst_tensor(record);
  if (worst) return worst;
  for (const auto& entry : record.error)
    if (!worst || worse_number(entry.second.ulp.max, worst->second.ulp.max)) worst = &entry;
  return worst;
}

std::string worse_elsewhere(const KernelSummary& kernel) {
  const auto* measured = measured_tensor(*kernel.measured);
  if (!measured || kernel.cases.size() < 2) return "";
  struct Worst {
    double value;
    const CaseRecord* record = nullptr;
  };
  const TensorError& at = measured->second;
  Worst ratio{at.bounded ? at.ratio.max : -1}, ulp{at.ulp.max}, norm{at.norm.value_or(-1)},
      power{at.bounded ? at.power : 2};
  for (const CaseRecord* record : kernel.cases)
    for (const auto& [name, error] : record->error) {
      if (error.bounded && worse_number(error.ratio.max, ratio.value)) ratio = {error.ratio.max, record};
      if (worse_number(error.ulp.max, ulp.value)) ulp = {error.ulp.max, record};
      if (error.norm && worse_number(*error.norm, norm.value)) norm = {*error.norm, record};
      if (error.bounded && error.power < power.value) power = {error.power, record};
    }
  std::string text;
  // Said only where the numbers differ as they are shown.
  const auto part = [&](const char* name, const std::string& value, const std::string& shown,
                        const Worst& worst) {
    if (!worst.record || value == shown) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    if (worst.record->tokens) text += fmt::format(" at T = {}", *worst.record->tokens);
  };
  part("error/bound", digits(ratio.value), at.bounded ? digits(at.ratio.max) : "", ratio);
  part("ulps", digits(ulp.value), digits(at.ulp.max), ulp);
  part("relative L2", digits(norm.value), at.norm ? digits(*at.norm) : "", norm);
  part("power", percent(power.value), at.bounded ? percent(at.power) : "", power);
  return text;
}

std::vector<UndecidedReason> undecided_reasons(const Records& records) {
  std::vector<UndecidedReason> reasons;
  std::map<std::string, std::set<std::string>> kernels;
  for (const CaseRecord& record : records.cases) {
    if (record.verdict != Verdict::undecided) continue;
    std::string kind = record.reason.substr(0, record.reason.find_first_of(":;0123456789"));
    kind.erase(kind.find_last_not_of(' ') + 1);
    if (kind.empty()) kind = "no reason given";
    auto found = std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.kind == kind; });
    if (found == reasons.end()) found = reasons.insert(found, {kind, record.reason, 0, 0});
    ++found->cases;
    kernels[kind].insert(record.kernel.name);
  }
  for (UndecidedReason& reason : reasons) reason.kernels = kernels[reason.kind].size();
  std::stable_sort(reasons.begin(), reasons.end(), [](auto& a, auto& b) { return a.cases > b.cases; });
  return reasons;
}

double largest_ratio(const CaseRecord& record) {
  const auto* tensor = worst_tensor(record);
  return tensor ? tensor->second.ratio.max : -1;
}

namespace {
double quoted_ratio(const KernelSummary& kernel) {
  double ratio = largest_ratio(*kernel.quoted);
  if (ratio != -1) return ratio;
  for (const auto& check : kernel.quoted->checks)
    if (check.worst && severity(check.verdict) >= severity(kernel.verdict) &&
        worse_number(check.worst->ratio, ratio))
      ratio = check.worst->ratio;
  return ratio;
}

bool worse_case(const CaseRecord& a, const CaseRecord& b) {
  if (severity(a.verdict) != severity(b.verdict)) return severity(a.verdict) > severity(b.verdict);
  return worse_number(largest_ratio(a), largest_ratio(b));
}

// Where in the order of kernels a record belongs.
std::string kernel_key(const KernelId& k) {
  std::string key;
  for (const std::string* part : {&k.name, &k.door, &k.op, &k.variant, &k.form, &k.contract, &k.sha256})
    key += *part + '\n';
  return key;
}
}  // namespace

std::string plural(std::int64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

std::string operator_title(const KernelId& kernel) {
  return kernel.variant.empty() || kernel.variant == "masked" ? kernel.op : kernel.op + " " + kernel.variant;
}

std::vector<KernelSummary> summarise(const Records& records) {
  std::vector<KernelSummary> kernels;
  std::map<std::string, std::size_t> first_seen, place;
  for (const auto& record : records.cases) {
    first_seen.emplace(operator_title(record.kernel), first_seen.size());
    const auto [at, fresh] = place.emplace(kernel_key(record.kernel), kernels.size());
    if (fresh) kernels.push_back({&record.kernel, {}, &record, record.verdict, nullptr, nullptr});
    KernelSummary* const found = &kernels[at->second];
    found->cases.push_back(&record);
    if (worse_case(record, *found->quoted)) found->quoted = &record;
    found->verdict = found->quoted->verdict;
    const auto length = [](const CaseRecord& r) { return r.tokens.value_or(0); };
    if (const CaseRecord* m = found->measured;
        !record.error.empty() &&
        (!m || length(record) > length(*m) || (length(record) == length(*m) && worse_case(record, *m))))
      found->measured = &record;
    if (worst_tensor(record) &&
        (!found->extreme || worse_number(largest_ratio(record), largest_ratio(*found->extreme))))
      found->extreme = &record;
  }
  for (KernelSummary& kernel : kernels)
    if (!kernel.measured) kernel.measured = kernel.quoted;
  std::stable_sort(kernels.begin(), kernels.end(), [&](const auto& a, const auto& b) {
    return first_seen[operator_title(*a.kernel)] < first_seen[operator_title(*b.kernel)];
  });
  return kernels;
}

bool worse_kernel(const KernelSummary& a, const KernelSummary& b) {
  if (severity(a.verdict) != severity(b.verdict)) return severity(a.verdict) > severity(b.verdict);
  return worse_number(quoted_ratio(a), quoted_ratio(b));
}

Verdict overall(const Records& records) {
  if (!records.complete && records.end.fail == 0) return Verdict::not_run;
  Verdict worst = Verdict::not_run;
  for (const auto& record : records.cases)
    if (severity(record.verdict) > severity(worst)) worst = record.verdict;
  return worst;
}

std::string headline(const Records& records) { return headline(records, summarise(records)); }

std::string headline(const Records& records, const std::vector<KernelSummary>& kernels) {
  const auto count = [&](Verdict v) {
    return static_cast<std::int64_t>(
        std::count_if(kernels.begin(), kernels.end(), [v](const auto& k) { return k.verdict == v; }));
  };
  const auto total = static_cast<std::int64_t>(kernels.size());
  const auto of_all = fmt::format("of {}", plural(total, "kernel", "kernels"));
  std::string text;
  if (records.cases.empty())
    text = "No case was run, which is never a success.";
  else if (count(Verdict::fail))
    text =
        fmt::format("{} {} {}.", count(Verdict::fail), of_all, count(Verdict::fail) == 1 ? "fails" : "fail");
  else if (count(Verdict::suspect))
    text = fmt::format("{} {} suspect, none fails.", count(Verdict::suspect), of_all);
  else if (count(Verdict::undecided))
    text = fmt::format("{} {} undecided, none fails.", count(Verdict::undecided), of_all);
  else if (count(Verdict::pass) == total)
    text = total == 1 ? "The only kernel passes." : fmt::format("All {} kernels pass.", total);
  else if (count(Verdict::pass))
    text = fmt::format("{} {} pass, the others were not run.", count(Verdict::pass), of_all);
  else
    text = "No kernel could be run, which is never a success.";
  return records.complete ? text : fmt::format("The run did not finish. {}", text);
}

namespace {
std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}
}  // namespace

std::string not_covered(const CaseRecord& record) {
  std::string not_run, undecided;
  for (const Check& check : record.checks) {
    std::string* list = check.verdict == Verdict::not_run     ? &not_run
                        : check.verdict == Verdict::undecided ? &undecided
                                                              : nullptr;
    if (list) *list += (list->empty() ? "" : ", ") + check.name;
  }
  std::string text;
  if (!not_run.empty()) text = "not run: " + not_run;
  if (!undecided.empty()) text += (text.empty() ? "" : "; ") + std::string("undecided: ") + undecided;
  const bool of_battery = record.case_line.find(" battery=") != std::string::npos;
  if (of_battery && record.verdict == Verdict::pass && !record.reason.empty())
    text += (text.empty() ? "" : "; ") + record.reason;
  return text;
}

std::string replay_of(const CaseRecord& record) {
  for (const auto& worst : record.worst)
    if (!worst.replay.empty()) return worst.replay;
  for (const auto& check : record.checks)
    if (severity(check.verdict) > 1 && !check.replay.empty()) return check.replay;
  // Of the battery the line of a check repeats that check alone; without its name it repeats all of them.
  if (record.case_line.find(" battery=") != std::string::npos && !record.checks.empty()) {
    std::string line = record.checks.front().replay;
    const std::string only = " --check " + record.checks.front().name;
    if (const auto at = line.find(only); at != line.npos) return line.erase(at, only.size());
  }
  return "attest check --kernel " + shell_word(record.kernel.name) + " --case " +
         shell_word(record.case_line);
}

std::vector<std::string> contract_labels(const std::vector<std::string>& contracts) {
  std::vector<std::string> labels;
  for (const auto& contract : contracts) {
    std::vector<std::pair<std::string, std::vector<std::string>>>
        keys_of;  // value -> keys, in the order of the contract
    for (const auto& part : words(contract)) {
      if (part == "gate_sum=fp32/chunk" || part == "inverse=substitution" || part == "exp=1ulp")
        continue;  // defaults
      const auto equals = std::min(part.find('='), part.size());
      const std::string key = part.substr(0, equals), value = part.substr(equals);
      auto known =
          std::find_if(keys_of.begin(), keys_of.end(), [&](const auto& k) { return k.first == value; });
      if (known == keys_of.end()) known = keys_of.insert(known, {value, {}});
      known->second.push_back(key);
    }
    std::stable_sort(keys_of.begin(), keys_of.end(),
                     [](auto& a, auto& b) { return a.second.size() > b.second.size(); });
    std::string label;
    for (const auto& [value, keys] : keys_of) {
      if (label.empty() && keys.size() >= 3)
        label = value.substr(value.empty() ? 0 : 1);
      else
        label += fmt::format("{}{}{}", label.empty() ? "" : "; ", fmt::join(keys, ", "), value);
    }
    labels.push_back(contract.empty() ? "no contract" : label);
  }
  return labels;
}

std::string digits(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3 || size >= 1e6) return fmt::format("{:.1e}", value);
  if (size >= 999.5) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string percent(double share) {
  if (std::isnan(share)) return "NaN";
  if (share > 0 && share < 0.01) return "< 1 %";
  if (share > 0.99 && share < 1) return "> 99 %";
  if (share < 0.5 && share >= 0.495)
    return fmt::format("{:.3g} %", std::min(100 * share, 49.9));  // one half is a limit
  return fmt::format("{:.0f} %", 100 * share);
}

std::string duration(std::int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (value < 1e3) return fmt::format("{} ns", ns);
  if (value < 1e6) return fmt::format("{:.3g} µs", value / 1e3);
  if (value < 1e9) return fmt::format("{:.3g} ms", value / 1e6);
  return value < 1e12 ? fmt::format("{:.3g} s", value / 1e9) : fmt::format("{:.0f} s", value / 1e9);
}

std::string verdict_words(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::suspect:
      return "SUSPECT";
    case Verdict::fail:
      return "FAIL";
    case Verdict::undecided:
      return "UNDECIDED";
    case Verdict::not_run:
      return "NOT RUN";
  }
  return "?";
}

std::string index_text(const WorstElement& element) {
  return fmt::format("{}[{}]", element.tensor, fmt::join(element.index, ","));
}

}  // namespace attest
