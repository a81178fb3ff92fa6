// attest: the program. Everything wrong with the command line or with an input is one line on stderr and exit 2.
#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "reference/numeric/keep_memory.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reference/tensor/temporaries.hpp"

namespace attest {
namespace {

// Of the ranks of mpirun the first one speaks.
int refuse(std::string_view what) {
  // In one piece: mpirun may end the job, and what it passes on, between two writes.
  if (launched_rank() == 0)
    std::cerr << "attest: " + printable(what, 2000) + '\n';
  else  // mpirun ends the job with the first rank that fails, and the first has to have spoken
    std::this_thread::sleep_for(std::chrono::seconds(3));
  return exit_bad_input;
}

std::string subcommand_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({}))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

// CLI11 says much about a missing or unknown subcommand, and little that helps.
void check_subcommand(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2)
    throw BadInput("no subcommand, expected of: " + subcommand_names(app) + " (attest --help says more)");
  const std::string_view first = argv[1];
  if (first.starts_with('-')) return;
  const auto commands = app.get_subcommands({});
  if (std::ranges::none_of(commands, [&](const CLI::App* command) { return command->get_name() == first; }))
    throw BadInput("subcommand " + in_quotes(first) + ": unknown, expected of: " + subcommand_names(app));
}

int run_program(int argc, const char* const* argv) {
  CLI::App app{
      "attest decides whether a kernel of linear-time or higher-order attention computes what it claims, and "
      "how accurately.",
      "attest"};
  app.set_version_flag("--version", "attest " ATTEST_VERSION);
  app.require_subcommand(1);
  app.footer(
      std::string(exit_codes) +
      "Example: attest reference hla2 --input in.safetensors --output out.safetensors --option decay=3/4");
  int exit_code = exit_passed;
  add_list(app, exit_code);
  add_prove(app, exit_code);
  add_reference(app, exit_code);
  add_check(app, exit_code);
  add_report(app, exit_code);
  add_merge(app, exit_code);
  add_compare(app, exit_code);
  add_identify(app, exit_code);
  add_fuzz(app, exit_code);
  add_replay(app, exit_code);
  try {
    check_subcommand(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + " (attest " +
                  (argc > 1 && argv[1][0] != '-' ? std::string(argv[1]) + " " : "") + "--help says more)");
  } catch (const BadInput& error) {
    return refuse(error.what());
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for this input");
  } catch (const std::exception& error) {
    std::cerr << "attest: internal error: " << printable(error.what(), 2000) << '\n';
    return exit_internal;
  }
  return exit_code;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "worker") return attest::worker_main(argc, argv);
  attest::keep_memory();
  attest::remove_temporaries_on_signals();
  attest::set_invocation(argc, argv);
  const int exit_code = attest::run_program(argc, argv);
  std::cout.flush();
  if (std::cout) return exit_code;
  std::cerr << "attest: standard output cannot be written, expected room for the answer\n";
  return attest::exit_bad_input;
}
