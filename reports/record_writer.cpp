#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "reference/tensor/bad_input.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

// Names come from outside: bytes that are not UTF-8 are replaced, never a reason to lose a record.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void put_text(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

Json quantiles(const Quantiles& q) {
  return {{"p50", to_hex_float(q.p50)}, {"p99", to_hex_float(q.p99)}, {"max", to_hex_float(q.max)}};
}

Json figures(const Figures& f) {
  Json json = Json::object();
  if (f.bounded) json["ratio"] = quantiles(f.ratio);
  json["ulp"] = quantiles(f.ulp);
  return json;
}

Json kernel(const KernelId& k) {
  return {{"name", k.name}, {"door", k.door},         {"op", k.op},        {"variant", k.variant},
          {"form", k.form}, {"contract", k.contract}, {"sha256", k.sha256}};
}

Json worst_element(const WorstElement& w) {
  Json json = {{"tensor", w.tensor},
               {"index", w.index},
               {"expected", to_hex_float(w.expected)},
               {"got", to_hex_float(w.got)},
               {"bound", to_hex_float(w.bound)},
               {"ratio", to_hex_float(w.ratio)}};
  put_text(json, "replay", w.replay);
  return json;
}

Json check(const Check& c) {
  Json json = {{"name", c.name},
               {"verdict", to_string(c.verdict)},
               {"rule", to_string(c.rule)},
               {"compared", c.compared},
               {"violations", c.violations}};
  if (c.worst) json["worst"] = worst_element(*c.worst);
  put_text(json, "replay", c.replay);
  put_text(json, "reason", c.reason);
  if (c.inputs) json["inputs"] = *c.inputs;
  if (c.undecided) json["undecided"] = *c.undecided;
  if (c.time_ns) json["time_ns"] = *c.time_ns;
  return json;
}

Json locate(const Locate& l) {
  Json json = Json::object();
  put_text(json, "tokens", l.tokens);
  put_text(json, "chunk_position", l.chunk_position);
  put_text(json, "heads", l.heads);
  put_text(json, "levels", l.levels);
  put_text(json, "columns", l.columns);
  return json;
}

Json curve_point(const CurvePoint& p) {
  return {{"tensor", p.tensor},
          {"position", p.position},
          {"ratio_max", to_hex_float(p.ratio_max)},
          {"error_max", to_hex_float(p.error_max)},
          {"bound_at_max", to_hex_float(p.bound_at_max)}};
}

template <typename List, typename Convert>
void put_list(Json& json, const char* key, const List& list, Convert convert) {
  if (list.empty()) return;
  Json array = Json::array();
  for (const auto& item : list) array.push_back(convert(item));
  json[key] = std::move(array);
}

template <typename Map, typename Convert>
void put_map(Json& json, const char* key, const Map& map, Convert convert) {
  if (map.empty()) return;
  Json object = Json::object();
  for (const auto& [name, value] : map) object[name] = convert(value);
  json[key] = std::move(object);
}

Json tensor_error(const TensorError& e) {
  Json json = figures(e);
  if (e.bounded) json["power"] = to_hex_float(e.power);
  if (e.norm) json["norm"] = to_hex_float(*e.norm);
  return json;
}

void put_page_members(Json& json, const CaseRecord& r) {
  if (r.tokens) json["tokens"] = *r.tokens;
  put_list(json, "curve", thin_curve(r.curve), curve_point);
  if (r.magnitude) json["magnitude"] = quantiles(*r.magnitude);
  put_list(json, "worst", r.worst, worst_element);
  put_map(json, "plain", r.plain, figures);
  put_map(json, "stages", r.stages, to_hex_float);
}

}  // namespace

std::string to_json_line(const Run& run) {
  Json json = {{"command", run.command}};
  if (run.seed) json["seed"] = *run.seed;
  json["commit"] = run.commit;
  json["compiler"] = run.compiler;
  json["flags"] = run.flags;
  json["gpu"] = run.gpu;
  json["driver"] = run.driver;
  json["libraries"] = run.libraries;
  json["started"] = run.started;
  if (run.shard) json["shard"] = to_json(*run.shard);
  return dump({{"schema", records_schema}, {"run", std::move(json)}});
}

std::string to_json_line(const CaseRecord& r) {
  Json json = {{"case", r.case_line},
               {"kernel", kernel(r.kernel)},
               {"verdict", to_string(r.verdict)},
               {"reason", r.reason}};
  put_list(json, "checks", r.checks, check);
  put_map(json, "error", r.error, tensor_error);
  if (r.locate) json["locate"] = locate(*r.locate);
  if (r.oracle) json["oracle"] = {{"method", r.oracle->method}, {"bits", r.oracle->bits}};
  if (r.oracle && r.oracle->radius_over_bound)
    json["oracle"]["radius_over_bound"] = to_hex_float(*r.oracle->radius_over_bound);
  if (r.time)
    json["time"] = {
        {"kernel_ns", r.time->kernel_ns}, {"oracle_ns", r.time->oracle_ns}, {"total_ns", r.time->total_ns}};
  put_page_members(json, r);
  if (r.index) json["index"] = *r.index;
  return dump(json);
}

std::string to_json_line(const End& e) {
  return dump({{"end",
                {{"cases", e.cases},
                 {"pass", e.pass},
                 {"suspect", e.suspect},
                 {"fail", e.fail},
                 {"undecided", e.undecided},
                 {"not_run", e.not_run},
                 {"finished", e.finished}}}});
}

std::filesystem::path partial_name(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  partial += "." + std::to_string(getpid()) + ".partial";  // two runs into one folder keep apart
  return partial;
}

RecordWriter::RecordWriter(std::filesystem::path path, const Run& run) : path_(std::move(path)) {
  {
    const SignalsHeld until_remembered;
    file_.open(partial_name(path_), std::ios::binary);
    remembered_ = Temporary(partial_name(path_));
  }
  try {
    if (std::filesystem::is_directory(path_))
      throw BadInput(fmt::format("{}: is a folder: expected the path of a records file", path_.string()));
    line(to_json_line(run));
  } catch (...) {
    discard();
    throw;
  }
}

RecordWriter::~RecordWriter() {
  if (!ended_) discard();
}

void RecordWriter::discard() {
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(partial_name(path_), ignored);
  remembered_.forget();
}

void RecordWriter::line(const std::string& text) {
  file_ << text << '\n' << std::flush;
  if (file_) return;
  throw BadInput(
      fmt::format("{}: cannot be written: expected a path in a writable folder with room for the records",
                  path_.string()));
}

void RecordWriter::add(const CaseRecord& record) {
  line(to_json_line(record));
  counts_.count(record.verdict);
}

End RecordWriter::close(const std::string& finished) {
  counts_.finished = finished;
  line(to_json_line(counts_));
  file_.close();
  if (!file_)
    throw BadInput(fmt::format("{}: cannot be written, expected room for the records", path_.string()));
  return counts_;
}

void RecordWriter::commit() {
  std::error_code error;
  std::filesystem::rename(partial_name(path_), path_, error);
  if (error) throw BadInput(fmt::format("{}: cannot be written: {}", path_.string(), error.message()));
  ended_ = true;
  remembered_.forget();
}

End RecordWriter::end(const std::string& finished) {
  const End counts = close(finished);
  commit();
  return counts;
}

}  // namespace attest
