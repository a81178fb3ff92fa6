#include "reports/hunt_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "reference/tensor/bad_input.hpp"
#include "reports/join_shards.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Finding& f) {
  Json json{{"cause", f.cause},
            {"check", question_name(f.shrunk.question)},
            {"reason", f.reason},
            {"at_case", f.at_case},
            {"first", to_text({f.first, {}, {}, {}})},
            {"shrunk", to_text({f.shrunk, {}, {}, {}})},
            {"shrinking_questions", f.shrinking},
            {"shrinking_finished", f.shrinking_finished},
            {"duplicates", f.duplicates},
            {"note", f.after},
            {"file", f.file},
            {"replay", f.replay}};
  if (f.unseen > 0) json["not_looked_at"] = f.unseen;
  if (!f.shard.empty()) json["shard"] = f.shard;
  return json;
}

// So small that sums of them are none too large.
Index count_in(const Json& json, const char* key) {
  const Json& value = json.at(key);
  const bool whole = value.is_number_integer() && value >= 0 && value <= (Index(1) << 53);
  if (!whole) throw BadInput(fmt::format("{}: {}: expected a count", key, printable(value.dump(), 100)));
  return value;
}
Index count_or_0(const Json& json, const char* key) { return json.contains(key) ? count_in(json, key) : 0; }

// A time or a share of a bound: not negative, and no infinity in JSON.
double amount_in(const Json& json, const char* key) {
  const Json& value = json.at(key);
  const bool right = value.is_number() && value >= 0 && value <= std::numeric_limits<double>::max();
  if (!right)
    throw BadInput(fmt::format("{}: {}: expected a number of 0 or more", key, printable(value.dump(), 100)));
  return value;
}

FuzzInput read_input(const Json& text) {
  return parse_corpus_case(text.get_ref<const std::string&>(), "an input of a hunt").input;
}

Finding read_finding(const Json& json) {
  Finding f;
  f.cause = json.at("cause"), f.reason = json.at("reason"), f.at_case = count_in(json, "at_case");
  f.first = read_input(json.at("first")), f.shrunk = read_input(json.at("shrunk"));
  f.shrinking = count_in(json, "shrinking_questions"), f.shrinking_finished = json.at("shrinking_finished");
  f.duplicates = count_in(json, "duplicates"), f.after = json.at("note"), f.file = json.at("file");
  f.unseen = count_or_0(json, "not_looked_at");
  f.replay = json.value("replay", ""), f.shard = json.value("shard", "");
  return f;
}

Tally read_tally(const Json& json) {
  const double seconds = amount_in(json, "cpu_seconds");
  if (seconds > 9e9) throw BadInput(fmt::format("cpu_seconds: {}: expected at most 9e9", seconds));
  const Tally tally{count_in(json, "asked"), count_in(json, "decided"), count_in(json, "failed"),
                    std::llround(1e9 * seconds)};
  if (tally.decided > tally.asked || tally.failed > tally.asked)
    throw BadInput(fmt::format("{} decided and {} failed of {} asked, expected at most as many",
                               tally.decided, tally.failed, tally.asked));
  return tally;
}

HuntReport read_report(const Json& json) {
  HuntReport r;
  r.kernel = json.at("kernel"), r.op = json.value("operator", ""), r.source = json.value("source", "");
  r.cases = count_in(json, "cases"), r.replayed = count_in(json, "replayed"),
  r.decided = count_in(json, "decided");
  r.unanswered = count_or_0(json, "unanswered"), r.not_replayed = count_or_0(json, "not_replayed");
  r.seconds = amount_in(json, "seconds"), r.cells = static_cast<std::size_t>(count_in(json, "cells")),
  r.grid = json.at("grid");
  r.best = amount_in(json, "largest_ratio"), r.best_at = count_or_0(json, "worst_at");
  if (json.contains("worst_input")) r.best_input = read_input(json["worst_input"]);
  if (json.contains("first_failure")) r.first_failure = count_in(json, "first_failure");
  for (const auto& [check, tally] : json.at("checks").items())
    if (const auto question = question_named(check)) r.questions[*question] = read_tally(tally);
  for (const auto& [why, count] : json.at("undecided").items())
    r.undecided[why] = count_in(json["undecided"], why.c_str());
  for (const auto& [cell, ratio] : r.grid)
    if (!(ratio >= 0))
      throw BadInput(fmt::format("grid: {}: {}: expected 0 or more", printable(cell, 100), ratio));
  r.stopped = json.at("interrupted");
  for (const Json& finding : json.at("findings")) r.findings.push_back(read_finding(finding));
  return r;
}

void add_finding(std::vector<Finding>& findings, Finding finding) {
  const auto known = std::ranges::find_if(findings, [&](const Finding& f) { return same_cause(f, finding); });
  if (known == findings.end()) return findings.push_back(std::move(finding));
  const Index all = known->duplicates + finding.duplicates + 1, unseen = known->unseen + finding.unseen;
  if (better(finding, *known)) *known = std::move(finding);
  known->duplicates = all, known->unseen = unseen;
}

void add_report(HuntReport& to, HuntReport from, const std::string& shard) {
  to.cases += from.cases, to.replayed += from.replayed, to.decided += from.decided;
  to.unanswered += from.unanswered, to.not_replayed += from.not_replayed, to.seconds += from.seconds;
  for (const auto& [cell, ratio] : from.grid) to.grid[cell] = std::max(to.grid[cell], ratio);
  to.cells = to.grid.size();
  if (!to.best_input || to.best < from.best)
    to.best = from.best, to.best_at = from.best_at, to.best_input = std::move(from.best_input);
  for (const auto& [question, tally] : from.questions) to.questions[question] += tally;
  for (const auto& [why, count] : from.undecided) to.undecided[why] += count;
  for (Finding& finding : from.findings) {
    finding.shard = shard;
    add_finding(to.findings, std::move(finding));
  }
}

// Of a hunt in shards: the case of the shard that was the first to fail means nothing for all.
HuntReport empty_report(const HuntReport& like) {
  HuntReport r;
  r.kernel = like.kernel, r.op = like.op, r.source = like.source;
  return r;
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
  Json json{{"kernel", r.kernel},      {"operator", r.op},         {"cases", r.cases},
            {"replayed", r.replayed},  {"decided", r.decided},     {"seconds", r.seconds},
            {"cells", r.cells},        {"grid", r.grid},           {"largest_ratio", r.best},
            {"checks", checks},        {"undecided", r.undecided}, {"findings", findings},
            {"interrupted", r.stopped}};
  if (!r.source.empty()) json["source"] = r.source;
  if (r.unanswered > 0) json["unanswered"] = r.unanswered, json["not_replayed"] = r.not_replayed;
  if (r.first_failure) json["first_failure"] = *r.first_failure;
  if (r.best_input) json["worst_input"] = to_text({*r.best_input, {}, {}, {}}), json["worst_at"] = r.best_at;
  return json;
}

Hunts read_hunts(const Json& document, const std::string& where) {
  try {
    if (document.is_discarded()) throw BadInput("expected JSON, it is something else or ends too early");
    if (document.at("schema") != hunt_schema) throw BadInput(fmt::format("expected schema {}", hunt_schema));
    Hunts hunts{document.at("command"), document.at("interrupted"), {}};
    if (!document.at("kernels").is_array()) throw BadInput("kernels: expected a list");
    if (!document.at("seed").is_number_unsigned())
      throw BadInput("seed: expected a whole number of 0 or more");
    if (document.contains("ranks") && count_in(document, "ranks") < 1)
      throw BadInput("ranks: 0: expected 1 or more");
    if (document.contains("corpus")) count_or_0(document["corpus"], "cases");
    std::set<std::string> names;
    for (const Json& kernel : document.at("kernels")) {
      hunts.reports.push_back(read_report(kernel));
      const HuntReport& report = hunts.reports.back();
      if (!names.insert(report.kernel).second)
        throw BadInput(fmt::format("kernel {} twice, expected every kernel once", in_quotes(report.kernel)));
      if (report.decided > report.cases + report.replayed)
        throw BadInput(fmt::format("kernel {}: {} decided of {} cases", in_quotes(report.kernel),
                                   report.decided, report.cases + report.replayed));
    }
    return hunts;
  } catch (const Json::exception& error) {
    throw BadInput(
        fmt::format("{}: no hunt as attest fuzz leaves it: {}", where, printable(error.what(), 200)));
  } catch (const BadInput& error) {
    throw BadInput(fmt::format("{}: {}", where, error.what()));
  }
}

Hunts read_hunts(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return read_hunts(Json::parse(file, nullptr, false), printable(path.native(), 200));
}

std::filesystem::path hunt_at(const std::filesystem::path& path) {
  std::error_code none;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, none)) file /= hunt_name;
  std::ifstream stream(file);
  std::string start(256, '\0');
  stream.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start.find(hunt_schema) == std::string::npos ? std::filesystem::path() : file;
}

Json join_hunts(const std::vector<std::filesystem::path>& paths) {
  const std::vector<Json> shards = shard_documents(paths, "kernels");
  std::vector<HuntReport> joined;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = fmt::format("{}/{}", s + 1, shards.size());
    Hunts hunts = read_hunts(shards[s], "shard " + name);
    if (s == 0)
      for (const HuntReport& report : hunts.reports) joined.push_back(empty_report(report));
    if (hunts.interrupted || hunts.reports.size() != joined.size())
      throw BadInput(
          fmt::format("shard {} was interrupted, expected one that has finished: --resume goes on", name));
    for (std::size_t k = 0; k < joined.size(); ++k) add_report(joined[k], std::move(hunts.reports[k]), name);
  }
  Json all = shards.at(0);
  for (const char* own : {"shard", "corpus", "not_run_before"}) all.erase(own);
  all["command"] = shards[0]["shard"]["command"], all["kernels"] = Json::array();
  for (const HuntReport& report : joined) all["kernels"].push_back(to_json(report));
  return all;
}

}  // namespace attest
