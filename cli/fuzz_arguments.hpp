// What the command line of attest fuzz says, and what it is handed to.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/hunt.hpp"
#include "gpu_checks/adapters/doors.hpp"
#include "reports/shard.hpp"

namespace attest {

struct FuzzArguments {
  std::string kernel, op, corpus, json, junit, output;
  Objective objective = Objective::fail;
  std::optional<double> seconds;
  Index cases = 0, batch = 16;
  Index workers = 0;  // on each device; 0: as the machine has it
  std::optional<std::uint64_t> seed;
  int threads = 0;
  std::optional<Shard> shard;
  bool minimise = false, resume = false;
};

// The kernels that match --kernel and --operator; BadInput where there are none.
std::vector<Subject> subjects_of(const std::string& kernel, const std::string& op, const DoorOptions& doors);

int run_hunt(const FuzzArguments& arguments, const DoorOptions& doors);      // fuzz_run.cpp
int run_minimise(const FuzzArguments& arguments, const DoorOptions& doors);  // fuzz_minimise.cpp

}  // namespace attest
