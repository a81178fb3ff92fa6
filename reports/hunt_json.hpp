// What attest fuzz has found as a document (schema attest.fuzz/1): {"schema", "command", "seed", "objective", "kernels":
// [{"kernel", "cases", "decided", "grid": {CELL: error/bound}, "checks", "findings": [...], ...}], "corpus"}.
// The shards of a hunt (--shard) are hunts of their own seeds: joined, counts are sums (seconds too), the grid has the
// largest error/bound of every cell, and findings of one cause are one: the smallest shrunk input, with the shard that found it.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "fuzz/hunt.hpp"

namespace attest {

inline constexpr const char* hunt_schema = "attest.fuzz/1";
inline constexpr const char* hunt_name = "fuzz.json";  // in the folder of --output

nlohmann::ordered_json to_json(const HuntReport& report);

// What the page and JUnit show of a document.
struct Hunts {
  std::string command;
  bool interrupted = false;
  std::vector<HuntReport> reports;
};
Hunts read_hunts(const nlohmann::ordered_json& document, const std::string& where);  // BadInput
Hunts read_hunts(const std::filesystem::path& path);
// The document of a hunt, or that of the folder which attest fuzz --output made; empty: it is none.
std::filesystem::path hunt_at(const std::filesystem::path& path);

// BadInput as join_shards.hpp, and for a hunt that was killed (its folder holds journals) or interrupted: what was done.
nlohmann::ordered_json join_hunts(const std::vector<std::filesystem::path>& paths);

}  // namespace attest
