#include "tests/reports/sample_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attest {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// A number in (0, 1) that looks random and is the same everywhere.
double noise(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return (static_cast<double>((x ^ (x >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

struct Shape {
  const char *op, *variant, *form, *contract, *short_contract;
  double ratio, ulp, growth;  // at T = 256, and the power of T with which the ratio grows
};

constexpr const char* contract_fp32 =
    "input=fp32 product=fp32 accumulate=fp32 intermediate=fp32 state=fp32 exp=2ulp output=fp32";
constexpr const char* contract_bf16 =
    "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 state=fp32 exp=2ulp output=bf16";
constexpr const char* contract_bf16_state =
    "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 state=bf16 exp=2ulp output=bf16";

CaseRecord sample_case(const Shape& s, std::int64_t tokens, std::uint64_t salt) {
  CaseRecord r;
  r.kernel = {fmt::format("cpu.{}{}.{}.{}", s.op,
                          std::string(s.variant) == "masked" ? "" : std::string(".") + s.variant,
                          std::string(s.form).substr(0, std::string(s.form).find(' ')), s.short_contract),
              "registered",
              s.op,
              s.variant,
              s.form,
              s.contract,
              ""};
  if (std::string(s.form).find("difference") != std::string::npos) r.kernel.name += ".difference";
  r.case_line = fmt::format("op={} variant={} T={} d=64 dv=64 H=2 recipe=normal seed={}", s.op, s.variant,
                            tokens, 20261129);
  r.verdict = Verdict::pass;
  const double ratio = s.ratio * std::pow(static_cast<double>(tokens) / 256.0, s.growth);
  r.error["o"] = {{{0.09 * ratio, 0.48 * ratio, ratio}, {0.07 * s.ulp, 0.45 * s.ulp, s.ulp}}, 0.985};
  r.plain["o"] = {{0.1 * ratio, 0.7 * ratio, 1.6 * ratio}, {0.1 * s.ulp, 0.6 * s.ulp, 1.7 * s.ulp}};
  r.checks = {{"value", Verdict::pass, Rule::bound, tokens * 128, 0, {}, "", ""},
              {"causality", Verdict::pass, Rule::bitwise, tokens * 128, 0, {}, "", ""},
              {"guard zones", Verdict::pass, Rule::structural, 4, 0, {}, "", ""}};
  r.oracle = Oracle{"double-double", 106, 3.1e-18};
  r.time = Times{tokens * 2350 + 811, tokens * tokens * 78, tokens * tokens * 80};
  r.tokens = tokens;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double at = ratio * (0.35 + 0.6 * noise(salt * 7919 + static_cast<std::uint64_t>(t)));
    const double bound = 2e-3 * std::sqrt(1.0 + static_cast<double>(t));
    r.curve.push_back({"o", t, at, at * bound, bound});
  }
  r.magnitude = Quantiles{1.8 + 3 * noise(std::string(s.op).size()), 40 * s.growth + 12, 900 * s.growth + 60};
  r.stages = {{"affinity", 0.21}, {"weight", 0.34}, {"state", 0.12}, {"output", 0.33}};
  if (std::string(s.form).find("difference") != std::string::npos)
    r.stages = {{"S·C", 0.44}, {"G", 0.41}, {"affinity", 0.05}, {"output", 0.10}};
  const std::int64_t where = tokens * 3 / 5;
  r.worst = {{"o",
              {0, where, 1, 17},
              1.375,
              1.375 + 0.004 * ratio,
              0.004,
              ratio,
              fmt::format("attest check --kernel k --case '{}'", r.case_line)}};
  return r;
}

CaseRecord failing_case() {
  CaseRecord r = sample_case(
      {"gated_delta", "masked", "chunk c=64", contract_bf16, "bf16.broken", 0.3, 1.1, 0.1}, 1024, 99);
  r.verdict = Verdict::fail;
  r.reason = "error above the bound on 1984 of 131072 elements: the carry between chunks loses its decay";
  for (auto& p : r.curve)
    if (p.position >= 64)
      p.ratio_max *= 5 + static_cast<double>(p.position % 64) / 8, p.error_max = p.ratio_max * p.bound_at_max;
  r.error["o"] = {{{0.21, 3.9, 7.25}, {0.4, 6.1, 23.5}}, 0.97};
  r.worst[0] = {"o",
                {0, 703, 1, 40},
                -0.8125,
                -0.78759765625,
                0.0034332275390625,
                7.25,
                "attest check --kernel k --case '" + r.case_line + "'"};
  r.checks[0] = {"value", Verdict::fail, Rule::bound,       131072,
                 1984,    r.worst[0],    r.worst[0].replay, "errors rise inside each chunk"};
  r.locate = Locate{"64..1023", "all, rising", "all", "", "all"};
  return r;
}

CaseRecord nan_case() {
  CaseRecord r = sample_case(
      {"hla2", "masked", "scan", "input=fp16 state=fp16 output=fp16", "fp16", 0.4, 1, 0.1}, 1024, 5);
  r.verdict = Verdict::undecided;
  r.reason = "range: the stage `state` reaches 71204.5, above the largest fp16 number 65504, on this case";
  r.error["o"] = {{{0.1, nan, nan}, {0.1, infinity, infinity}}, 0.31};
  r.worst[0].got = nan;
  r.worst[0].ratio = nan;
  for (auto& p : r.curve)
    if (p.position > 900) p.ratio_max = nan, p.error_max = nan;
  return r;
}

CaseRecord not_run_case() {
  CaseRecord r;
  r.kernel = {"cuda.hla2.chunk.bf16",      "registered",  "hla2", "masked",
              "chunk c=64 algebra=direct", contract_bf16, ""};
  r.case_line = "op=hla2 variant=masked T=1024 d=64 dv=64 H=2 recipe=normal seed=20261129";
  r.verdict = Verdict::not_run;
  r.reason = "no GPU";
  return r;
}

Run sample_run() {
  return {
      "attest check --operator 'hla2,log_linear' --shape T=256,d=64,dv=64,H=2 --seed 20261129 --output out",
      20261129,
      "8fc183d0c2f1",
      "g++ 12.2.0",
      "-O3 -ffp-contract=off",
      "",
      "",
      {{"MPFR", "4.2.0"}, {"GMP", "6.2.1"}, {"Boost", "1.81"}},
      "2026-11-29T19:18:31Z"};
}

constexpr Shape shapes[] = {
    {"hla2", "masked", "stream algebra=direct", contract_fp32, "fp32", 0.11, 0.9, 0.02},
    {"hla2", "masked", "stream algebra=difference", contract_fp32, "fp32", 0.16, 41, 0.05},
    {"hla2", "masked", "chunk c=64 algebra=direct", contract_fp32, "fp32", 0.13, 1.0, 0.02},
    {"hla2", "masked", "chunk c=64 algebra=difference", contract_fp32, "fp32", 0.19, 35, 0.05},
    {"hla2", "masked", "stream algebra=direct", contract_bf16, "bf16", 0.22, 1.4, 0.04},
    {"hla2", "masked", "stream algebra=difference", contract_bf16, "bf16", 0.31, 77, 0.1},
    {"hla2", "masked", "chunk c=64 algebra=direct", contract_bf16, "bf16", 0.24, 1.5, 0.04},
    {"hla2", "masked", "chunk c=64 algebra=direct", contract_bf16_state, "bf16_state", 0.38, 6.2, 0.12},
    {"hla2", "printed", "stream", contract_fp32, "fp32", 0.12, 1.1, 0.02},
    {"log_linear_mamba2", "masked", "stream", contract_fp32, "fp32", 0.08, 0.7, 0.01},
    {"log_linear_mamba2", "masked", "scan", contract_fp32, "fp32", 0.07, 0.6, 0.0},
    {"log_linear_mamba2", "masked", "chunk c=64", contract_bf16, "bf16", 0.21, 1.2, 0.02},
    {"gated_delta", "masked", "stream", contract_fp32, "fp32", 0.28, 2.2, 0.08},
    {"gated_delta", "masked", "chunk c=64", contract_bf16, "bf16", 0.4, 2.9, 0.1},
};

}  // namespace

Records records_of(std::vector<CaseRecord> cases) {
  Records records{sample_run(), std::move(cases), {}, true};
  for (const auto& record : records.cases) records.end.count(record.verdict);
  records.end.finished = "2026-11-29T19:20:02Z";
  return records;
}

Records empty_records() { return records_of({}); }

Records sample_records() {
  std::vector<CaseRecord> cases;
  std::uint64_t salt = 0;
  for (const auto& shape : shapes)
    for (const std::int64_t tokens : {64, 256, 1024}) cases.push_back(sample_case(shape, tokens, ++salt));
  cases[1].error["o"] = {};  // exact: all zeros
  for (auto& p : cases[1].curve) p.ratio_max = p.error_max = 0;
  auto suspect = sample_case(
      {"log_linear_mamba2", "masked", "chunk c=32", contract_bf16_state, "bf16_state", 0.93, 7.9, 0.0}, 256,
      71);
  suspect.verdict = Verdict::suspect;
  suspect.reason =
      "error between the statistical and the deterministic bound on 3 elements; run again with fresh seeds";
  cases.push_back(failing_case());
  cases.push_back(nan_case());
  cases.push_back(suspect);
  cases.push_back(not_run_case());
  cases.back().error.clear();
  auto gradients =
      sample_case({"gated_delta", "masked", "stream", contract_fp32, "fp32.backward", 0.2, 2, 0.05}, 256, 31);
  gradients.error["dk"] = {{{0.1, 0.3, 0.64}, {0.5, 2.5, 9.0}}, 0.91};
  cases.push_back(gradients);
  return records_of(std::move(cases));
}

Records many_records(std::size_t count) {
  std::vector<CaseRecord> cases;
  for (std::size_t i = 0; i < count; ++i) {
    CaseRecord record = sample_case(shapes[i % std::size(shapes)], 64 << i / std::size(shapes) % 3, i);
    record.case_line += fmt::format(" number={}", i);
    record.curve = thin_curve(record.curve, 64);
    if (i % 1009 == 1008)
      record.verdict = Verdict::fail, record.reason = "error above the bound on 3 elements";
    if (i % 97 == 96)
      record.verdict = Verdict::undecided,
      record.reason = "no power: the bound is below a quarter of the value on 9 %";
    cases.push_back(std::move(record));
  }
  return records_of(std::move(cases));
}

CaseRecord hostile_case() {
  CaseRecord r = sample_case({"hla2", "masked", "stream", contract_fp32, "fp32", 0.2, 1, 0.1}, 64, 3);
  const std::string evil =
      "<script>alert(1)</script>\"' onload='x' `touch gnuplot_was_here` $(id) | & ]]> \\ \x01\xff\u202E "
      "[a](javascript:b) {x}\n";
  r.kernel.name = r.kernel.op = r.kernel.form = r.kernel.contract = r.reason = evil;
  r.case_line = fmt::format("op='{}", evil);
  r.verdict = Verdict::fail;
  r.stages = {{evil, 0.5}, {"b", 0.5}};
  r.locate = Locate{evil, evil, evil, evil, evil};
  r.oracle->method = evil;
  r.error = {{evil, r.error["o"]}};
  r.plain.clear();
  for (auto& p : r.curve) p.tensor = evil;
  r.worst[0].tensor = r.worst[0].replay = evil;
  r.checks = {{evil, Verdict::fail, Rule::bitwise, 2, 1, r.worst[0], evil, evil}};
  return r;
}

}  // namespace attest
