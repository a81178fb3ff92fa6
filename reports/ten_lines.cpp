#include "reports/ten_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "reference/tensor/bad_input.hpp"
#include "reports/check_record.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

constexpr std::size_t longest_line = 400, most_reasons = 3;

// The checks as bad as the whole, in their order.
std::vector<const Check*> decisive(const CaseRecord& record) {
  std::vector<const Check*> list;
  for (const Check& check : record.checks)
    if (check.verdict == record.verdict && record.verdict != Verdict::pass) list.push_back(&check);
  return list;
}

void add_reasons(const std::vector<const Check*>& checks, std::vector<std::string>& lines) {
  const std::size_t shown = std::min(checks.size(), most_reasons);
  for (std::size_t i = 0; i < shown; ++i)
    lines.push_back(
        fmt::format("{:<9} {}: {}", verdict_words(checks[i]->verdict), checks[i]->name, checks[i]->reason));
  std::string rest;
  for (std::size_t i = shown; i < checks.size(); ++i) rest += (rest.empty() ? "" : ", ") + checks[i]->name;
  if (!rest.empty()) lines.push_back("and       " + rest);
}

void add_worst(const std::vector<const Check*>& checks, std::vector<std::string>& lines) {
  const auto found = std::find_if(checks.begin(), checks.end(), [](const Check* c) { return c->worst; });
  if (found == checks.end()) return;
  const WorstElement& worst = *(*found)->worst;
  lines.push_back(fmt::format(
      "worst     {} is {:.9g}, expected {:.9g}{}", index_text(worst), worst.got, worst.expected,
      worst.bound > 0 ? fmt::format(", error/bound {}", digits(worst.ratio)) : std::string(", bit for bit")));
}

}  // namespace

std::string in_ten_lines(const CaseRecord& record, const std::string& replay) {
  const KernelId& kernel = record.kernel;
  std::vector<std::string> lines{fmt::format("{:<9} {}: {}, {}", verdict_words(record.verdict), kernel.name,
                                             operator_title(kernel), kernel.form)};
  lines.push_back("contract  " + contract_labels({kernel.contract}).at(0));
  const std::vector<const Check*> checks = decisive(record);
  add_reasons(checks, lines);
  const bool said = std::ranges::any_of(
      checks, [&](const Check* c) { return !c->reason.empty() && record.reason.ends_with(c->reason); });
  if (record.verdict != Verdict::pass && !said && !record.reason.empty())
    lines.push_back("reason    " + record.reason);
  add_worst(checks, lines);
  if (record.locate && !in_words(*record.locate).empty())
    lines.push_back("where     " + in_words(*record.locate));
  if (const std::string rest = record.verdict == Verdict::not_run ? "" : not_covered(record); !rest.empty())
    lines.push_back("uncovered " + rest);
  std::string text;
  for (const std::string& line : lines) text += printable(line, longest_line) + '\n';
  return text + "replay    " + replay;  // whole: it is to be repeated
}

}  // namespace attest
