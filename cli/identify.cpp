// attest identify: which operator a kernel computes, or which fault of one.
#include "gpu_checks/identify.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/options.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

struct IdentifyArguments {
  std::string kernel, json;
  IdentifyRequest request;
  Index most = 5;
};

const char* word_of(Likeness likeness) {
  constexpr const char* words[] = {"computes", "likely", "resembles", "none"};
  return words[static_cast<int>(likeness)];
}

const char* word_of(Fit fit) {
  constexpr const char* words[] = {"within", "open", "beyond"};
  return words[static_cast<int>(fit)];
}

nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json document(const Kernel& kernel, const Identification& found) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const Candidate& c : found.candidates)
    candidates.push_back({{"name", c.name},
                          {"near_miss", c.near_miss},
                          {"same_as", c.same_as},
                          {"error", number(c.error)},
                          {"closest_quarter", number(c.quarter)},
                          {"bound", word_of(c.fit)},
                          {"error_over_bound", number(c.worst_ratio)},
                          {"undecided", c.undecided}});
  const Candidate* answer = found.answer();
  return {{"kernel", kernel.name},
          {"declared", found.declared},
          {"verdict", word_of(found.likeness)},
          {"answer", answer ? nlohmann::json(answer->name) : nlohmann::json(nullptr)},
          {"as_declared", found.as_declared},
          {"confidence", found.confidence},
          {"where", found.where},
          {"final_states", found.states},
          {"compared", found.compared},
          {"failure", found.failure},
          {"smallest", found.smallest},
          {"candidates", candidates}};
}

std::string verdict_line(const Kernel& kernel, const Identification& found) {
  const Candidate* answer = found.answer();
  if (!answer)
    return fmt::format("matches none of {} candidates; declared {}", found.candidates.size(), found.declared);
  const std::string against =
      answer->name == found.declared
          ? (found.states.empty() ? ", as declared" : ", as declared, but for its final states")
          : ", NOT the declared " + found.declared;
  if (found.likeness == Likeness::computes)
    return fmt::format("computes {}{}: every value is within its bound (at most {:.2g} of it)", answer->name,
                       against, answer->worst_ratio);
  if (found.likeness == Likeness::likely)
    return fmt::format("most likely computes {}{}, but no bound says so: {}", answer->name, against,
                       answer->undecided);
  return fmt::format(
      "resembles {}, but {:.2g} % of the values are beyond its bound (at most {:.2g} times; {}): run attest "
      "check{} "
      "--kernel {} --battery",
      answer->name == found.declared ? answer->name + ", the declared" : answer->name + against,
      100 * answer->share_beyond, answer->worst_ratio, found.where,
      kernel.source.empty() ? "" : " " + kernel.source, kernel.name);
}

void print(const Kernel& kernel, const Identification& found, Index most) {
  if (!found.failure.empty()) {
    std::cout << kernel.name << (found.unsupported ? ": not run: " : ": cannot be identified: ")
              << found.failure << '\n';
    return;
  }
  std::cout << kernel.name << ": " << verdict_line(kernel, found) << '\n';
  const auto also = [](const char* what, const std::string& text) {
    if (!text.empty()) std::cout << "  " << what << text << '\n';
  };
  also("final states: ", found.states);
  also("confidence: ", found.confidence);
  also("smallest input on which nothing fits: ", found.smallest);
  also("compared on ", found.compared +
                           "\n  this says which operator, not that the kernel is right: attest check "
                           "--battery does");
  for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(most), found.candidates.size()); ++i) {
    const Candidate& c = found.candidates[i];
    const char* fit = c.fit == Fit::within ? "within bound  "
                      : c.fit == Fit::open ? "no bound      "
                                           : "              ";
    std::cout << fmt::format("  L2 {:.2e}  {}{}{}\n", c.error, fit, c.name,
                             c.same_as.empty() ? "" : ", here the same as " + c.same_as);
  }
}

int exit_code_of(const Identification& found) {
  if (!found.as_declared || found.likeness == Likeness::resembles) return exit_failed;
  return found.likeness == Likeness::computes ? exit_passed : exit_undecided;
}

int run(const IdentifyArguments& arguments) {
  const auto kernels = find_kernels(arguments.kernel, "");
  if (kernels.empty()) throw BadInput("no kernel matches --kernel " + in_quotes(arguments.kernel));
  nlohmann::json all = nlohmann::json::array();
  int exit_code = exit_passed;
  bool any_ran = false;
  for (const Kernel* kernel : kernels) {
    const Identification found = identify(*kernel, arguments.request);
    print(*kernel, found, arguments.most);
    any_ran = any_ran || !found.unsupported;
    if (!found.unsupported && exit_code != exit_failed && exit_code_of(found) != exit_passed)
      exit_code = exit_code_of(found);
    all.push_back(document(*kernel, found));
  }
  if (!arguments.json.empty())
    write_file_atomically(arguments.json,
                          nlohmann::json{{"schema", "attest.identify/2"}, {"kernels", all}}.dump(1) + "\n");
  return any_ran ? exit_code : exit_nothing_ran;
}

}  // namespace

void add_identify(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("identify", "which operator a kernel computes, or which usual fault of one");
  auto arguments = std::make_shared<IdentifyArguments>();
  command->add_option("--kernel", arguments->kernel,
                      "glob of kernel names; all by default, behind a door its own");
  command->add_option(
      "--shape", arguments->request.shape,
      "what is drawn, as in attest check: T=300,d=16,dv=16,H=2,B=2,gates=uniform; by default small, "
      "with T above twice the chunk that the kernel declares (130 at least)");
  add_whole_number(command, "--most", arguments->most, 0, 1000, "candidates shown for each kernel")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "all candidates, to this file");
  command->add_option("--seed", arguments->request.seed, "of the first of three inputs that are drawn")
      ->capture_default_str();
  const auto doors = add_door_options(*command);
  command->footer(
      std::string(exit_codes) +
      "Here 0: every kernel computes what it declares; 1: one does not, or nothing fits within its bound; "
      "3: most likely so,\nbut the bound of the contract has no power; 77: none could run. It says which "
      "operator a kernel "
      "computes on three small inputs, not\nthat it is right: attest check --battery does that.\n"
      "Example: attest identify --kernel 'cpu.hla2.printed.*.fp32'");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    exit_code = run(*arguments);
  });
}

}  // namespace attest
