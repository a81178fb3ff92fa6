// attest identify: which operator a kernel computes, or which fault of one.
#include "gpu_checks/identify.hpp"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/options.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

struct Arguments {
  std::string kernel, json;
  std::uint64_t seed = 1;
  std::size_t most = 5;
};

nlohmann::json document(const Kernel& kernel, const Identification& found) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const Candidate& c : found.candidates)
    candidates.push_back(
        {{"name", c.name}, {"near_miss", c.near_miss}, {"error", c.error}, {"matches", c.matches}});
  return {{"kernel", kernel.name},        {"declared", kernel.op + " (" + kernel.variant + ")"},
          {"threshold", found.threshold}, {"failure", found.failure},
          {"smallest", found.smallest},   {"candidates", candidates}};
}

// Whether it computes what it declares, and nothing else was closer.
bool print(const Kernel& kernel, const Identification& found, std::size_t most) {
  const std::string declared = kernel.op + " (" + kernel.variant + ")";
  if (!found.failure.empty()) {
    std::cout << kernel.name << ": cannot be identified: " << found.failure << '\n';
    return false;
  }
  const auto matching = found.matching();
  bool as_declared = false;
  for (const Candidate* c : matching) as_declared |= c->name == declared;
  if (matching.empty())
    std::cout << kernel.name << ": matches none of " << found.candidates.size() << " candidates; declared "
              << declared << "; smallest such case: " << found.smallest << '\n';
  else
    std::cout << fmt::format(
        "{}: computes {}{}; the next candidate is {:.0f} times as far away\n", kernel.name, matching[0]->name,
        as_declared ? ", as declared" : ", NOT the declared " + declared, found.margin());
  for (std::size_t i = 0; i < std::min(most, found.candidates.size()); ++i)
    std::cout << fmt::format("  {:.2e}  {}{}\n", found.candidates[i].error, found.candidates[i].name,
                             found.candidates[i].matches ? "  matches" : "");
  return as_declared;
}

int run(const Arguments& arguments) {
  const auto kernels = find_kernels(arguments.kernel, "");
  if (kernels.empty()) throw BadInput("no kernel matches --kernel " + in_quotes(arguments.kernel));
  nlohmann::json all = nlohmann::json::array();
  bool as_declared = true;
  for (const Kernel* kernel : kernels) {
    const Identification found = identify(*kernel, arguments.seed);
    as_declared &= print(*kernel, found, arguments.most);
    all.push_back(document(*kernel, found));
  }
  if (!arguments.json.empty())
    write_file_atomically(arguments.json,
                          nlohmann::json{{"schema", "attest.identify/1"}, {"kernels", all}}.dump(1) + "\n");
  return as_declared ? exit_passed : exit_failed;
}

}  // namespace

void add_identify(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("identify", "which operator a kernel computes, or which usual fault of one");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--kernel", arguments->kernel,
                      "glob of kernel names; all by default, behind a door its own");
  command->add_option("--most", arguments->most, "candidates shown for each kernel")->capture_default_str();
  command->add_option("--json", arguments->json, "all candidates, to this file");
  command->add_option("--seed", arguments->seed, "of the problem that is drawn")->capture_default_str();
  const auto doors = add_door_options(*command);
  command->footer(std::string(exit_codes) +
                  "Here 0: every kernel computes what it declares; 1: one does not, or nothing matches.\n"
                  "Example: attest identify --kernel 'cpu.hla2.printed.*.fp32'");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    exit_code = run(*arguments);
  });
}

}  // namespace attest
