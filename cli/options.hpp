// Options that every subcommand spells and refuses alike: whole numbers within limits, seeds, paths that are not empty.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/cases/drawn_seed.hpp"
#include "reference/tensor/problem.hpp"
#include "reports/shard.hpp"

namespace attest {

// Whole numbers of least .. most; anything else is refused with these words.
CLI::Option* add_whole_number(CLI::App* command, const std::string& name, Index& value, Index least,
                              Index most, const std::string& description);
CLI::Option* add_threads(CLI::App* command, int& threads, const std::string& of_what = "threads");
// 0 .. 2^64 - 1.
CLI::Option* add_seed(CLI::App* command, std::optional<std::uint64_t>& seed, const std::string& description);
CLI::Option* add_path(CLI::App* command, const std::string& name, std::string& path,
                      const std::string& description);

// --shard I/N: part I of N of the run.
CLI::Option* add_shard(CLI::App* command, std::optional<Shard>& shard, const std::string& of_what);
// Parts that draw seeds of their own are no parts of one run.
void require_seed(const std::optional<Shard>& shard, const std::optional<std::uint64_t>& seed);

// Two names of one file would have the second writer destroy what the first one holds.
void refuse_same_file(const std::string& option, const std::string& path, const std::string& other_option,
                      const std::string& other);

// The program as it was invoked, and the whole command line, as words of a shell.
void set_invocation(int argc, const char* const* argv);
const std::string& invoked_program();
const std::string& invoked_command();
std::string invoked_command_without(const std::string& flag);
// Without --shard and what says only where results go and how many threads there are: the same of all shards of a run.
std::string invoked_command_of_all_shards();

// "attest: note: ..." on stderr, every text once.
void note(const std::string& text);
// What a user may not expect of these inputs: NaN in a field, an option without effect.
void note_inputs(const Tensors& fields, const std::string& where);
void note_options(const Options& options);

}  // namespace attest
