#include "cli/doors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "cli/options.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "gpu_checks/kernel.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

std::shared_ptr<DoorOptions> add_door_options(CLI::App& command, const std::string& which) {
  auto doors = std::make_shared<DoorOptions>();
  command
      .add_option(
          "--plugin", doors->plugins,
          "PATH[:NAME-GLOB] of a shared library with kernels (gpu_checks/adapters/attest_kernel.h); " +
              which + ". Repeatable")
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

void add_devices(CLI::App& command, const std::shared_ptr<DoorOptions>& doors, const std::string& what_for) {
  command
      .add_option_function<std::string>(
          "--devices",
          [doors](const std::string& list) {
            doors->devices = parse_devices(list);
            require_visible(doors->devices);
            setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);  // before CUDA is started: the oracle's too
          },
          "CUDA devices to use, such as 0,1: one worker of a plug-in or process on each, and " + what_for +
              " spread over them; all visible ones by default")
      ->type_name("LIST");
  command.preparse_callback([doors](std::size_t) {
    if (const auto visible = visible_devices(); visible.size() > 1) doors->devices = visible;
  });
}

Index all_workers(const DoorOptions& doors) {
  return doors.workers * std::max<Index>(1, std::ssize(doors.devices));
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

std::string no_kernel_matches(const std::string& kernel, const std::string& op, const std::string& globs) {
  constexpr std::size_t most_names = 12;
  std::vector<std::string> names;
  for (const Kernel* one : find_kernels("*", ""))
    if (!one->source.empty()) names.push_back(in_quotes(one->name));
  const std::size_t more = names.size() - std::min(names.size(), most_names);
  names.resize(names.size() - more);
  return fmt::format(
      "no kernel matches{}{}, expected {}globs such as {}{}",
      kernel.empty() ? "" : " --kernel " + in_quotes(kernel),
      op.empty() ? "" : " --operator " + in_quotes(op),
      names.empty() ? ""
                    : fmt::format("of --plugin and --process {}{}, or ", fmt::join(names, ", "),
                                  more > 0 ? fmt::format(" (and {} more)", more) : ""),
      globs,
      kernel.starts_with("mutant.")
          ? "; mutants are judged by attest check --mutants, and hunted by attest fuzz --kernel"
          : "");
}

}  // namespace attest
