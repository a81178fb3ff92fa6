// attest list: operators, variants, forms and options, made from the operators' own declarations.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/options.hpp"
#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/kernel.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/operator.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Cells = std::vector<std::string>;

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) text += (text.empty() ? "" : " ") + entry;
  return text;
}

std::vector<std::string> fields_of(const Declaration& d) {
  std::vector<std::string> list{"q", "k", "v"};
  if (d.gates) list.push_back("g|alpha");
  if (d.beta) list.push_back("beta");
  if (d.level_scales) list.push_back("level_scales");
  return list;
}
std::vector<std::string> options_of(const Declaration& d) {
  std::vector<std::string> list{"scale"};
  if (d.decay) list.push_back("decay");
  if (d.ridge) list.push_back("ridge");
  if (d.normalize) list.insert(list.end(), {"normalize", "epsilon"});
  return list;
}
std::vector<std::string> forms_of(const Declaration& d) {
  std::vector<std::string> list;
  for (Form form : d.forms)
    list.push_back(std::string(form_name(form)) +
                   (!d.decayed_scan && (form == Form::scan || form == Form::chunk) ? "(undecayed)" : ""));
  return list;
}
std::vector<std::string> state_of(const Declaration& d) {
  std::vector<std::string> list;
  for (const Moment& moment : d.moments)
    list.push_back(moment.normaliser.empty() ? moment.name : moment.name + "/" + moment.normaliser);
  if (d.level_scales) list.push_back("position");
  return list;
}

const Cells header{"operator", "variant", "forms", "fields", "options", "state (/normaliser)"};

Cells row_of(const Declaration& d) {
  return {d.name,
          d.variant,
          joined(forms_of(d)),
          joined(fields_of(d)),
          joined(options_of(d)),
          joined(state_of(d))};
}

std::string line_of(const Cells& cells, const std::vector<std::size_t>& widths, bool markdown) {
  std::string line = markdown ? "|" : "";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::string cell = cells[i];
    for (std::size_t at = 0; markdown && (at = cell.find('|', at)) != std::string::npos; at += 2)
      cell.insert(at, "\\");
    line += markdown ? fmt::format(" {} |", cell) : fmt::format("{:<{}}  ", cell, widths[i]);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + '\n';
}

std::string table_of(const std::vector<Cells>& rows, bool markdown) {
  const std::size_t columns = rows.front().size();
  std::vector<std::size_t> widths(columns, 0);
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Cells& row : rows) {
    text += line_of(row, widths, markdown);
    if (markdown && &row == &rows.front()) text += line_of(Cells(columns, "---"), widths, true);
  }
  return text;
}

nlohmann::json document() {
  nlohmann::json operators = nlohmann::json::array();
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    operators.push_back({{"operator", d.name},
                         {"variant", d.variant},
                         {"formula", d.formula},
                         {"source", d.source},
                         {"forms", forms_of(d)},
                         {"algebras", d.algebras},
                         {"fields", fields_of(d)},
                         {"options", options_of(d)},
                         {"state", state_of(d)}});
  }
  return {{"schema", "attest.operators/1"}, {"version", ATTEST_VERSION}, {"operators", operators}};
}

// What there is to list: a table, and the same as a document.
struct Listing {
  std::vector<Cells> rows;
  nlohmann::json document;
};

Listing operators() {
  Listing listing{{header}, document()};
  for (const Operator* op : all_operators()) listing.rows.push_back(row_of(op->declaration()));
  return listing;
}

Listing kernels() {
  Listing listing{{{"kernel", "operator", "variant", "form", "contract"}}, {}};
  nlohmann::json list = nlohmann::json::array();
  for (const Kernel* kernel : find_kernels("", "")) {  // behind doors these alone
    const Kernel& k = *kernel;
    listing.rows.push_back({k.name, k.op, k.variant, k.form, to_text(k.contract)});
    list.push_back({{"kernel", k.name},
                    {"door", k.door},
                    {"operator", k.op},
                    {"variant", k.variant},
                    {"form", k.form},
                    {"contract", to_text(k.contract)},
                    {"features", k.features},
                    {"limits", k.limits}});
  }
  listing.document = {{"schema", "attest.kernels/1"}, {"version", ATTEST_VERSION}, {"kernels", list}};
  return listing;
}

Listing recipe_listing() {
  Listing listing{{{"key", "recipe", "what it draws"}}, {}};
  nlohmann::json list = nlohmann::json::array();
  const auto add = [&](const char* key, const std::vector<RecipeInfo>& infos) {
    for (const RecipeInfo& info : infos) {
      listing.rows.push_back({std::string(key) + '=', info.name, info.description});
      list.push_back({{"key", key},
                      {"name", info.name},
                      {"description", info.description},
                      {"independent", info.independent}});
    }
  };
  add("recipe", recipes());
  add("gates", gate_recipes());
  listing.document = {{"schema", "attest.recipes/1"}, {"version", ATTEST_VERSION}, {"recipes", list}};
  return listing;
}

Listing checks() {
  Listing listing{{{"check", "rule", "what it claims", "must kill"}}, {}};
  nlohmann::json list = nlohmann::json::array();
  for (const BatteryCheck& check : battery_checks()) {
    listing.rows.push_back({check.name, check.rule, check.law, std::string("families ") + check.families});
    list.push_back(
        {{"check", check.name}, {"rule", check.rule}, {"law", check.law}, {"families", check.families}});
  }
  listing.document = {{"schema", "attest.checks/1"}, {"version", ATTEST_VERSION}, {"checks", list}};
  return listing;
}

}  // namespace

void add_list(CLI::App& app, int&) {
  struct Arguments {
    bool markdown = false, formulas = false, kernels = false, recipes = false, checks = false;
    std::string json;
  };
  auto* command =
      app.add_subcommand("list", "operators, variants, forms and options; kernels; recipes; checks");
  auto arguments = std::make_shared<Arguments>();
  command->add_flag("--markdown", arguments->markdown, "a Markdown table");
  auto* formulas = command->add_flag("--formulas", arguments->formulas,
                                     "formula and source of each operator instead of the table");
  auto* of_kernels = command->add_flag("--kernels", arguments->kernels,
                                       "the kernels that attest check knows, with their contracts");
  auto* of_recipes =
      command->add_flag("--recipes", arguments->recipes, "the recipes that attest check draws inputs from");
  auto* of_checks = command->add_flag("--checks", arguments->checks,
                                      "the checks of the battery: law, rule, and the families of mutants "
                                      "that each must kill (attest check --mutants)");
  of_kernels->excludes(formulas)->excludes(of_recipes)->excludes(of_checks);
  of_recipes->excludes(formulas)->excludes(of_checks);
  of_checks->excludes(formulas);
  const auto doors = add_door_options(*command, "--kernels then lists only these");
  add_path(command, "--json", arguments->json, "also write what is listed to this file");
  command->footer(std::string(exit_codes) + "Example: attest list --kernels --plugin ./libmine.so");
  command->callback([arguments, doors] {
    if (!arguments->kernels && !(doors->plugins.empty() && doors->processes.empty()))
      throw BadInput("--plugin and --process offer kernels, expected --kernels beside them");
    open_kernels(*doors);
    const Listing listing = arguments->kernels   ? kernels()
                            : arguments->recipes ? recipe_listing()
                            : arguments->checks  ? checks()
                                                 : operators();
    if (!arguments->json.empty()) write_file_atomically(arguments->json, listing.document.dump(1) + "\n");
    if (!arguments->formulas) {
      std::cout << table_of(listing.rows, arguments->markdown);
      return;
    }
    for (const Operator* op : all_operators()) {
      const Declaration& d = op->declaration();
      std::cout << fmt::format("{} {}\n  {}\n  {}\n", d.name, d.variant, d.formula, d.source);
    }
  });
}

}  // namespace attest
