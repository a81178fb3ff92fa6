// The options --plugin, --process, --time-limit and --strided of the subcommands that run kernels.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "gpu_checks/adapters/doors.hpp"

namespace attest {

// What the options name is opened, and its kernels found by find_kernels, once open_kernels() was called. Their source
// names every option of the door that is not its default, so that a replay line opens the same door.
std::shared_ptr<DoorOptions> add_door_options(
    CLI::App& command, const std::string& which = "then only these unless --kernel is given");
void open_kernels(const DoorOptions& options);
// "no kernel matches --kernel X --operator Y", of the two those that are given, and what is expected: names of the doors'
// kernels where there are any, and `globs`.
std::string no_kernel_matches(const std::string& kernel, const std::string& op, const std::string& globs);

// Adds --devices: the GPUs of the workers and of the oracle, all that are visible by default.
void add_devices(CLI::App& command, const std::shared_ptr<DoorOptions>& doors, const std::string& what_for);
// Of all devices.
Index all_workers(const DoorOptions& doors);

}  // namespace attest
