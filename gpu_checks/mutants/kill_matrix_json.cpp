#include "gpu_checks/mutants/kill_matrix_json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& what) const { throw BadInput(where_ + ": " + what); }

  Json member(const Json& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) refuse(fmt::format("expected a member {}", in_quotes(key)));
    return json[key];
  }
  std::string text(const Json& json) const {
    if (!json.is_string()) refuse("expected a text");
    return json.get<std::string>();
  }
  bool flag(const Json& json) const {
    if (!json.is_boolean()) refuse("expected true or false");
    return json.get<bool>();
  }
  Verdict verdict(const Json& json) const {
    const std::string name = text(json);
    for (const Verdict v :
         {Verdict::pass, Verdict::suspect, Verdict::fail, Verdict::undecided, Verdict::not_run})
      if (name == verdict_name(v)) return v;
    refuse("verdict " + in_quotes(name) + ": unknown");
  }
  MatrixRow row(const Json& json) const {
    const std::string name = text(member(json, "mutant"));
    const auto found =
        std::ranges::find_if(mutants(), [&](const Mutant& m) { return m.kernel.name == name; });
    if (found == mutants().end()) refuse("mutant " + in_quotes(name) + ": unknown");
    MatrixRow row{&*found, {}, {}};
    const Json checks = member(json, "checks"), rules = member(json, "rules");
    for (const BatteryCheck& check : battery_checks())
      if (checks.contains(check.name)) {
        BatteryEntry& entry = row.entries.emplace_back();
        entry.check = &check, entry.outcome.verdict = verdict(checks[check.name]);
      }
    if (row.entries.size() != checks.size()) refuse("a check of " + in_quotes(name) + " is unknown");
    for (std::size_t r = 0; r < usual_rules.size(); ++r) {
      const Json accepts = member(rules, usual_rules[r]);
      row.rules.ordinary[r] = flag(member(accepts, "ordinary"));
      row.rules.everywhere[r] = flag(member(accepts, "everywhere"));
    }
    return row;
  }

 private:
  std::string where_;
};

}  // namespace

Json matrix_json(const KillMatrix& matrix) {
  Json rows = Json::array();
  for (const MatrixRow& row : matrix.rows) {
    Json checks = Json::object(), rules = Json::object();
    for (const BatteryEntry& entry : row.entries)
      checks[entry.check->name] = verdict_name(entry.outcome.verdict);
    for (std::size_t r = 0; r < usual_rules.size(); ++r)
      rules[usual_rules[r]] = {{"ordinary", row.rules.ordinary[r]}, {"everywhere", row.rules.everywhere[r]}};
    rows.push_back({{"mutant", row.mutant->kernel.name}, {"checks", checks}, {"rules", rules}});
  }
  return {{"schema", kill_matrix_schema},
          {"effort", matrix.effort == Effort::quick ? "quick" : "full"},
          {"seed", matrix.seed},
          {"mutants", rows}};
}

KillMatrix read_matrix(const Json& json, const std::string& where) {
  const Reader reader(where);
  if (reader.member(json, "schema") != kill_matrix_schema)
    reader.refuse("expected schema attest.kill_matrix/1");
  const std::string effort = reader.text(reader.member(json, "effort"));
  const Json seed = reader.member(json, "seed"), rows = reader.member(json, "mutants");
  if ((effort != "quick" && effort != "full") || !seed.is_number_unsigned() || !rows.is_array())
    reader.refuse("expected an effort, a seed and an array of mutants");
  KillMatrix matrix{{}, effort == "quick" ? Effort::quick : Effort::full, seed.get<std::uint64_t>()};
  for (const Json& row : rows) matrix.rows.push_back(reader.row(row));
  return matrix;
}

}  // namespace attest
