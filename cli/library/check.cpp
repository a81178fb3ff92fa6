// attest::check and its kin: the battery and the single check on a kernel of this process.
#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/check.hpp"

#include <fmt/format.h>

#include <ostream>
#include <sstream>

#include "cli/library/under_test.hpp"
#include "gpu_checks/battery/battery.hpp"
#include "reference/cases/checksum.hpp"
#include "reference/cases/drawn_seed.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"
#include "reports/check_record.hpp"
#include "reports/summary.hpp"
#include "reports/ten_lines.hpp"

namespace attest {
namespace {

Result to_result(const CaseRecord& record, const std::string& replay) {
  Result result;
  result.verdict = verdict_words(record.verdict);
  for (const Check& check : record.checks) {
    result.checks.push_back({check.name, verdict_words(check.verdict), check.reason});
    const bool decided = check.verdict == record.verdict && record.verdict != Verdict::pass;
    if (decided && result.first_bad.empty()) result.first_bad = check.name;
  }
  result.lines = in_ten_lines(record, "");
  result.replay = replay;
  return result;
}

std::string replay_of(const Result& result) {
  std::string text = fmt::format("attest::check(kernel, {{.seed = {}", result.seed);
  if (result.full) text += ", .full = true";
  if (!result.first_bad.empty()) text += fmt::format(", .only = \"{}\"", result.first_bad);
  return text + "})";
}

Result judge_value(const Kernel& kernel, const Case& input, const Problem& problem,
                   const std::string& replay) {
  return to_result(to_record(check_one(kernel, input, problem)), replay);
}

}  // namespace

std::string Result::summary(const std::string& words) const {
  return lines + (words.empty() ? replay : words);
}

std::ostream& operator<<(std::ostream& out, const Result& result) { return out << result.summary(); }

Result check(const KernelUnderTest& given, const CheckOptions& options) {
  return refusing([&] {
    const Kernel kernel = to_kernel(given);
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant),
                                 options.seed ? *options.seed : drawn_seed(),
                                 options.full ? Effort::full : Effort::quick};
    Result result = to_result(to_record(context, run_battery(context, options.only)), "");
    result.seed = context.seed, result.full = options.full;
    result.replay = replay_of(result);
    return result;
  });
}

Result check_case(const KernelUnderTest& given, const std::string& case_line) {
  return refusing([&] {
    const Kernel kernel = to_kernel(given);
    const Case input = parse_case(case_line);
    if (input.op != kernel.op || input.variant != kernel.variant)
      throw BadInput(fmt::format("attest: case {}: expected one of {} ({}), which the kernel computes",
                                 in_quotes(case_line), kernel.op, kernel.variant));
    if (!input.drawn()) verify_checksum(input);
    const Problem problem = problem_of(input, operator_named(input.op, input.variant).declaration());
    return judge_value(kernel, input, problem,
                       fmt::format("attest::check_case(kernel, \"{}\")", to_text(input)));
  });
}

Result check_input(const KernelUnderTest& given, const TestInput& input) {
  return refusing([&] {
    const Kernel kernel = to_kernel(given);
    const Declaration& declaration = operator_named(kernel.op, kernel.variant).declaration();
    const Problem problem = to_problem(input, declaration, "attest: input", false);
    Case label;  // not drawn: its values are anybody's
    label.op = kernel.op, label.variant = kernel.variant, label.input = "memory";
    label.tokens = problem.tokens, label.options = problem.options;
    return judge_value(kernel, label, problem, "attest::check_input(kernel, input) with this input");
  });
}

TestInput draw_input(const std::string& case_line) {
  return refusing([&] {
    const Case drawn = parse_case(case_line);
    const Problem problem = problem_of(drawn, operator_named(drawn.op, drawn.variant).declaration());
    TestInput input;
    for (const auto& [name, tensor] : problem.fields) input.fields[name] = {tensor.shape, tensor.data};
    if (!problem.cu_seqlens.empty())
      input.fields["cu_seqlens"] = {{static_cast<Index>(problem.cu_seqlens.size())},
                                    {problem.cu_seqlens.begin(), problem.cu_seqlens.end()}};
    std::istringstream options(to_text(problem.options));
    for (std::string option; options >> option;) input.options.push_back(option);
    return input;
  });
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

std::vector<std::string> gate_recipe_names() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : gate_recipes()) names.push_back(recipe.name);
  return names;
}

}  // namespace attest
