// attest report: the records of one or several runs in the form in which somebody reads them.
#include <iostream>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reports/csv.hpp"
#include "reports/html.hpp"
#include "reports/junit.hpp"
#include "reports/markdown.hpp"
#include "reports/merge.hpp"
#include "reports/sarif.hpp"

namespace attest {
namespace {

struct Rendering {
  const char *option, *description;
  std::string (*render)(const MergedRecords&);
};

constexpr Rendering renderings[] = {
    {"--html", "one self-contained page", [](const MergedRecords& m) { return render_html(m.records); }},
    {"--markdown",
     "for a terminal, a comment or the summary of a GitHub job; never above 1 MiB, what is cut is said",
     [](const MergedRecords& m) { return fit_markdown(render_markdown(m.records), markdown_limit); }},
    {"--junit", "JUnit XML for Jenkins, GitHub and GitLab",
     [](const MergedRecords& m) { return render_junit(m.records); }},
    {"--csv", "a line per case, RFC 4180", [](const MergedRecords& m) { return render_csv(m.records); }},
    {"--sarif", "SARIF 2.1.0 for code scanning: what did not pass",
     [](const MergedRecords& m) { return render_sarif(m); }},
};

struct Arguments {
  std::vector<std::string> records;
  std::string output;
  bool chosen[std::size(renderings)] = {};
};

void report(const Arguments& arguments) {
  std::vector<std::filesystem::path> records;
  for (const std::string& path : arguments.records) records.push_back(records_at(path));
  std::optional<AtomicFile> file;
  if (!arguments.output.empty()) {
    for (const auto& path : records)
      refuse_same_file("--output", arguments.output, "the records", path.string());
    file.emplace(arguments.output);
  }
  const MergedRecords merged = read_merged(records);
  if (!merged.records.complete) note("a run did not finish: the report says so");
  for (std::size_t i = 0; i < std::size(renderings); ++i) {
    if (!arguments.chosen[i]) continue;
    const std::string text = renderings[i].render(merged);
    if (file)
      file->write(text), file->commit();
    else
      std::cout << text;
  }
}

}  // namespace

void add_report(CLI::App& app, int&) {
  auto* command = app.add_subcommand("report", "records as a page, Markdown, JUnit, CSV or SARIF");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option(
          "RECORDS", arguments->records,
          "files records.jsonl of attest check, or the folders that its --output made; several are merged")
      ->required();
  auto* form = command->add_option_group("form", "exactly one of");
  for (std::size_t i = 0; i < std::size(renderings); ++i)
    form->add_flag(renderings[i].option, arguments->chosen[i], renderings[i].description);
  form->require_option(1);
  add_path(command, "--output", arguments->output, "the file to write; standard output by default");
  command->footer(std::string(exit_codes) +
                  "A report that could be made exits with 0, whatever it says.\n"
                  "Example: attest report /tmp/report --junit --output junit.xml");
  command->callback([arguments] { report(*arguments); });
}

}  // namespace attest
