// The doors beside the registered kernels (DESIGN "A kernel under test"): shared libraries (attest_kernel.h) and
// processes (PROTOCOL.md). Opening one gives its kernels; whatever their code does, running one gives a KernelResult
// in time: a crash, an endless loop, a write to foreign memory, a wrong or late answer is `failed` and says so, and the
// next call starts a fresh process.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "gpu_checks/adapters/region.hpp"
#include "gpu_checks/kernel.hpp"

namespace attest {

struct DoorOptions {
  std::vector<std::string> plugins;    // PATH or PATH:NAME-GLOB
  std::vector<std::string> processes;  // command lines for sh
  double seconds = 60;   // for one call; starting takes at most this or a minute, whichever is longer
  bool strided = false;  // tensors apart in memory for the plug-ins that declare strides
  std::vector<std::string>
      devices;        // a worker for each, which sees no other GPU; empty: one that sees what there is
  Index workers = 1;  // as many on each device
};

// BadInput for a door that cannot be opened or announces what cannot be. The kernels keep their process alive.
std::vector<Kernel> open_doors(const DoorOptions& options);
std::vector<Kernel> open_plugin(const std::string& path_and_glob, const DoorOptions& options);
std::vector<Kernel> open_process(const std::string& command, const DoorOptions& options);

// As one word of a shell's command line, always in quotes.
std::string quoted_word(const std::string& text);

}  // namespace attest
