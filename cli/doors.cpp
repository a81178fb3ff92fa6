#include "cli/doors.hpp"

#include <fmt/format.h>

namespace attest {

std::shared_ptr<DoorOptions> add_door_options(CLI::App& command) {
  auto doors = std::make_shared<DoorOptions>();
  command
      .add_option("--plugin", doors->plugins,
                  "PATH[:NAME-GLOB] of a shared library with kernels (gpu_checks/adapters/attest_kernel.h); "
                  "then only "
                  "these unless --kernel is given. Repeatable")
      ->allow_extra_args(false);
  command
      .add_option("--process", doors->processes,
                  "command whose process computes the kernels (gpu_checks/adapters/PROTOCOL.md). Repeatable")
      ->allow_extra_args(false);
  command
      .add_option("--time-limit", doors->seconds,
                  "seconds after which a call to such a kernel has failed (a process has 60 s more to "
                  "announce itself)")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command.add_flag("--strided", doors->strided,
                   "hand tensors with gaps between their rows to plug-ins that declare strides");
  return doors;
}

void open_kernels(const DoorOptions& options) {
  std::vector<Kernel> kernels = open_doors(options);
  for (Kernel& kernel : kernels) {
    if (options.seconds != DoorOptions().seconds)
      kernel.source += fmt::format(" --time-limit {}", options.seconds);
    if (options.strided) kernel.source += " --strided";
  }
  adopt_kernels(std::move(kernels));
}

}  // namespace attest
