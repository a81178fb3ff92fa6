// The battery and the kill matrix behind `attest check --battery` and `--mutants`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "gpu_checks/battery/battery.hpp"

namespace attest {

struct BatteryArguments {
  std::string kernel, op, check, output, json;
  std::optional<std::uint64_t> seed;
  Effort effort = Effort::quick;
  int threads = 0;
};

int check_battery(const BatteryArguments& arguments, const struct Run& run);
int check_mutants(const BatteryArguments& arguments);

}  // namespace attest
