// attest report: the records of one or several runs in the form in which somebody reads them.
#include <fmt/format.h>

#include <iostream>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reports/csv.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/html.hpp"
#include "reports/hunt_json.hpp"
#include "reports/hunt_junit.hpp"
#include "reports/junit.hpp"
#include "reports/markdown.hpp"
#include "reports/merge.hpp"
#include "reports/sarif.hpp"

namespace attest {
namespace {

struct Rendering {
  const char *option, *ending, *description;
  std::string (*render)(const MergedRecords&);
  std::string (*render_hunt)(const Hunts&) = nullptr;  // of attest fuzz
};

constexpr Rendering renderings[] = {
    {"--html", ".html", "one self-contained page",
     [](const MergedRecords& m) { return render_html(m.records); }, render_fuzz_page},
    {"--markdown", ".md",
     "for a terminal, a comment or the summary of a GitHub job; never above 1 MiB, what is cut is said",
     [](const MergedRecords& m) { return fit_markdown(render_markdown(m.records), markdown_limit); }},
    {"--junit", ".xml", "JUnit XML for Jenkins, GitHub and GitLab",
     [](const MergedRecords& m) { return render_junit(m.records); }, render_hunt_junit},
    {"--csv", ".csv", "a line per case, RFC 4180",
     [](const MergedRecords& m) { return render_csv(m.records); }},
    {"--sarif", ".sarif", "SARIF 2.1.0 for code scanning: what did not pass",
     [](const MergedRecords& m) { return render_sarif(m); }},
};

struct ReportArguments {
  std::vector<std::string> records;
  std::string output;
  bool chosen[std::size(renderings)] = {};
};

// The form asked for, or that of the end of the file's name; those of a hunt are fewer.
const Rendering& rendering_of(const ReportArguments& arguments, bool hunt) {
  std::string options, endings;
  for (std::size_t i = 0; i < std::size(renderings); ++i)
    if (arguments.chosen[i]) return renderings[i];
  for (const Rendering& rendering : renderings) {
    if (arguments.output.ends_with(rendering.ending)) return rendering;
    if (hunt && !rendering.render_hunt) continue;
    options += std::string(rendering.option) + ", ";
    endings += ' ' + std::string(rendering.ending);
  }
  throw BadInput(fmt::format("no form is given, expected one of {}or --output with one of the endings{}{}",
                             options, endings, hunt ? ": the findings of attest fuzz have no others" : ""));
}

// Written at once, after `text` has had its say.
template <class Text>
void write_report(const ReportArguments& arguments, const std::vector<std::filesystem::path>& sources,
                  Text&& text) {
  std::optional<AtomicFile> file;
  if (!arguments.output.empty()) {
    for (const auto& path : sources)
      refuse_same_file("--output", arguments.output, "the records", path.string());
    file.emplace(arguments.output);
  }
  const std::string whole = text();
  if (file)
    file->write(whole), file->commit();
  else
    std::cout << whole;
}

void report_hunt(const ReportArguments& arguments, const Rendering& rendering,
                 const std::filesystem::path& hunt) {
  if (arguments.records.size() > 1)
    throw BadInput(
        in_quotes(hunt.native()) +
        ": the findings of attest fuzz, expected them alone (attest merge joins the shards of a hunt)");
  if (!rendering.render_hunt)
    throw BadInput(in_quotes(hunt.native()) +
                   ": the findings of attest fuzz have no such form, expected --html "
                   "or --junit, or the records of attest check");
  write_report(arguments, {hunt}, [&] { return rendering.render_hunt(read_hunts(hunt)); });
}

void report(const ReportArguments& arguments) {
  for (const std::string& path : arguments.records)
    if (const auto hunt = hunt_at(path); !hunt.empty())
      return report_hunt(arguments, rendering_of(arguments, true), hunt);
  const Rendering& rendering = rendering_of(arguments, false);
  std::vector<std::filesystem::path> records;
  for (const std::string& path : arguments.records) records.push_back(records_at(path));
  write_report(arguments, records, [&] {
    const MergedRecords merged = read_merged(records);
    if (!merged.records.complete) note("a run did not finish: the report says so");
    return rendering.render(merged);
  });
}

}  // namespace

void add_report(CLI::App& app, int&) {
  auto* command = app.add_subcommand("report", "records as a page, Markdown, JUnit, CSV or SARIF");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("RECORDS", arguments->records,
                   "files records.jsonl of attest check, or the folders that its --output made; several are "
                   "merged. Or what one "
                   "attest fuzz left there (fuzz.json), as a page or JUnit")
      ->required();
  auto* form = command->add_option_group("form", "one of; without any that of the ending of --output");
  for (std::size_t i = 0; i < std::size(renderings); ++i)
    form->add_flag(renderings[i].option, arguments->chosen[i], renderings[i].description);
  form->require_option(0, 1);
  add_path(command, "--output", arguments->output, "the file to write; standard output by default");
  command->footer(std::string(exit_codes) +
                  "A report that could be made exits with 0, whatever it says.\n"
                  "Example: attest report /tmp/report --output page.html");
  command->callback([arguments] { report(*arguments); });
}

}  // namespace attest
