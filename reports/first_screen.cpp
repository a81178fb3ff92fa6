#include "reports/first_screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "reports/escape.hpp"
#include "reports/html_parts.hpp"

namespace attest {
namespace {

constexpr std::size_t most_names = 3;

std::string kernels_of(std::size_t n) { return fmt::format("{} kernel{}", n, n == 1 ? "" : "s"); }

const char* are(std::size_t n) { return n == 1 ? "is" : "are"; }

std::string names_of(const std::vector<const KernelSummary*>& kernels) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kernels.size(), most_names); ++i)
    text += (i ? ", " : "") + name_code(kernels[i]->kernel->name);
  return text + (kernels.size() > most_names ? fmt::format(" and {} more", kernels.size() - most_names) : "");
}

// The kernels of each verdict, those of the largest error/bound first.
std::map<Verdict, std::vector<const KernelSummary*>> by_verdict(const std::vector<KernelSummary>& kernels) {
  std::map<Verdict, std::vector<const KernelSummary*>> sorted;
  for (const auto& kernel : kernels) sorted[kernel.verdict].push_back(&kernel);
  for (auto& [verdict, some] : sorted)
    std::stable_sort(some.begin(), some.end(), [](auto* a, auto* b) { return worse_kernel(*a, *b); });
  return sorted;
}

bool passes_all(const KernelSummary* kernel) {
  return std::ranges::all_of(kernel->quoted->checks,
                             [](const Check& check) { return check.verdict == Verdict::pass; });
}

std::string is_it_right(const Records& records, std::map<Verdict, std::vector<const KernelSummary*>> sorted) {
  std::vector<std::string> sentences;
  if (const auto& wrong = sorted[Verdict::fail]; !wrong.empty())
    sentences.push_back(fmt::format("<b>No.</b> {} fail{}: {}.", kernels_of(wrong.size()),
                                    wrong.size() == 1 ? "s" : "", names_of(wrong)));
  if (const auto& odd = sorted[Verdict::suspect]; !odd.empty())
    sentences.push_back(
        fmt::format("{} {} suspect: {}.", kernels_of(odd.size()), are(odd.size()), names_of(odd)));
  if (const auto& right = sorted[Verdict::pass]; !right.empty())
    sentences.push_back(
        fmt::format("{} pass{} every {}.", kernels_of(right.size()), right.size() == 1 ? "es" : "",
                    !of_the_battery(*right.front()->quoted)               ? "case"
                    : std::all_of(right.begin(), right.end(), passes_all) ? "check"
                                                                          : "check that could decide"));
  if (const auto& open = sorted[Verdict::undecided]; !open.empty()) {
    std::string why;
    for (const auto& reason : undecided_reasons(records))
      why += fmt::format("{}{} ({})", why.empty() ? "" : ", ", html_text(reason.kind),
                         kernels_of(reason.kernels));
    sentences.push_back(
        fmt::format("{} {} undecided on at least one case, where a pass would have proved nothing: {}.",
                    kernels_of(open.size()), are(open.size()), why));
  }
  if (const auto& idle = sorted[Verdict::not_run]; !idle.empty())
    sentences.push_back(
        fmt::format("{} {} not run.", kernels_of(idle.size()), idle.size() == 1 ? "was" : "were"));
  if (sentences.empty()) sentences.emplace_back("Nothing was run.");
  return fmt::format("{}", fmt::join(sentences, " "));
}

std::string output_format(const std::string& contract) {
  std::istringstream words(contract);
  for (std::string word; words >> word;)
    if (word.starts_with("output=")) return word.substr(7);
  return "unnamed format";
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end(), [](double a, double b) { return worse_number(b, a); });
  return values[(values.size() - 1) / 2];
}

// Of the kernels that pass: relative L2 error by the format of the output, and error/bound.
std::string how_good(const std::vector<KernelSummary>& kernels) {
  std::map<std::string, std::vector<double>> norms;
  std::vector<double> ratios;
  for (const auto& kernel : kernels) {
    if (kernel.verdict != Verdict::pass) continue;
    const auto* tensor = measured_tensor(*kernel.measured);
    if (tensor && tensor->second.norm)
      norms[output_format(kernel.kernel->contract)].push_back(*tensor->second.norm);
    if (kernel.extreme) ratios.push_back(worst_tensor(*kernel.extreme)->second.ratio.max);
  }
  std::string text;
  for (const auto& [format, values] : norms)
    text += fmt::format("{}<span class=\"whole\">{} <b>{}</b> (at worst {})</span>",
                        text.empty() ? "" : " · ", html_text(format), digits(median_of(values)),
                        digits(*std::max_element(values.begin(), values.end(),
                                                 [](double a, double b) { return worse_number(b, a); })));
  if (!text.empty())
    text = "Relative L2 error of the median kernel that passes, by output format: " + text + ". ";
  if (!ratios.empty())
    text += fmt::format("Largest error/bound of a kernel: {} in the median, at worst {}.",
                        digits(median_of(ratios)),
                        digits(*std::max_element(ratios.begin(), ratios.end(),
                                                 [](double a, double b) { return worse_number(b, a); })));
  if (!text.empty()) return text;
  const bool battery =
      std::any_of(kernels.begin(), kernels.end(), [](const auto& k) { return of_the_battery(*k.quoted); });
  return battery ? "The battery judges and does not measure; <code>attest check --shape</code> measures."
                 : "No kernel that passes was measured.";
}

const WorstElement* worst_element(const CaseRecord& record) {
  const WorstElement* worst = nullptr;
  const auto see = [&](const WorstElement& element) {
    if (!worst || worse_number(element.ratio, worst->ratio)) worst = &element;
  };
  for (const auto& element : record.worst) see(element);
  for (const auto& check : record.checks)
    if (check.worst && severity(check.verdict) >= severity(record.verdict)) see(*check.worst);
  return worst;
}

std::string at_element(const CaseRecord& record) {
  const WorstElement* worst = worst_element(record);
  if (!worst) return "";
  const std::string words = index_words(*worst);
  return fmt::format("at {}{}: expected {}, got {}, error/bound <b>{}</b>", code(index_text(*worst)),
                     words.empty() ? "" : " (" + words + ")", decimal(worst->expected), decimal(worst->got),
                     digits(worst->ratio));
}

std::string in_the_case(const CaseRecord& record) {
  return record.tokens ? fmt::format(", T = {}", *record.tokens) : "";
}

// The record that the last two answers are about: the worst that failed, else the one nearest to its bound.
const CaseRecord* telling(const std::vector<KernelSummary>& kernels) {
  const KernelSummary* worst = nullptr;
  for (const auto& kernel : kernels)
    if (severity(kernel.verdict) >= severity(Verdict::suspect) && (!worst || worse_kernel(kernel, *worst)))
      worst = &kernel;
  if (worst) return worst->quoted;
  for (const auto& kernel : kernels)
    if (kernel.extreme &&
        (!worst || worse_number(largest_ratio(*kernel.extreme), largest_ratio(*worst->extreme))))
      worst = &kernel;
  if (worst) return worst->extreme;
  for (const auto& kernel : kernels)
    if (!worst || worse_kernel(kernel, *worst)) worst = &kernel;
  return worst ? worst->quoted : nullptr;
}

std::string where_is_it_wrong(const CaseRecord& record) {
  const std::string name = name_code(record.kernel.name) + in_the_case(record);
  const std::string element = at_element(record);
  if (severity(record.verdict) < severity(Verdict::suspect)) {
    if (element.empty()) return "Nowhere found.";
    return fmt::format("Nowhere found. Nearest to its bound: {} {}.", name, element);
  }
  std::string text = fmt::format("{}: {}.", name, html_text(record.reason));
  if (record.locate)
    if (const auto where = where_words(*record.locate); !where.empty())
      text += fmt::format(" Where: {}.", where);
  return text + (element.empty() ? "" : fmt::format(" Worst {}.", element));
}

std::string answer(const char* question, const std::string& text) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", question, text);
}

}  // namespace

bool of_the_battery(const CaseRecord& record) {
  return record.error.empty() && record.case_line.find(" battery=") != std::string::npos;
}

std::string first_screen(const Records& records, const std::vector<KernelSummary>& kernels) {
  if (kernels.empty()) return "";
  const CaseRecord* record = telling(kernels);
  return "<dl class=\"card answers\">\n" + answer("Is it right?", is_it_right(records, by_verdict(kernels))) +
         answer("How good?", how_good(kernels)) + answer("Where is it wrong?", where_is_it_wrong(*record)) +
         answer("Replay", replay_line(replay_of(*record))) + "</dl>\n";
}

}  // namespace attest
