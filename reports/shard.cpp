#include "reports/shard.hpp"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr std::int64_t most_shards = 1'000'000;

bool whole(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool part_of_a_whole(const Shard& shard) {
  return shard.index >= 1 && shard.index <= shard.of && shard.of <= most_shards;
}

}  // namespace

Shard parse_shard(std::string_view text) {
  Shard shard;
  const std::size_t slash = text.find('/');
  if (slash == text.npos || !whole(text.substr(0, slash), shard.index) ||
      !whole(text.substr(slash + 1), shard.of) || !part_of_a_whole(shard))
    throw BadInput("--shard " + in_quotes(text) + ": expected I/N, part I of N with 1 <= I <= N <= 1000000");
  return shard;
}

std::string to_text(const Shard& shard) { return fmt::format("{}/{}", shard.index, shard.of); }

nlohmann::ordered_json to_json(const Shard& shard) {
  return {{"index", shard.index},     {"of", shard.of},           {"cases", shard.cases},
          {"command", shard.command}, {"version", shard.version}, {"cases_sha256", shard.cases_sha256}};
}

Shard read_shard(const nlohmann::json& value, const std::string& where) {
  const auto member = [&](const char* key, bool right) {
    if (!right) throw BadInput(fmt::format("{}: {}: expected a member of another kind", where, key));
    return value.at(key);
  };
  const auto number = [&](const char* key) {
    const bool right = value.contains(key) && value.at(key).is_number_integer();
    return member(key, right).get<std::int64_t>();
  };
  const auto text = [&](const char* key) {
    return member(key, value.contains(key) && value.at(key).is_string()).get<std::string>();
  };
  if (!value.is_object() || value.size() != 6) throw BadInput(where + ": expected an object of six members");
  const Shard shard{number("index"), number("of"),    number("cases"),
                    text("command"), text("version"), text("cases_sha256")};
  if (!part_of_a_whole(shard) || shard.cases < 0)
    throw BadInput(fmt::format("{}: shard {}/{} of {} cases: expected 1 <= index <= of <= {}", where,
                               shard.index, shard.of, shard.cases, most_shards));
  return shard;
}

}  // namespace attest
