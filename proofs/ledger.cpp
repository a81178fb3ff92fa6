#include "proofs/ledger.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "reference/forms/certify.hpp"

namespace attest {

const std::vector<Claim>& all_claims() {
  static const std::vector<Claim> claims = [] {
    std::vector<Claim> list;
    append_hla2_claims(list);
    append_ahla_claims(list);
    append_hla3_claims(list);
    append_log_linear_claims(list);
    append_delta_claims(list);
    append_composition_claims(list);
    append_backward_claims(list);
    append_softmax_claims(list);
    append_all_laws(list);
    std::stable_sort(list.begin(), list.end(), [](const Claim& a, const Claim& b) { return a.id < b.id; });
    return list;
  }();
  return claims;
}

std::vector<const Claim*> claims_matching(const std::string& glob) {
  std::vector<const Claim*> found;
  for (const Claim& claim : all_claims())
    if (fnmatch(glob.c_str(), claim.id.c_str(), 0) == 0) found.push_back(&claim);
  return found;
}

bool Entry::decided() const {
  auto settled = [](const std::optional<Decision>& d) { return !d || d->verdict != ClaimVerdict::undecided; };
  return decision.verdict != ClaimVerdict::undecided && settled(corrected) && settled(instead);
}

namespace {

Entry decide_one(const Claim& claim, const LedgerOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Entry entry;
  entry.claim = &claim;
  entry.decision = decide(claim.statement, claim.id, options);
  if (entry.decision.verdict == ClaimVerdict::refuted) {
    if (claim.corrected) entry.corrected = decide(*claim.corrected, claim.id + "/corrected", options);
    if (claim.instead) entry.instead = decide(*claim.instead, claim.id + "/instead", options);
  }
  if (options.controls)
    for (const Control& control : claim.controls)
      entry.controls.push_back(
          {control.name, decide(control.statement, claim.id + "/control/" + control.name, options)});
  entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return entry;
}

nlohmann::ordered_json matrix_json(const Matrix<Rational>& matrix) {
  auto rows = nlohmann::ordered_json::array();
  for (Index i = 0; i < matrix.rows(); ++i) {
    auto row = nlohmann::ordered_json::array();
    for (Index j = 0; j < matrix.cols(); ++j) row.push_back(to_text(matrix(i, j)));
    rows.push_back(row);
  }
  return rows;
}

nlohmann::ordered_json shape_json(const Shape& shape) {
  nlohmann::ordered_json json = {
      {"tokens", shape.tokens}, {"key_dim", shape.key_dim}, {"value_dim", shape.value_dim}};
  if (shape.position != 0) json["position"] = shape.position;
  return json;
}

nlohmann::ordered_json counterexample_json(const Counterexample& c) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();
  for (const auto& [name, value] : c.inputs.all()) inputs[name] = matrix_json(value);
  const auto &left = c.difference.left, &right = c.difference.right;
  nlohmann::ordered_json json = {{"field", "Q"},
                                 {"shape", shape_json(c.shape)},
                                 {"inputs", inputs},
                                 {"compared", c.difference.what},
                                 {"left", matrix_json(left)},
                                 {"right", matrix_json(right)}};
  if (left.rows() == right.rows() && left.cols() == right.cols())
    json["differs_at"] = {{"row", c.row},
                          {"column", c.column},
                          {"left", to_text(left(c.row, c.column))},
                          {"right", to_text(right(c.row, c.column))}};
  return json;
}

nlohmann::ordered_json evidence_json(const Decision& d) {
  if (d.verdict == ClaimVerdict::refuted) return counterexample_json(*d.counterexample);
  auto range = [](Index first, Index last) { return nlohmann::ordered_json{first, last}; };
  return {{"field", "Z/(2^61-1)"},
          {"instances", d.field_instances},
          {"rational_instances", d.rational_instances},
          {"shapes",
           {{"count", d.shapes},
            {"instances_each", d.instances_per_shape},
            {"tokens", range(d.smallest.tokens, d.largest.tokens)},
            {"key_dim", range(d.smallest.key_dim, d.largest.key_dim)},
            {"value_dim", range(d.smallest.value_dim, d.largest.value_dim)},
            {"position", range(d.smallest.position, d.largest.position)}}},
          {"total_degree", d.total_degree},
          {"failure_probability", std::isinf(d.log2_failure) ? 0.0 : std::exp2(d.log2_failure)},
          {"log2_failure_probability", std::isinf(d.log2_failure) ? nlohmann::ordered_json(nullptr)
                                                                  : nlohmann::ordered_json(d.log2_failure)}};
}

nlohmann::ordered_json decision_json(const std::string& statement, const Decision& d) {
  return {
      {"statement", statement}, {"verdict", claim_verdict_name(d.verdict)}, {"evidence", evidence_json(d)}};
}

}  // namespace

std::vector<Entry> decide_claims(const std::vector<const Claim*>& claims, const LedgerOptions& options) {
  std::vector<Entry> entries(claims.size());
  std::mutex reporting;
  std::size_t done = 0;
  for_each_parallel(static_cast<Index>(claims.size()), options.threads, [&](Index index) {
    const auto i = static_cast<std::size_t>(index);
    entries[i] = decide_one(*claims[i], options);
    const std::lock_guard lock(reporting);
    if (options.progress) options.progress(++done, claims.size(), *claims[i]);
  });
  return entries;
}

nlohmann::ordered_json ledger_json(const std::vector<Entry>& entries, std::uint64_t seed) {
  auto claims = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    nlohmann::ordered_json json = {{"id", entry.claim->id}, {"source", entry.claim->source}};
    json.update(decision_json(entry.claim->statement.text, entry.decision));
    if (entry.corrected) json["corrected"] = decision_json(entry.claim->corrected->text, *entry.corrected);
    if (entry.instead) json["instead"] = decision_json(entry.claim->instead->text, *entry.instead);
    for (const auto& control : entry.controls)
      json["controls"].push_back(
          {{"name", control.name}, {"verdict", claim_verdict_name(control.decision.verdict)}});
    claims.push_back(json);
  }
  return {{"schema", "attest.claims/1"}, {"seed", seed}, {"claims", claims}};
}

std::string explain(const Entry& entry) {
  if (entry.decision.verdict != ClaimVerdict::refuted) return "";
  const Counterexample& c = *entry.decision.counterexample;
  std::string inputs;
  for (const auto& [name, value] : c.inputs.all())
    inputs += fmt::format("{}{}={}", inputs.empty() ? "" : "  ", name, matrix_json(value).dump());
  std::erase(inputs, '"');
  std::string text = fmt::format(
      "    claimed:   {}\n    in:        {}\n    fails at:  {}\n    compared:  {}, entry [{},{}]\n",
      entry.claim->statement.text, entry.claim->source, inputs, c.difference.what, c.row, c.column);
  if (entry.corrected)
    text += fmt::format("    corrected: {} ({})\n", entry.claim->corrected->text,
                        claim_verdict_name(entry.corrected->verdict));
  if (entry.instead)
    text += fmt::format("    computes:  {} ({})\n", entry.claim->instead->text,
                        claim_verdict_name(entry.instead->verdict));
  return text;
}

std::string summary(const Decision& d) {
  if (d.verdict == ClaimVerdict::undecided)
    return "no rational counterexample found, though random instances fail";
  if (d.verdict == ClaimVerdict::holds) {
    if (std::isinf(d.log2_failure)) return fmt::format("{} shapes, every one checked", d.shapes);
    return fmt::format("{} shapes x {}, degree {}, 2^{:.0f}", d.shapes, d.instances_per_shape, d.total_degree,
                       std::ceil(d.log2_failure));
  }
  const Counterexample& c = *d.counterexample;
  const auto &left = c.difference.left, &right = c.difference.right;
  const bool comparable = left.rows() == right.rows() && left.cols() == right.cols();
  return fmt::format("T={} d={} dv={}: {}", c.shape.tokens, c.shape.key_dim, c.shape.value_dim,
                     comparable
                         ? to_text(left(c.row, c.column)) + " against " + to_text(right(c.row, c.column))
                         : "shapes differ");
}

}  // namespace attest
