#include "reports/markdown.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/tensor/atomic_file.hpp"
#include "reports/escape.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

std::string figure_cells(const CaseRecord& record) {
  const auto* tensor = measured_tensor(record);
  if (!tensor) return "– | – | – | –";
  const auto& error = tensor->second;
  const auto three = [](const Quantiles& q) {
    return fmt::format("{} / {} / {}", digits(q.p50), digits(q.p99), digits(q.max));
  };
  return fmt::format("{} | {} | {} | {}", error.bounded ? three(error.ratio) : "no bound", three(error.ulp),
                     error.norm ? digits(*error.norm) : "–",
                     !error.bounded       ? "–"
                     : error.power >= 0.5 ? percent(error.power)
                                          : percent(error.power) + " (no power)");
}

std::string oracle_cell(const CaseRecord& record) {
  if (!record.oracle) return "–";
  return markdown_text(record.oracle->method) +
         (record.oracle->bits ? fmt::format(" {} bits", record.oracle->bits) : "");
}

std::string kernel_row(const KernelSummary& kernel) {
  const auto& record = *kernel.measured;
  return fmt::format("| {} | {} | {} | **{}** | {} | {} | {} | {} |\n", markdown_code(kernel.kernel->name),
                     markdown_text(operator_title(*kernel.kernel)), markdown_text(kernel.kernel->form),
                     verdict_words(kernel.verdict), kernel.cases.size(), figure_cells(record),
                     oracle_cell(record), record.time ? duration(record.time->kernel_ns) : "–");
}

std::string problem(const KernelSummary& kernel) {
  const auto& record = *kernel.quoted;
  std::string text =
      fmt::format("- **{}** {}: {}\n", verdict_words(kernel.verdict), markdown_code(kernel.kernel->name),
                  record.reason.empty() ? "no reason given" : markdown_text(record.reason));
  for (const auto& check : record.checks)
    if (severity(check.verdict) > 1)
      text += fmt::format("  - {} ({}): {} of {} violated\n", markdown_text(check.name),
                          to_string(check.rule), check.violations, check.compared);
  if (!record.worst.empty()) {
    const auto& w = record.worst.front();
    text += fmt::format("  - worst {}: expected {}, got {}, bound {}, error/bound {}\n",
                        markdown_code(index_text(w)), markdown_code(to_hex_float(w.expected)),
                        markdown_code(to_hex_float(w.got)), markdown_code(to_hex_float(w.bound)),
                        digits(w.ratio));
  }
  return text + fmt::format("  - replay: {}\n", markdown_code(replay_of(record)));
}

}  // namespace

std::string render_markdown(const Records& records) {
  const auto kernels = summarise(records);
  const auto& end = records.end;
  std::string text = fmt::format("## {}\n\n", headline(records));
  text += fmt::format(
      "{} pass, {} fail, {} suspect, {} undecided, {} not run, of {} cases. {}Commit {}, {}.\n\n{}\n",
      end.pass, end.fail, end.suspect, end.undecided, end.not_run, end.cases,
      records.run.seed ? fmt::format("Seed {}. ", *records.run.seed) : "", markdown_code(records.run.commit),
      markdown_text(records.run.compiler), markdown_code(records.run.command));
  if (!kernels.empty()) {
    text +=
        "\n| kernel | operator | form | verdict | cases | error/bound p50 / p99 / max | ulps p50 / p99 / max "
        "| relative L2 | power | oracle | time |\n"
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |\n";
    for (const auto& kernel : kernels) text += kernel_row(kernel);
    text += "\nThe verdict is that of a kernel's worst case, the figures are those of its longest.\n";
    std::string elsewhere;
    for (const auto& kernel : kernels)
      if (const std::string worse = worse_elsewhere(kernel); !worse.empty())
        elsewhere += fmt::format("- {}: {}\n", markdown_code(kernel.kernel->name), worse);
    if (!elsewhere.empty()) text += "\nWorse in a shorter case:\n\n" + elsewhere;
  }
  if (const auto reasons = undecided_reasons(records); !reasons.empty()) {
    text += "\n### Why undecided\n\n";
    for (const auto& reason : reasons)
      text += fmt::format("- **{}**: {} cases of {} kernels, for example: {}\n", markdown_text(reason.kind),
                          reason.cases, reason.kernels, markdown_text(reason.example));
  }
  std::string problems;
  for (const auto& kernel : kernels)
    if (severity(kernel.verdict) > 1) problems += problem(kernel);
  if (!problems.empty()) text += fmt::format("\n### What did not pass\n\n{}", problems);
  return text;
}

std::string fit_markdown(const std::string& text, std::size_t limit) {
  if (text.size() <= limit) return text;
  constexpr std::size_t room = 100;  // for the last line
  const std::size_t end = text.rfind('\n', limit > room ? limit - room : 0);
  const std::size_t kept = end == std::string::npos ? 0 : end + 1;
  return text.substr(0, kept) +
         fmt::format("\n**Cut here: {} more lines do not fit.**\n",
                     std::count(text.begin() + static_cast<std::ptrdiff_t>(kept), text.end(), '\n'));
}

void write_markdown(const Records& records, const std::filesystem::path& path) {
  write_file_atomically(path, render_markdown(records));
}

void write_markdown(const std::filesystem::path& records, const std::filesystem::path& path) {
  write_markdown(read_records(records, Incomplete::accept), path);
}

}  // namespace attest
