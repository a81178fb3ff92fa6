// One of n parts of a run (`--shard i/n`): which cases it holds, and what has to agree before the parts are joined again
// (join_shards.hpp). Member "shard" of a run, a ledger or a kill matrix; a whole run has none.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace attest {

struct Shard {
  std::int64_t index = 1, of = 1;  // 1 <= index <= of
  std::int64_t cases = 0;          // of the whole run
  std::string command;       // of the whole run, without where its results go and how many threads it has
  std::string version;       // of the program, with its commit
  std::string cases_sha256;  // of all kernels and inputs, or claims

  // Cases, or groups of them that one shard has to have together, are dealt like cards.
  bool holds(std::int64_t group) const { return group % of == index - 1; }
};

// "2/3"; BadInput for anything that is no part of a whole.
Shard parse_shard(std::string_view text);
std::string to_text(const Shard& shard);

nlohmann::ordered_json to_json(const Shard& shard);
Shard read_shard(const nlohmann::json& value, const std::string& where);  // BadInput, beginning with `where`

}  // namespace attest
