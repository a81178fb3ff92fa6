// Inputs made by hand on which a correct kernel was once called wrong: roundings, ranges and underflow that the bound had
// left out. They may pass or prove nothing; they may not fail.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/check.hpp"

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Rows = std::vector<double>;

// One head; q and k of key_dim columns, v of value_dim.
struct Crafted {
  const char* left_out;
  const char* kernels;
  Index tokens, key_dim, value_dim;
  std::map<std::string, Rows> fields;
  const char* options = "";
};

Problem problem_of(const Crafted& c, const Declaration& declaration) {
  Problem problem;
  problem.batch = 1, problem.tokens = c.tokens, problem.heads = 1, problem.key_dim = c.key_dim;
  problem.value_dim = c.value_dim;
  for (const auto& [name, data] : c.fields) {
    if ((name == "alpha" && !declaration.gates) || (name == "beta" && !declaration.beta) ||
        (name == "level_scales" && !declaration.level_scales))
      continue;
    const Index width = static_cast<Index>(data.size()) / c.tokens;
    const bool row = name == "q" || name == "k" || name == "v" || name == "level_scales";
    problem.fields[name] = {
        row ? std::vector<Index>{1, c.tokens, 1, width} : std::vector<Index>{1, c.tokens, 1}, data};
    if (name == "level_scales") problem.levels = width;
  }
  const Case line = parse_case(declaration.name + " variant=masked T=1 d=1 dv=1 H=1 B=1 " + c.options);
  problem.options = line.options;
  return problem;
}

Rows ones(Index count) { return Rows(static_cast<std::size_t>(count), 1.0); }

std::vector<Crafted> crafted() {
  return {
      {"underflow of a scaled query",
       "cpu.*delta.*.fp32",
       1,
       1,
       1,
       {{"q", {1e-40}}, {"k", {1}}, {"v", {1000}}, {"beta", {1}}, {"alpha", {1}}, {"level_scales", {1}}},
       "scale=1/3"},
      {"underflow of a scaled query before a state",
       "cpu.*delta.*.fp32",
       2,
       1,
       1,
       {{"q", {0, 1e-40}},
        {"k", {1, 0}},
        {"v", {1000, 0}},
        {"beta", {1, 0}},
        {"alpha", {1, 1}},
        {"level_scales", {1, 1, 1, 1}}},
       "scale=1/3"},
      {"overflow of scores times what a later key cancels",
       "cpu.log_linear_gated_delta.chunk*",
       2,
       1,
       1,
       {{"q", {0, 0x1p+126}},
        {"k", {1, 1}},
        {"v", {0, 0}},
        {"alpha", {1, 1}},
        {"beta", {1024, 1}},
        {"level_scales", ones(4)}}},
      {"a gate below the range of double",
       "cpu.*delta.*.fp64",
       2,
       1,
       2,
       {{"q", {0, 1}},
        {"k", {1, 0}},
        {"v", {1e10, 0, 0, 0}},
        {"beta", {1, 0}},
        {"g", {0, -750}},
        {"level_scales", {1, 1, 1, 1}}}},
      {"rounding of a scaled query",
       "cpu.linear.chunk64.*",
       1,
       2,
       1,
       {{"q", {1, 1.0078125}}, {"k", {1, -1}}, {"v", {1}}},
       "scale=1/3"},
      {"range of a scaled query",
       "cpu.linear.chunk64.fp16",
       1,
       1,
       1,
       {{"q", {60000}}, {"k", {0.125}}, {"v", {1}}},
       "scale=2"},
      {"a scale beyond the format",
       "cpu.linear.stream.fp32",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1}}, {"v", {1}}},
       "scale=1000000000000000000000000000000000000000000"},
      {"a ridge beyond the format",
       "cpu.hla2.*.fp32",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1}}, {"v", {1}}},
       "ridge=1000000000000000000000000000000000000000000"},
      {"an epsilon beyond the format",
       "cpu.linear.*.fp32",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1}}, {"v", {1}}},
       "normalize=true epsilon=1000000000000000000000000000000000000000000"},
      {"sums of gates across -infinity",
       "cpu.*mamba2.chunk*",
       3,
       1,
       1,
       {{"q", ones(3)},
        {"k", ones(3)},
        {"v", {1, 1, 0}},
        {"g", {-1e6, -infinity, -0.3}},
        {"level_scales", ones(9)}}},
      {"sums of gates across -infinity, exactly",
       "cpu.mamba2.chunk*.fp64",
       3,
       1,
       1,
       {{"q", ones(3)}, {"k", ones(3)}, {"v", {1, 1, 0}}, {"g", {-60, -infinity, -0.3}}}},
      {"partial sums beyond fp32",
       "cpu.linear.*.fp32",
       1,
       2,
       1,
       {{"q", {1e20, 1e20}}, {"k", {1e20, -1e20}}, {"v", {1}}}},
      {"partial sums beyond fp32 of a value inside",
       "cpu.linear.chunk*",
       1,
       4,
       1,
       {{"q", ones(4)}, {"k", {1.5e38, 1.5e38, 1.5e38, -3e38}}, {"v", {1}}}},
      {"partial sums of compositions",
       "cpu.hla*.fp32",
       1,
       2,
       1,
       {{"q", {1e25, 1e25}}, {"k", {1e25, -1e25}}, {"v", {1}}}},
      {"k k^T beyond fp32",
       "cpu.delta.*.fp32",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1e20}}, {"v", {1}}, {"beta", {1e-3}}}},
      {"the sum of softmax beyond fp32",
       "cpu.softmax.*",
       3,
       1,
       1,
       {{"q", {0, 0, 0}}, {"k", ones(3)}, {"v", {1.6e38, 1.6e38, 1.6e38}}}},
      {"weights with their level",
       "cpu.log_linear_gated_delta.chunk*.fp16",
       1,
       1,
       1,
       {{"q", {90}}, {"k", {1}}, {"v", {0.125}}, {"alpha", {1}}, {"beta", {1}}, {"level_scales", {1000}}}},
      {"a quotient beyond fp16",
       "cpu.linear.chunk64.fp16",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1}}, {"v", {60000}}},
       "normalize=true epsilon=-1/2"},
      {"underflow of the gate of a query",
       "cpu.log_linear_gated_delta.s*.fp32",
       2,
       1,
       1,
       {{"q", {0, 1000}},
        {"k", {1, 0}},
        {"v", {1, 0}},
        {"g", {0, -100}},
        {"beta", {1, 0}},
        {"level_scales", ones(4)}}},
      {"underflow of k v^T times beta",
       "cpu.delta.s*.fp32",
       1,
       1,
       1,
       {{"q", {1}}, {"k", {1e-23}}, {"v", {1e-23}}, {"beta", {1e10}}}},
      {"underflow of beta times a gate",
       "cpu.gated_delta.chunk*.fp32",
       2,
       2,
       1,
       {{"q", {1, 0, 0, 1}},
        {"k", {1e8, 0, 1e30, 1}},
        {"v", {1e-8, 0}},
        {"alpha", {1, 1e-15}},
        {"beta", {1, 4e-31}}}},
      {"a gate below the range of double",
       "cpu.*mamba2.s*",
       2,
       1,
       1,
       {{"q", ones(2)}, {"k", ones(2)}, {"v", {1e10, 0}}, {"g", {0, -750}}, {"level_scales", ones(4)}}},
  };
}

// T = 4, a key exactly orthogonal to the exact state, and not to the rounded one.
Crafted orthogonal() {
  Rows v;
  for (Index t = 0; t < 4; ++t)
    for (Index i = 45; i < 93; ++i) v.push_back(t == 0 ? 1 + static_cast<double>(i) / 128 : 0);
  return {"a rounded state is not orthogonal to a key",
          "cpu.log_linear_gated_delta.*.bf16state",
          4,
          2,
          48,
          {{"q", {3, -5, 3, -5, 3, -5, 3, -5}},
           {"k", {5, 3, 0, 0, 3, -5, 0, 0}},
           {"v", v},
           {"alpha", ones(4)},
           {"beta", {1, 0, 0.03125, 0}},
           {"level_scales", ones(12)}}};
}

TEST(CraftedCases, DoNotFailACorrectKernel) {
  std::vector<Crafted> all = crafted();
  all.push_back(orthogonal());
  for (const Crafted& c : all) {
    const auto kernels = find_kernels(c.kernels, "");
    ASSERT_FALSE(kernels.empty()) << c.kernels;
    for (const Kernel* kernel : kernels) {
      const Declaration& declaration = find_operator(kernel->op, kernel->variant)->declaration();
      if (c.fields.contains("g") && !declaration.gates) continue;
      Case line;
      line.op = kernel->op, line.variant = kernel->variant, line.input = "crafted";
      const Verdict verdict = check_one(*kernel, line, problem_of(c, declaration)).verdict;
      EXPECT_TRUE(verdict == Verdict::pass || verdict == Verdict::undecided || verdict == Verdict::not_run)
          << c.left_out << ": " << kernel->name << " " << static_cast<int>(verdict);
    }
  }
}

// o_t = sum over s of exp(g_{s+1} + ... + g_t) (q_t k_s) v_s in fp32, s ascending or descending, one head, one column.
Kernel plain_sums(const std::string& op, bool ascending, double fault = 0) {
  Kernel kernel;
  kernel.name = "plain." + op, kernel.op = op, kernel.variant = "masked", kernel.form = "direct";
  kernel.contract = parse_contract("input=fp32 output=fp32");
  kernel.run = [=](const Problem& p) {
    const auto at = [&](const char* name, Index t) {
      const Tensor* tensor = p.field(name);
      return tensor ? tensor->data[static_cast<std::size_t>(t)] : 0;
    };
    const auto in_fp32 = [](double x) { return round_to(fp32, x); };
    Tensor o{{1, p.tokens, 1, 1}, {}};
    for (Index t = 0; t < p.tokens; ++t) {
      double sum = 0;
      for (Index i = 0; i <= t; ++i) {
        const Index s = ascending ? i : t - i;
        double gates = 0;
        for (Index r = s + 1; r <= t; ++r) gates = in_fp32(gates + at("g", r));
        const double score = in_fp32(in_fp32(std::exp(gates)) * in_fp32(at("q", t) * at("k", s)));
        sum = in_fp32(sum + in_fp32(score * at("v", s)));
      }
      o.data.push_back(in_fp32(sum * (1 + fault)));
    }
    return KernelResult{KernelStatus::ok, "", {{"o", o}}, 0};
  };
  return kernel;
}

Verdict verdict_on(const Kernel& kernel, const Crafted& c) {
  Case line;
  line.op = kernel.op, line.variant = kernel.variant, line.input = "crafted";
  return check_one(kernel, line, problem_of(c, find_operator(kernel.op, kernel.variant)->declaration()))
      .verdict;
}

// "Direct" says that all terms are summed, not in which order: the first token, of by far the largest term, takes part in
// one addition or in three.
TEST(CraftedCases, OfDirectFormsDoNotFailInAnyOrderOfSummation) {
  const Crafted c{"order",
                  "",
                  4,
                  1,
                  1,
                  {{"q", {0, 0, 0, 0x1.88ab76p+11}},
                   {"k", {-0x1.55d1a8p+9, 0x1.58p+9, 1, -1}},
                   {"v", {0x1.274p+12, 1, -0x1.4979d6p+9, 0x1.2p+5}}}};
  for (const bool ascending : {true, false}) {
    EXPECT_NE(verdict_on(plain_sums("linear", ascending), c), Verdict::fail) << ascending;
    EXPECT_EQ(verdict_on(plain_sums("linear", ascending, 1e-5), c), Verdict::fail) << ascending;
  }
}

// A weight of exp(-95) is subnormal where q k v is not.
TEST(CraftedCases, OfDirectFormsDoNotFailWhereAWeightUnderflowsBeforeItMeetsTheQuery) {
  Crafted c{"weight", "", 20, 1, 1, {}};
  for (const char* name : {"q", "k", "v", "g"}) c.fields[name] = Rows(20, 0.0);
  c.fields["k"][0] = c.fields["v"][0] = 1, c.fields["q"][19] = 0x1.77cp+11;
  std::fill(c.fields["g"].begin() + 1, c.fields["g"].end(), -5.0);
  EXPECT_NE(verdict_on(plain_sums("mamba2", true), c), Verdict::fail);
  EXPECT_EQ(verdict_on(plain_sums("mamba2", true, 0.1), c), Verdict::fail);
}

}  // namespace
}  // namespace attest
