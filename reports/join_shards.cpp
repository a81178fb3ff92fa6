#include "reports/join_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "reference/tensor/bad_input.hpp"
#include "reports/merge.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

struct Part {
  std::string path;
  Shard shard;
  std::optional<std::uint64_t> seed;
};

std::string seed_text(const std::optional<std::uint64_t>& seed) {
  return seed ? std::to_string(*seed) : "none";
}

void refuse_unless_equal(const Part& first, const Part& other, const char* what, const std::string& a,
                         const std::string& b) {
  if (a != b)
    throw BadInput(fmt::format("{}: {} {}, but {} has {}: expected the shards of one run", other.path, what,
                               printable(b, 300), first.path, printable(a, 300)));
}

void refuse_other_run(const Part& first, const Part& other) {
  const auto same = [&](const char* what, const std::string& a, const std::string& b) {
    refuse_unless_equal(first, other, what, a, b);
  };
  const Shard &a = first.shard, &b = other.shard;
  same("version", a.version, b.version);
  same("command", a.command, b.command);
  same("seed", seed_text(first.seed), seed_text(other.seed));
  same("number of shards", std::to_string(a.of), std::to_string(b.of));
  same("number of cases", std::to_string(a.cases), std::to_string(b.cases));
  same("kernels and inputs with SHA-256", a.cases_sha256, b.cases_sha256);
}

// Every shard of one run once: the files in the order of their shards.
std::vector<std::size_t> order_of(const std::vector<Part>& parts) {
  std::vector<std::size_t> order(static_cast<std::size_t>(parts.at(0).shard.of), parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    refuse_other_run(parts[0], parts[i]);
    std::size_t& place = order[static_cast<std::size_t>(parts[i].shard.index - 1)];
    if (place != parts.size())
      throw BadInput(fmt::format("{}: shard {} overlaps with {}: expected every shard once", parts[i].path,
                                 to_text(parts[i].shard), parts[place].path));
    place = i;
  }
  std::string missing;
  for (std::size_t i = 0; i < order.size() && missing.size() < 60; ++i)
    if (order[i] == parts.size()) missing += (missing.empty() ? "" : ", ") + std::to_string(i + 1);
  if (!missing.empty())
    throw BadInput(fmt::format("shard {} of {} is missing, expected every shard of {}", missing, order.size(),
                               printable(parts[0].shard.command, 300)));
  return order;
}

[[noreturn]] void refuse_whole(const std::string& path) {
  throw BadInput(path + ": is of a whole run, expected one that was made with --shard I/N");
}

std::string content_of(const std::filesystem::path& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored))
    throw BadInput(path.string() + ": cannot be read: expected what a shard has written");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string schema_in(const Json& json) {
  const bool has = json.is_object() && json.contains("schema") && json["schema"].is_string();
  return has ? json["schema"].get<std::string>() : "";
}

// Records, with what says which part of which run they are.
Records read_part(const std::filesystem::path& path, std::vector<Part>& parts) {
  Records records = read_records(path);
  if (!records.run.shard) refuse_whole(path.string());
  parts.push_back({path.string(), *records.run.shard, records.run.seed});
  return records;
}

Run run_of(const std::vector<Records>& files) {
  Run all;
  all.seed = files.at(0).run.seed;
  for (const Records& file : files) add_run(all, file.run);
  all.command = files[0].run.shard->command;
  all.started = std::min_element(files.begin(), files.end(), [](const Records& a, const Records& b) {
                  return a.run.started < b.run.started;
                })->run.started;
  return all;
}

struct Place {
  std::int64_t index;
  const CaseRecord* record;
  std::size_t file;
};

// Every case of the run once, in their order.
std::vector<Place> places_of(const std::vector<Records>& files, const std::vector<Part>& parts) {
  const std::int64_t total = parts.at(0).shard.cases;
  std::vector<Place> places;
  for (std::size_t f = 0; f < files.size(); ++f)
    for (const CaseRecord& record : files[f].cases) {
      places.push_back({record.index.value_or(total), &record, f});
      if (places.back().index >= total)
        throw BadInput(
            fmt::format("{}: a case has no index below {}: expected one of the run", parts[f].path, total));
    }
  std::ranges::stable_sort(places, {}, &Place::index);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (i > 0 && places[i].index == places[i - 1].index)
      throw BadInput(fmt::format("{}: case {} is in {} too: expected every case once",
                                 parts[places[i].file].path, places[i].index,
                                 parts[places[i - 1].file].path));
  for (std::int64_t i = 0; i < total; ++i)
    if (i >= std::ssize(places) || places[static_cast<std::size_t>(i)].index != i)
      throw BadInput(fmt::format("case {} of {} is in no file: expected every case once", i, total));
  return places;
}

Json document_at(const std::filesystem::path& path, const char* list) {
  Json document = Json::parse(content_of(path), nullptr, false);
  if (schema_in(document).empty() || !document.contains(list) || !document[list].is_array() ||
      !document.contains("seed") || !document["seed"].is_number_unsigned())
    throw BadInput(fmt::format("{}: expected a document with schema, seed and {}", path.string(), list));
  if (!document.contains("shard")) refuse_whole(path.string());
  return document;
}

}  // namespace

std::string schema_of(const std::filesystem::path& path) {
  const std::string content = content_of(path);
  const Json first = Json::parse(content.substr(0, content.find('\n')), nullptr, false);
  return schema_in(first.is_object() ? first : Json::parse(content, nullptr, false));
}

Records join_records(const std::vector<std::filesystem::path>& paths) {
  std::vector<Part> parts;
  std::vector<Records> files;
  for (const auto& path : paths) files.push_back(read_part(path, parts));
  order_of(parts);
  const std::vector<Place> places = places_of(files, parts);
  Records joined{run_of(files), {}, {}, true};
  for (const Place& place : places) {
    joined.end.count(place.record->verdict);
    joined.cases.push_back(*place.record);
    joined.cases.back().index.reset();
  }
  for (const Records& file : files) joined.end.finished = std::max(joined.end.finished, file.end.finished);
  return joined;
}

std::vector<Json> shard_documents(const std::vector<std::filesystem::path>& paths, const char* list) {
  std::vector<Part> parts;
  std::vector<Json> documents;
  for (const auto& path : paths) {
    const Json& document = documents.emplace_back(document_at(path, list));
    parts.push_back({path.string(), read_shard(document["shard"], path.string() + ": shard"),
                     document["seed"].get<std::uint64_t>()});
    refuse_unless_equal(parts[0], parts.back(), "schema", schema_in(documents[0]), schema_in(document));
  }
  std::vector<Json> ordered;
  for (const std::size_t file : order_of(parts)) ordered.push_back(std::move(documents[file]));
  return ordered;
}

Json join_documents(const std::vector<std::filesystem::path>& paths, const char* list) {
  const std::vector<Json> documents = shard_documents(paths, list);
  Json joined = documents.at(0);
  joined.erase("shard");
  joined[list] = Json::array();
  const Shard run = read_shard(documents[0]["shard"], "shard");
  for (std::int64_t i = 0; i < run.cases; ++i) {
    const Json& own = documents[static_cast<std::size_t>(i % run.of)][list];
    const auto at = static_cast<std::size_t>(i / run.of);
    if (at >= own.size())
      throw BadInput(fmt::format("shard {}/{}: case {} of the run is missing: expected every case once",
                                 i % run.of + 1, run.of, i));
    joined[list].push_back(own[at]);
  }
  for (std::int64_t shard = 1; shard <= run.of; ++shard) {
    const std::int64_t own = (run.cases - shard + run.of) / run.of;
    const auto found = std::ssize(documents[static_cast<std::size_t>(shard - 1)][list]);
    if (found > own)
      throw BadInput(fmt::format("shard {}/{}: has {} cases, expected {}", shard, run.of, found, own));
  }
  return joined;
}

}  // namespace attest
