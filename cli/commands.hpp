// The subcommands of attest, each in its own file: add_NAME() describes its command line and what runs when it is
// chosen, which sets exit_code. BadInput may be thrown anywhere. Exit codes mean the same in every subcommand.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>

namespace attest {

enum ExitCode {
  exit_passed = 0,
  exit_failed = 1,
  exit_bad_input = 2,
  exit_undecided = 3,
  exit_internal = 70,
  exit_nothing_ran = 77,
  exit_interrupted = 130  // as a shell says it of what Ctrl-C has ended
};

// Of so many cases, kernels or checks; undecided: or suspect.
inline ExitCode exit_of(std::int64_t passed, std::int64_t failed, std::int64_t undecided) {
  return failed > 0      ? exit_failed
         : undecided > 0 ? exit_undecided
         : passed > 0    ? exit_passed
                         : exit_nothing_ran;
}

inline constexpr const char* exit_codes =
    "Exit codes: 0 all passed, 1 something failed, 2 usage or bad input, 3 undecided or suspect and none "
    "failed, 77 nothing "
    "could run, 70 internal error, 130 interrupted before anything failed.\n";

void add_list(CLI::App& app, int& exit_code);
void add_prove(CLI::App& app, int& exit_code);
void add_reference(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_merge(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_identify(CLI::App& app, int& exit_code);
void add_fuzz(CLI::App& app, int& exit_code);
void add_replay(CLI::App& app, int& exit_code);

}  // namespace attest
