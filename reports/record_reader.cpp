#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <istream>
#include <nlohmann/json.hpp>
#include <set>

#include "reference/tensor/bad_input.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

using nlohmann::json;

// A value inside a line, and the words that say where it is: "run.jsonl:3: kernel.name".
class Node {
 public:
  Node(const json& value, std::string file_line, std::string path = "")
      : value_(&value), file_line_(std::move(file_line)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw BadInput(path_.empty() ? fmt::format("{}: {}", file_line_, what)
                                 : fmt::format("{}: {}: {}", file_line_, path_, what));
  }

  // The members are exactly `required` and any of `optional`.
  void members(std::initializer_list<const char*> required,
               std::initializer_list<const char*> optional = {}) const {
    object();
    for (const char* key : required)
      if (!has(key)) refuse(fmt::format("member \"{}\" is missing", key));
    for (const auto& [key, unused] : value_->items()) {
      const auto known = [&key = key](const char* name) { return key == name; };
      if (std::none_of(required.begin(), required.end(), known) &&
          std::none_of(optional.begin(), optional.end(), known))
        refuse(fmt::format("unknown member {} (schema {})", in_quotes(key), records_schema));
    }
  }

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  Node at(const std::string& key) const {
    return {value_->at(key), file_line_, path_.empty() ? key : path_ + "." + key};
  }

  std::string text() const {
    if (!value_->is_string()) refuse("expected a string");
    return value_->get<std::string>();
  }
  std::string text_or_empty(const char* key) const { return has(key) ? at(key).text() : ""; }

  std::int64_t count() const {
    if (!value_->is_number_integer()) refuse("expected an integer");
    if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      refuse("integer too large");
    const auto number = value_->get<std::int64_t>();
    if (number < 0) refuse(fmt::format("expected an integer >= 0, found {}", number));
    return number;
  }
  std::uint64_t seed() const {
    if (!value_->is_number_unsigned()) refuse("expected an integer in [0, 2^64)");
    return value_->get<std::uint64_t>();
  }

  Shard shard() const { return read_shard(*value_, fmt::format("{}: {}", file_line_, path_)); }

  double number() const {
    if (!value_->is_string()) refuse("expected a hex-float string such as \"0x1.8p+1\"");
    const auto number = from_hex_float(value_->get_ref<const std::string&>());
    if (!number)
      refuse(fmt::format("expected a hex-float string such as \"0x1.8p+1\", found {}", in_quotes(text())));
    return *number;
  }
  double share() const {
    const double value = number();
    if (!(value >= 0 && value <= 1.0 + 1e-9))
      refuse(fmt::format("expected a share in [0, 1], found {:g}", value));
    return value;
  }
  double not_negative() const {
    const double value = number();
    if (value < 0) refuse(fmt::format("expected a number >= 0, found {:g}", value));
    return value;
  }

  template <typename Enum>
  Enum one_of(std::initializer_list<Enum> values) const {
    const std::string found = text();
    std::string names;
    for (const Enum value : values) {
      if (found == to_string(value)) return value;
      names += (names.empty() ? "" : ", ") + std::string(to_string(value));
    }
    refuse(fmt::format("expected one of {}, found {}", names, in_quotes(found)));
  }

  void each(const std::function<void(const Node&)>& visit) const {
    if (!value_->is_array()) refuse("expected an array");
    for (std::size_t i = 0; i < value_->size(); ++i)
      visit({(*value_)[i], file_line_, fmt::format("{}[{}]", path_, i)});
  }
  void each_member(const std::function<void(const std::string&, const Node&)>& visit) const {
    object();
    for (const auto& [key, unused] : value_->items()) visit(key, at(key));
  }

 private:
  void object() const {
    if (!value_->is_object()) refuse("expected an object");
  }

  const json* value_;
  std::string file_line_, path_;
};

Verdict verdict(const Node& node) {
  return node.one_of({Verdict::pass, Verdict::suspect, Verdict::fail, Verdict::undecided, Verdict::not_run});
}

Quantiles quantiles(const Node& node) {
  node.members({"p50", "p99", "max"});
  const Quantiles q{node.at("p50").not_negative(), node.at("p99").not_negative(),
                    node.at("max").not_negative()};
  if (q.p50 > q.p99 || q.p99 > q.max || q.p50 > q.max) node.refuse("expected p50 <= p99 <= max");
  return q;
}

Figures figures(const Node& node) {
  Figures figures;
  figures.bounded = node.has("ratio");
  if (figures.bounded) figures.ratio = quantiles(node.at("ratio"));
  figures.ulp = quantiles(node.at("ulp"));
  return figures;
}

TensorError tensor_error(const Node& node) {
  node.members({"ulp"}, {"ratio", "power", "norm"});
  TensorError error;
  static_cast<Figures&>(error) = figures(node);
  if (node.has("ratio") != node.has("power")) node.refuse("expected ratio and power together, or neither");
  if (node.has("power")) error.power = node.at("power").share();
  if (node.has("norm")) error.norm = node.at("norm").not_negative();
  return error;
}

WorstElement worst_element(const Node& node) {
  node.members({"tensor", "index", "expected", "got", "bound", "ratio"}, {"replay"});
  WorstElement w;
  w.tensor = node.at("tensor").text();
  node.at("index").each([&](const Node& i) { w.index.push_back(i.count()); });
  w.expected = node.at("expected").number();
  w.got = node.at("got").number();
  w.bound = node.at("bound").not_negative();
  w.ratio = node.at("ratio").not_negative();
  w.replay = node.text_or_empty("replay");
  return w;
}

Check check(const Node& node) {
  node.members({"name", "verdict", "rule", "compared", "violations"},
               {"worst", "replay", "reason", "inputs", "undecided", "time_ns"});
  Check c;
  c.name = node.at("name").text();
  c.verdict = verdict(node.at("verdict"));
  c.rule = node.at("rule").one_of({Rule::bound, Rule::bitwise, Rule::structural});
  c.compared = node.at("compared").count();
  c.violations = node.at("violations").count();
  if (c.violations > c.compared) node.refuse("expected violations <= compared");
  if (node.has("worst")) c.worst = worst_element(node.at("worst"));
  c.replay = node.text_or_empty("replay");
  c.reason = node.text_or_empty("reason");
  if (node.has("inputs")) c.inputs = node.at("inputs").count();
  if (node.has("undecided")) c.undecided = node.at("undecided").count();
  if (node.has("time_ns")) c.time_ns = node.at("time_ns").count();
  return c;
}

Locate locate(const Node& node) {
  node.members({}, {"tokens", "chunk_position", "heads", "levels", "columns"});
  return {node.text_or_empty("tokens"), node.text_or_empty("chunk_position"), node.text_or_empty("heads"),
          node.text_or_empty("levels"), node.text_or_empty("columns")};
}

Oracle oracle(const Node& node) {
  node.members({"method", "bits"}, {"radius_over_bound"});
  Oracle oracle{node.at("method").text(), node.at("bits").count(), std::nullopt};
  if (node.has("radius_over_bound")) oracle.radius_over_bound = node.at("radius_over_bound").not_negative();
  return oracle;
}

Times times(const Node& node) {
  node.members({"kernel_ns", "oracle_ns", "total_ns"});
  return {node.at("kernel_ns").count(), node.at("oracle_ns").count(), node.at("total_ns").count()};
}

CurvePoint curve_point(const Node& node) {
  node.members({"tensor", "position", "ratio_max", "error_max", "bound_at_max"});
  return {node.at("tensor").text(), node.at("position").count(), node.at("ratio_max").not_negative(),
          node.at("error_max").not_negative(), node.at("bound_at_max").not_negative()};
}

std::vector<CurvePoint> curve(const Node& node) {
  std::vector<CurvePoint> points;
  std::map<std::string, std::size_t> per_tensor;
  node.each([&](const Node& item) {
    points.push_back(curve_point(item));
    if (++per_tensor[points.back().tensor] > curve_limit)
      node.refuse(fmt::format("expected at most {} points per tensor", curve_limit));
  });
  return points;
}

KernelId kernel(const Node& node) {
  node.members({"name", "door", "op", "variant", "form", "contract", "sha256"});
  return {node.at("name").text(),    node.at("door").text(), node.at("op").text(),
          node.at("variant").text(), node.at("form").text(), node.at("contract").text(),
          node.at("sha256").text()};
}

void read_measurements(const Node& node, CaseRecord& r) {
  if (node.has("checks")) node.at("checks").each([&](const Node& c) { r.checks.push_back(check(c)); });
  if (node.has("error"))
    node.at("error").each_member([&](const auto& name, const Node& e) { r.error[name] = tensor_error(e); });
  if (node.has("locate")) r.locate = locate(node.at("locate"));
  if (node.has("oracle")) r.oracle = oracle(node.at("oracle"));
  if (node.has("time")) r.time = times(node.at("time"));
}

void read_page_members(const Node& node, CaseRecord& r) {
  if (node.has("tokens")) r.tokens = node.at("tokens").count();
  if (node.has("curve")) r.curve = curve(node.at("curve"));
  if (node.has("magnitude")) r.magnitude = quantiles(node.at("magnitude"));
  if (node.has("worst")) node.at("worst").each([&](const Node& w) { r.worst.push_back(worst_element(w)); });
  if (node.has("plain"))
    node.at("plain").each_member([&](const auto& name, const Node& f) {
      f.members({"ulp"}, {"ratio"});
      r.plain[name] = figures(f);
    });
  if (node.has("stages"))
    node.at("stages").each_member([&](const auto& name, const Node& s) { r.stages[name] = s.share(); });
}

CaseRecord case_record(const Node& node) {
  node.members({"case", "kernel", "verdict", "reason"},
               {"checks", "error", "locate", "oracle", "time", "tokens", "curve", "magnitude", "worst",
                "plain", "stages", "index"});
  CaseRecord r;
  r.case_line = node.at("case").text();
  r.kernel = kernel(node.at("kernel"));
  r.verdict = verdict(node.at("verdict"));
  r.reason = node.at("reason").text();
  read_measurements(node, r);
  read_page_members(node, r);
  if (node.has("index")) r.index = node.at("index").count();
  return r;
}

Run run_line(const Node& node) {
  if (!node.has("schema"))
    node.refuse(fmt::format("expected the first line of a records file (schema {})", records_schema));
  if (const auto schema = node.at("schema").text(); schema != records_schema)
    node.refuse(fmt::format("expected schema {}, found {}", records_schema, in_quotes(schema)));
  node.members({"schema", "run"});
  const Node r = node.at("run");
  r.members({"command", "commit", "compiler", "flags", "gpu", "driver", "libraries", "started"},
            {"seed", "shard"});
  Run run;
  run.command = r.at("command").text();
  if (r.has("seed")) run.seed = r.at("seed").seed();
  run.commit = r.at("commit").text();
  run.compiler = r.at("compiler").text();
  run.flags = r.at("flags").text();
  run.gpu = r.at("gpu").text();
  run.driver = r.at("driver").text();
  r.at("libraries").each_member([&](const auto& name, const Node& v) { run.libraries[name] = v.text(); });
  run.started = r.at("started").text();
  if (r.has("shard")) run.shard = r.at("shard").shard();
  return run;
}

End end_line(const Node& node, const End& counted) {
  node.members({"end"});
  const Node e = node.at("end");
  e.members({"cases", "pass", "suspect", "fail", "undecided", "not_run", "finished"});
  const auto same = [&](const char* key, std::int64_t expected) {
    if (const auto found = e.at(key).count(); found != expected)
      e.at(key).refuse(fmt::format("expected {} as counted in the lines before, found {}", expected, found));
  };
  same("cases", counted.cases);
  same("pass", counted.pass);
  same("suspect", counted.suspect);
  same("fail", counted.fail);
  same("undecided", counted.undecided);
  same("not_run", counted.not_run);
  End end = counted;
  end.finished = e.at("finished").text();
  return end;
}

// One line of JSON in which no object repeats a member.
json parse_line(const std::string& text, const std::string& file_line) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw BadInput(
          fmt::format("{}: member {} is given twice", file_line, in_quotes(parsed.get<std::string>())));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception&) {
    throw BadInput(
        fmt::format("{}: expected one JSON object per line, found {}", file_line, in_quotes(text)));
  }
}

}  // namespace

CaseRecord parse_case_record(const std::string& line, const std::string& file_line) {
  const json value = parse_line(line, file_line);
  return case_record(Node(value, file_line));
}

Records parse_records(std::istream& input, const std::string& name, Incomplete incomplete) {
  Records records;
  records.complete = false;
  std::string text;
  std::size_t number = 0;
  while (std::getline(input, text)) {
    const std::string file_line = fmt::format("{}:{}", name, ++number);
    if (records.complete) throw BadInput(file_line + ": expected nothing after the end line");
    if (input.eof() && number > 1) break;  // no newline at its end: a line cut short
    const json value = parse_line(text, file_line);
    const Node node(value, file_line);
    if (number == 1) {
      records.run = run_line(node);
    } else if (node.has("end")) {
      records.end = end_line(node, records.end);
      records.complete = true;
    } else {
      records.cases.push_back(case_record(node));
      records.end.count(records.cases.back().verdict);
    }
  }
  if (number == 0)
    throw BadInput(name + ": empty: expected a records file, schema " + std::string(records_schema));
  if (!records.complete && incomplete == Incomplete::refuse)
    throw BadInput(fmt::format(
        "{}: incomplete: its last line ({{\"end\":…}}) is missing after {} cases; the run did not finish",
        name, records.cases.size()));
  return records;
}

Records read_records(const std::filesystem::path& path, Incomplete incomplete) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored))
    throw BadInput(fmt::format("{}: cannot be read: expected a records file", path.string()));
  return parse_records(file, path.string(), incomplete);
}

}  // namespace attest
