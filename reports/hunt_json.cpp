#include "reports/hunt_json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/tensor/bad_input.hpp"
#include "reports/join_shards.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Finding& f) {
  return {{"cause", f.cause},
          {"check", question_name(f.shrunk.question)},
          {"reason", f.reason},
          {"at_case", f.at_case},
          {"first", to_text({f.first, {}, {}, {}})},
          {"shrunk", to_text({f.shrunk, {}, {}, {}})},
          {"shrinking_questions", f.shrinking},
          {"shrinking_finished", f.shrinking_finished},
          {"duplicates", f.duplicates},
          {"note", f.after},
          {"file", f.file}};
}

void add_numbers(Json& to, const Json& from) {
  for (const auto& [name, value] : from.items())
    to[name] = to.contains(name) && value.is_number_integer()
                   ? Json(to[name].get<Index>() + value.get<Index>())
               : to.contains(name) ? Json(to[name].get<double>() + value.get<double>())
                                   : value;
}

void add_findings(Json& to, const Json& from, const std::string& shard) {
  for (Json finding : from) {
    const auto known =
        std::ranges::find_if(to, [&](const Json& f) { return f.at("cause") == finding.at("cause"); });
    if (known == to.end()) {
      finding["shard"] = shard;
      to.push_back(std::move(finding));
    } else {
      (*known)["duplicates"] =
          known->at("duplicates").get<Index>() + finding.at("duplicates").get<Index>() + 1;
    }
  }
}

void add_kernel(Json& to, const Json& from, const std::string& shard) {
  for (const char* count : {"cases", "replayed", "decided"})
    to[count] = to.value(count, Index(0)) + from.at(count).get<Index>();
  to["seconds"] = to.value("seconds", 0.0) + from.at("seconds").get<double>();
  for (const auto& [cell, ratio] : from.at("grid").items())
    to["grid"][cell] = std::max(to["grid"].value(cell, 0.0), ratio.get<double>());
  to["cells"] = to["grid"].size();
  if (!to.contains("largest_ratio") || to["largest_ratio"] < from.at("largest_ratio")) {
    to["largest_ratio"] = from.at("largest_ratio");
    if (from.contains("worst_input")) to["worst_input"] = from["worst_input"];
  }
  for (const auto& [check, tally] : from.at("checks").items()) add_numbers(to["checks"][check], tally);
  add_numbers(to["undecided"], from.at("undecided"));
  add_findings(to["findings"], from.at("findings"), shard);
}

Json empty_kernel(const Json& name) {
  return {{"kernel", name},
          {"grid", Json::object()},
          {"checks", Json::object()},
          {"undecided", Json::object()},
          {"findings", Json::array()},
          {"interrupted", false}};
}

}  // namespace

Json to_json(const HuntReport& r) {
  Json checks = Json::object(), findings = Json::array();
  for (const auto& [question, tally] : r.questions)
    checks[std::string(question_name(question))] = {
        {"asked", tally.asked},
        {"decided", tally.decided},
        {"failed", tally.failed},
        {"cpu_seconds", static_cast<double>(tally.nanoseconds) * 1e-9}};
  for (const Finding& finding : r.findings) findings.push_back(to_json(finding));
  Json json{{"kernel", r.kernel},       {"cases", r.cases},        {"replayed", r.replayed},
            {"decided", r.decided},     {"seconds", r.seconds},    {"cells", r.cells},
            {"grid", r.grid},           {"largest_ratio", r.best}, {"checks", checks},
            {"undecided", r.undecided}, {"findings", findings},    {"interrupted", r.stopped}};
  if (r.unanswered > 0) json["unanswered"] = r.unanswered, json["not_replayed"] = r.not_replayed;
  if (r.first_failure) json["first_failure"] = *r.first_failure;
  if (r.best_input) json["worst_input"] = to_text({*r.best_input, {}, {}, {}});
  return json;
}

Json join_hunts(const std::vector<std::filesystem::path>& paths) {
  const std::vector<Json> shards = shard_documents(paths, "kernels");
  Json joined = shards[0];
  for (const char* own : {"shard", "corpus", "not_run_before"}) joined.erase(own);
  joined["command"] = shards[0]["shard"]["command"];
  joined["kernels"] = Json::array();
  try {
    for (const Json& kernel : shards[0]["kernels"])
      joined["kernels"].push_back(empty_kernel(kernel.at("kernel")));
    for (std::size_t s = 0; s < shards.size(); ++s) {
      const std::string name = fmt::format("{}/{}", s + 1, shards.size());
      if (shards[s].at("interrupted") || shards[s]["kernels"].size() != joined["kernels"].size())
        throw BadInput(
            fmt::format("shard {} was interrupted, expected one that has finished: --resume goes on", name));
      for (std::size_t k = 0; k < joined["kernels"].size(); ++k)
        add_kernel(joined["kernels"][k], shards[s]["kernels"][k], name);
    }
  } catch (const Json::exception& error) {
    throw BadInput(fmt::format("no hunts as attest fuzz leaves them: {}", printable(error.what(), 200)));
  }
  return joined;
}

}  // namespace attest
