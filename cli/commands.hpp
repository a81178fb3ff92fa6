// The subcommands of attest, each in its own file: add_NAME() describes its command line and what runs when it is
// chosen, which sets exit_code (0 passed, 1 failed, 2 bad input, 3 undecided). BadInput may be thrown anywhere.
#pragma once
#include <CLI/CLI.hpp>

namespace attest {

void add_list(CLI::App& app, int& exit_code);
void add_prove(CLI::App& app, int& exit_code);
void add_reference(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);

}  // namespace attest
