// The battery and the kill matrix behind `attest check --battery` and `--mutants`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reports/shard.hpp"

namespace attest {

struct BatteryArguments {
  std::string kernel, op, check, output, json;
  std::optional<std::uint64_t> seed;
  Effort effort = Effort::quick;
  int threads = 0;
  bool resume = false;
  std::optional<Shard> shard = {};
  int workers = 1;  // of a door
};

// What --resume continues, below --output's folder while a run is in progress (reports/record_journal.hpp).
inline constexpr const char* journal_name = "records.journal";

// The kill matrix as a document, below --output's folder (gpu_checks/mutants/kill_matrix_json.hpp).
inline constexpr const char* kill_matrix_name = "kill_matrix.json";

// All that a kernel says of itself, in a line.
std::string kernel_identity(const Kernel& kernel);
// The seed that was given, that of the run in `output` which is resumed, or a drawn one.
std::uint64_t seed_of_run(const std::optional<std::uint64_t>& given, bool resume, const std::string& output);
// The shard of this run, of so many cases in all.
Shard shard_of_run(const Shard& shard, Index cases, const std::string& version,
                   const std::string& cases_sha256);
// "time, summed over threads: oracle 0.12 s (3 evaluations), kernels 0.01 s, overhead 0.30 s"
std::string times_text(const OracleCache& oracle, std::int64_t kernel_ns, std::int64_t judging_ns);

// version: of the program, for --resume.
int check_battery(const BatteryArguments& arguments, const struct Run& run, const std::string& version);
int check_mutants(const BatteryArguments& arguments, const std::string& version);
// 1 where a mutant survives that is no equivalent of the right kernel.
int exit_code_of(const struct KillMatrix& matrix);

}  // namespace attest
