// The certified oracle against the definitions of SPEC in exact rational arithmetic: containment, size of the
// radius, and the ways in which a wrong certificate must be caught.
#include "reference/forms/certified.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "reference/numeric/rational.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using RationalMatrix = std::vector<std::vector<Rational>>;

struct Random {  // splitmix64: the same draw on every machine
  std::uint64_t state;
  std::uint64_t bits() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  Index below(Index n) { return static_cast<Index>(bits() % static_cast<std::uint64_t>(n)); }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double sign() { return bits() & 1 ? 1 : -1; }
};

// Distributions of one input: each is a way in which double-double arithmetic could go wrong.
enum class Recipe { fp32, full, cancelling, wide, tiny, sparse };
constexpr Recipe kRecipes[] = {Recipe::fp32, Recipe::full, Recipe::cancelling,
                               Recipe::wide, Recipe::tiny, Recipe::sparse};

double draw(Random& random, Recipe recipe) {
  switch (recipe) {
    case Recipe::fp32:
      return static_cast<float>(random.sign() * (random.unit() + random.unit()));
    case Recipe::full:
      return random.sign() * random.unit();
    case Recipe::cancelling:
      return random.sign() * (1 + random.unit() * 0x1p-40);
    case Recipe::wide:
      return random.sign() * std::ldexp(1 + random.unit(), static_cast<int>(random.below(120)) - 60);
    case Recipe::tiny:  // subnormal, and small enough for every product to underflow
      return random.sign() * std::ldexp(1 + random.unit(), -static_cast<int>(random.below(1080)));
    case Recipe::sparse:
      return random.below(3) ? 0 : random.sign() * static_cast<double>(random.below(5));
  }
  return 0;
}

struct SumProblem {
  Index tokens, key_dim, value_dim;
  std::vector<double> q, k, v, gate_high, gate_low, level_scales;
  double decay = 1, scale = 1;
  Index levels = 0;

  SumProblem(Index n, Index d, Index dv, Recipe recipe, std::uint64_t seed)
      : tokens(n), key_dim(d), value_dim(dv) {
    Random random{seed};
    const auto fill = [&](std::vector<double>& x, Index size) {
      x.resize(static_cast<std::size_t>(size));
      for (double& e : x) e = draw(random, recipe);
    };
    fill(q, n * d), fill(k, n * d), fill(v, n * dv);
    if (recipe == Recipe::cancelling)  // keys that repeat with the other sign
      for (std::size_t i = static_cast<std::size_t>(d); i < k.size(); ++i)
        if (random.below(4)) k[i] = -k[i - static_cast<std::size_t>(d)] * (1 + 0x1p-52 * random.below(2));
  }

  SumProblem& with_decay(double value) { return decay = value, *this; }
  SumProblem& with_scale(double value) { return scale = value, *this; }
  SumProblem& with_gates(std::uint64_t seed) {
    Random random{seed};
    for (Index t = 0; t < tokens; ++t) {
      const Index kind = random.below(8);
      const double high = kind == 0   ? 0
                          : kind == 1 ? 1
                          : kind == 2 ? 0x1p-300 * random.unit()
                                      : random.unit();
      gate_high.push_back(high);
      gate_low.push_back(kind < 3 ? 0 : high * 0x1p-54 * (random.unit() - 0.5));
    }
    return *this;
  }
  SumProblem& with_levels(Recipe recipe, std::uint64_t seed) {
    Random random{seed};
    levels = std::bit_width(static_cast<std::uint64_t>(tokens)) + 1;
    for (Index i = 0; i < tokens * levels; ++i) level_scales.push_back(draw(random, recipe));
    return *this;
  }

  CertifiedInput input() const {
    CertifiedInput in;
    in.tokens = tokens, in.key_dim = key_dim, in.value_dim = value_dim;
    in.q = q.data(), in.k = k.data(), in.v = v.data();
    in.weights.decay.high = decay;
    in.scale.high = scale;
    if (!gate_high.empty()) in.weights.gate_high = gate_high.data(), in.weights.gate_low = gate_low.data();
    if (levels) in.weights.level_scales = level_scales.data(), in.weights.levels = levels;
    return in;
  }
};

// The problem over Q, or with absolute values everywhere: then an operator's value is its magnitude.
struct Exact {
  Index n, d, dv;
  RationalMatrix w;  // scores q_t . k_s of every pair
  RationalMatrix v;
  RationalMatrix weight;  // w_ts, s <= t
  Rational decay, scale;
  std::vector<Rational> powers;  // of the decay

  Exact(const SumProblem& p, bool absolute) : n(p.tokens), d(p.key_dim), dv(p.value_dim) {
    const auto value = [&](double x) { return Rational(absolute ? std::fabs(x) : x); };
    const auto at = [&](const std::vector<double>& x, Index i) {
      return value(x[static_cast<std::size_t>(i)]);
    };
    decay = value(p.decay), scale = value(p.scale);
    powers.assign(u(3 * n + 1), 1);
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * decay;
    w = scores(p.q, p.k, at);
    weight = v = RationalMatrix(static_cast<std::size_t>(n));
    for (Index t = 0; t < n; ++t) {
      for (Index e = 0; e < dv; ++e) v[u(t)].push_back(at(p.v, t * dv + e));
      weight[u(t)].resize(u(n));
      Rational product = 1;
      for (Index s = t; s >= 0; --s) {
        weight[u(t)][u(s)] = product;
        if (p.levels)
          weight[u(t)][u(s)] *=
              at(p.level_scales, t * p.levels + std::bit_width(static_cast<std::uint64_t>(t ^ s)));
        if (!p.gate_high.empty()) {
          const Rational alpha = Rational(p.gate_high[u(s)]) + Rational(p.gate_low[u(s)]);
          product *= alpha;
        } else {
          product *= decay;
        }
      }
    }
  }

  static std::size_t u(Index i) { return static_cast<std::size_t>(i); }
  template <class At>
  RationalMatrix scores(const std::vector<double>& a, const std::vector<double>& b, const At& at) const {
    RationalMatrix result(u(n), std::vector<Rational>(u(n)));
    for (Index t = 0; t < n; ++t)
      for (Index s = 0; s < n; ++s)
        for (Index c = 0; c < d; ++c) result[u(t)][u(s)] += at(a, t * d + c) * at(b, s * d + c);
    return result;
  }
  const Rational& power(Index exponent) const { return powers[u(exponent)]; }
  // sum over j <= t of coefficient(t, j) v_j
  RationalMatrix combine(const std::function<Rational(Index, Index)>& coefficient) const {
    RationalMatrix result(u(n), std::vector<Rational>(u(dv)));
    for (Index t = 0; t < n; ++t)
      for (Index j = 0; j <= t; ++j) {
        const Rational c = coefficient(t, j);
        for (Index e = 0; e < dv; ++e) result[u(t)][u(e)] += c * v[u(j)][u(e)];
      }
    return result;
  }

  RationalMatrix linear() const {
    return combine([&](Index t, Index j) -> Rational { return scale * weight[u(t)][u(j)] * w[u(t)][u(j)]; });
  }
  RationalMatrix hla2(bool masked) const {
    return combine([&](Index t, Index j) {
      Rational sum = 0;
      for (Index i = 0; i <= (masked ? j : t); ++i)
        sum += power(2 * t - i - j) * w[u(t)][u(i)] * w[u(j)][u(i)];
      return Rational(scale * scale * sum);
    });
  }
  RationalMatrix ahla() const {
    return combine([&](Index t, Index j) {
      Rational sum = 0;
      for (Index i = j; i <= t; ++i) sum += w[u(t)][u(i)] * w[u(i)][u(j)];
      return Rational(scale * scale * power(t - j) * sum);
    });
  }
  RationalMatrix hla3(bool masked) const {
    return combine([&](Index t, Index j) {
      Rational sum = 0;
      for (Index m = masked ? j : 0; m <= t; ++m)
        for (Index i = 0; i <= (masked ? m : t); ++i)
          sum += power(3 * t - i - m - j) * w[u(t)][u(i)] * w[u(m)][u(i)] * w[u(m)][u(j)];
      return Rational(scale * scale * scale * sum);
    });
  }
};

struct SumForm {
  const char* name;
  CertifiedRows (*certified)(const CertifiedInput&, const CertifiedOptions&);
  RationalMatrix (*exact)(const Exact&);
};

const SumForm kHigherOrder[] = {
    {"hla2", certified_hla2, [](const Exact& e) { return e.hla2(true); }},
    {"ahla", certified_ahla, [](const Exact& e) { return e.ahla(); }},
    {"hla3", certified_hla3, [](const Exact& e) { return e.hla3(true); }},
    {"hla2 unmasked", certified_hla2_unmasked, [](const Exact& e) { return e.hla2(false); }},
    {"hla3 unmasked", certified_hla3_unmasked, [](const Exact& e) { return e.hla3(false); }},
};
const SumForm kLinear{"linear", certified_linear, [](const Exact& e) { return e.linear(); }};

// Empty when every certificate holds, else the first that does not.
std::string broken_certificate(const CertifiedRows& rows, const RationalMatrix& exact,
                               const RationalMatrix& mass, Index first_row = 0) {
  for (Index r = 0; r < rows.rows; ++r)
    for (Index e = 0; e < rows.columns; ++e) {
      const auto i = static_cast<std::size_t>(r * rows.columns + e),
                 t = static_cast<std::size_t>(r + first_row), c = static_cast<std::size_t>(e);
      if (!(std::isfinite(rows.high[i]) && std::isfinite(rows.low[i]) && std::isfinite(rows.radius[i])))
        return "not finite";
      const std::string where = " at row " + std::to_string(t) + " column " + std::to_string(e);
      const Rational error = exact[t][c] - Rational(rows.high[i]) - Rational(rows.low[i]);
      if (abs(error) > Rational(rows.radius[i])) return "value outside its radius" + where;
      if (mass[t][c] > Rational(rows.magnitude[i])) return "magnitude too small" + where;
    }
  return {};
}

std::vector<const CertifiedKernels*> all_kernels() {
  std::vector<const CertifiedKernels*> result;
  for (auto k = certified_kernels(); *k; ++k) result.push_back(*k);
  return result;
}

struct Shape {
  Index tokens, key_dim, value_dim;
  Recipe recipe;
  std::uint64_t seed;
};

Shape any_shape(Index most_tokens) {
  return {*rc::gen::inRange<Index>(1, most_tokens), *rc::gen::inRange<Index>(1, 6),
          *rc::gen::inRange<Index>(1, 6), *rc::gen::elementOf(std::vector<Recipe>(kRecipes, kRecipes + 6)),
          *rc::gen::arbitrary<std::uint64_t>()};
}

double any_decay(std::uint64_t seed) {
  constexpr double kDecays[] = {1, 0.5, 0, 0.96875, 0x1p-200};
  Random random{seed};
  return random.below(3) ? kDecays[random.below(5)] : random.unit();
}

void check_everywhere(const SumForm& op, const SumProblem& problem) {
  const RationalMatrix exact = op.exact(Exact(problem, false)), mass = op.exact(Exact(problem, true));
  for (const CertifiedKernels* kernels : all_kernels()) {
    CertifiedOptions options;
    options.kernels = kernels;
    const std::string broken = broken_certificate(op.certified(problem.input(), options), exact, mass);
    if (!broken.empty()) RC_FAIL(std::string(op.name) + " with " + kernels->name + ": " + broken);
  }
}

RC_GTEST_PROP(Certified, EnclosesTheExactHigherOrderValueOnEveryRecipe, ()) {
  const Shape s = any_shape(14);
  const double decay = any_decay(s.seed);
  for (const SumForm& op : kHigherOrder)
    check_everywhere(op, SumProblem(s.tokens, s.key_dim, s.value_dim, s.recipe, s.seed).with_decay(decay));
}

RC_GTEST_PROP(Certified, EnclosesTheExactLinearValueWithDecayGatesAndLevels, ()) {
  const Shape s = any_shape(40);
  SumProblem problem(s.tokens, s.key_dim, s.value_dim, s.recipe, s.seed);
  const int kind = *rc::gen::inRange(0, 4);
  if (kind == 1) problem.with_decay(any_decay(s.seed));
  if (kind >= 2) problem.with_gates(s.seed + 1);
  if (*rc::gen::arbitrary<bool>()) problem.with_levels(s.recipe, s.seed + 2);
  check_everywhere(kLinear, problem);
}

RC_GTEST_PROP(Certified, EnclosesTheScaledValue, ()) {
  const Shape s = any_shape(10);
  const double scale = draw(*std::make_unique<Random>(Random{s.seed}), s.recipe);
  for (const SumForm& op : kHigherOrder)
    check_everywhere(op, SumProblem(s.tokens, s.key_dim, s.value_dim, s.recipe, s.seed).with_scale(scale));
}

TEST(Certified, EnclosesTheExactValueAcrossTileBorders) {
  for (const Index tokens : {63, 64, 65, 130})
    for (const SumForm& op : {kLinear, kHigherOrder[0], kHigherOrder[1]}) {
      const SumProblem problem = SumProblem(tokens, 3, 2, Recipe::full, 7).with_decay(0.875);
      const RationalMatrix exact = op.exact(Exact(problem, false)), mass = op.exact(Exact(problem, true));
      for (const CertifiedKernels* kernels : all_kernels()) {
        CertifiedOptions options;
        options.kernels = kernels;
        EXPECT_EQ(broken_certificate(op.certified(problem.input(), options), exact, mass), "")
            << op.name << ", " << tokens << " tokens, " << kernels->name;
      }
    }
}

TEST(Certified, ADegradedCertificateIsCaught) {
  const SumProblem problem = SumProblem(40, 4, 3, Recipe::full, 11);
  const RationalMatrix exact = Exact(problem, false).hla2(true), mass = Exact(problem, true).hla2(true);
  const CertifiedRows rows = certified_hla2(problem.input());
  ASSERT_EQ(broken_certificate(rows, exact, mass), "");

  CertifiedRows without_low = rows;
  for (double& low : without_low.low) low = 0;
  EXPECT_NE(broken_certificate(without_low, exact, mass), "");

  CertifiedRows too_sure = rows;
  for (double& radius : too_sure.radius) radius *= 0x1p-20;
  EXPECT_NE(broken_certificate(too_sure, exact, mass), "");

  CertifiedRows too_small = rows;
  for (double& magnitude : too_small.magnitude) magnitude *= 1 - 0x1p-32;
  EXPECT_NE(broken_certificate(too_small, exact, mass), "");

  SumProblem other = problem;
  other.k[0] = std::nextafter(other.k[0], 2);
  EXPECT_NE(broken_certificate(certified_hla2(other.input()), exact, mass), "");
}

// The fastest kernels, but the left operand's low words are forgotten.
void multiply_without_low(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows,
                          Index columns, Index depth, bool accumulate) {
  certified_kernels()[0]->multiply({left.high, nullptr, left.magnitude, left.stride}, right, out, rows,
                                   columns, depth, accumulate);
}

TEST(Certified, KernelsThatDropALowWordAreCaught) {
  const SumProblem problem(20, 4, 3, Recipe::full, 11);
  CertifiedKernels broken = *certified_kernels()[0];
  broken.multiply = multiply_without_low;
  CertifiedOptions options;
  options.kernels = &broken;
  for (const SumForm& op : kHigherOrder) {
    const RationalMatrix exact = op.exact(Exact(problem, false)), mass = op.exact(Exact(problem, true));
    EXPECT_NE(broken_certificate(op.certified(problem.input(), options), exact, mass), "") << op.name;
  }
}

TEST(Certified, AGateKnownTooPoorlyIsNotCertified) {
  const SumProblem problem = SumProblem(10, 2, 2, Recipe::full, 37).with_gates(1);
  CertifiedInput input = problem.input();
  input.weights.gate_error = 0.1;
  for (const double radius : certified_linear(input).radius) EXPECT_TRUE(std::isinf(radius));
}

TEST(Certified, MagnitudeIsTheSumOfAbsoluteTermsToAPartIn2To32) {
  const SumProblem problem = SumProblem(50, 4, 3, Recipe::fp32, 3).with_decay(0.75);
  for (const SumForm& op : kHigherOrder) {
    const RationalMatrix mass = op.exact(Exact(problem, true));
    const CertifiedRows rows = op.certified(problem.input(), {});
    for (std::size_t i = 0; i < rows.magnitude.size(); ++i) {
      const Rational exact = mass[i / 3][i % 3];
      EXPECT_LE(Rational(rows.magnitude[i]), exact * (1 + Rational(0x1p-32))) << op.name;
    }
  }
}

TEST(Certified, RadiusIsBelowAPartIn2To60OfTheMagnitudeForOrdinaryInputs) {
  const SumProblem problem(1024, 64, 64, Recipe::fp32, 5);
  for (const SumForm& op : {kHigherOrder[0], kHigherOrder[1], kHigherOrder[2]}) {
    CertifiedOptions options;
    options.first_row = 992;
    const CertifiedRows rows = op.certified(problem.input(), options);
    ASSERT_EQ(rows.rows, 32);
    for (std::size_t i = 0; i < rows.radius.size(); ++i)
      ASSERT_LE(rows.radius[i], 0x1p-60 * rows.magnitude[i]) << op.name;
  }
}

TEST(Certified, RowsAndThreadsChangeNoBit) {
  const SumProblem plain(150, 5, 4, Recipe::full, 13);
  const SumProblem gated = SumProblem(150, 5, 4, Recipe::full, 13).with_gates(4).with_levels(Recipe::full, 5);
  const auto same_rows = [](const SumForm& op, const SumProblem& problem) {
    const CertifiedRows all = op.certified(problem.input(), {});
    for (const Index first : {0, 1, 37, 64, 149, 150}) {
      CertifiedOptions options;
      options.first_row = first;
      options.threads = 3;
      const CertifiedRows some = op.certified(problem.input(), options);
      ASSERT_EQ(some.rows, 150 - first);
      const auto skip = first * all.columns;
      EXPECT_EQ(some.high, std::vector<double>(all.high.begin() + skip, all.high.end())) << op.name << first;
      EXPECT_EQ(some.low, std::vector<double>(all.low.begin() + skip, all.low.end())) << op.name << first;
      EXPECT_EQ(some.radius, std::vector<double>(all.radius.begin() + skip, all.radius.end()))
          << op.name << first;
    }
  };
  for (const SumForm& op : kHigherOrder) same_rows(op, plain);
  same_rows(kLinear, gated);
}

TEST(Certified, AnOverflowIsNeverCertified) {
  SumProblem problem(20, 3, 2, Recipe::full, 17);
  for (double& x : problem.q) x *= 0x1p1000;
  problem.k[0] = 0x1p900;
  for (const CertifiedKernels* kernels : all_kernels()) {
    CertifiedOptions options;
    options.kernels = kernels;
    for (const SumForm& op : kHigherOrder)
      for (const double radius : op.certified(problem.input(), options).radius)
        EXPECT_TRUE(std::isinf(radius));
  }
}

TEST(Certified, ANonFiniteTokenLeavesEveryEarlierRowUntouched) {
  for (const double poison : {std::nan(""), std::numeric_limits<double>::infinity()})
    for (const Index at : {0, 5, 33, 63, 64, 99}) {
      const SumProblem clean(100, 4, 3, Recipe::fp32, 19);
      SumProblem spoiled = clean;
      for (Index c = 0; c < 4; ++c) {
        spoiled.q[static_cast<std::size_t>(at * 4 + c)] = poison;
        spoiled.k[static_cast<std::size_t>(at * 4 + c)] = poison;
      }
      for (Index c = 0; c < 3; ++c) spoiled.v[static_cast<std::size_t>(at * 3 + c)] = poison;
      for (const SumForm& op : kHigherOrder) {
        const CertifiedRows a = op.certified(clean.input(), {}), b = op.certified(spoiled.input(), {});
        for (std::size_t i = 0; i < a.high.size(); ++i) {
          if (static_cast<Index>(i) / 3 < at) {
            EXPECT_EQ(a.high[i], b.high[i]) << op.name;
            EXPECT_EQ(a.radius[i], b.radius[i]) << op.name;
          } else {
            EXPECT_TRUE(std::isinf(b.radius[i])) << op.name;
          }
        }
      }
    }
}

TEST(Certified, TheErrorOfAGateIsInTheRadius) {
  SumProblem problem = SumProblem(30, 3, 2, Recipe::full, 23);
  for (Index t = 0; t < problem.tokens; ++t) problem.gate_high.push_back(0.75), problem.gate_low.push_back(0);
  SumProblem nearby = problem;
  for (double& gate : nearby.gate_high) gate = 0.75 * (1 + 0x1p-50);
  const RationalMatrix exact = Exact(nearby, false).linear(), mass = Exact(nearby, true).linear();
  CertifiedInput input = problem.input();
  EXPECT_NE(broken_certificate(certified_linear(input), exact, mass), "");
  input.weights.gate_error = 0x1p-50;
  EXPECT_EQ(broken_certificate(certified_linear(input), exact, mass), "");
}

TEST(Certified, TheErrorOfADecayAndOfTheScaleIsInTheRadius) {
  const auto problem = [](double decay, double scale) {
    return SumProblem(20, 3, 2, Recipe::full, 29).with_decay(decay).with_scale(scale);
  };
  for (const SumForm& op : kHigherOrder)
    for (const bool of_decay : {true, false}) {
      const SumProblem given = problem(0.75, 0.5);
      const SumProblem nearby =
          of_decay ? problem(0.75 * (1 + 0x1p-50), 0.5) : problem(0.75, 0.5 * (1 - 0x1p-50));
      const RationalMatrix exact = op.exact(Exact(nearby, false)), mass = op.exact(Exact(nearby, true));
      CertifiedInput input = given.input();
      EXPECT_NE(broken_certificate(op.certified(input, {}), exact, mass), "") << op.name;
      (of_decay ? input.weights.decay : input.scale).error = 0x1.8p-50;
      EXPECT_EQ(broken_certificate(op.certified(input, {}), exact, mass), "") << op.name;
    }
}

TEST(Certified, EmptyInputsGiveEmptyOutputs) {
  const CertifiedRows rows = certified_hla2(CertifiedInput{});
  EXPECT_EQ(rows.rows, 0);
  EXPECT_TRUE(rows.high.empty());
}

TEST(Certified, RefusesWhatItCannotCertify) {
  const SumProblem problem = SumProblem(9, 2, 2, Recipe::full, 31);
  const auto refused = [&](auto change) {
    CertifiedInput input = problem.input();
    CertifiedOptions options;
    change(input, options);
    EXPECT_THROW(certified_linear(input, options), BadInput);
  };
  std::vector<double> gates(9, 0.5), scales(9 * 4, 1);
  refused([](auto& input, auto&) { input.weights.decay.high = 1.5; });
  refused([](auto& input, auto&) { input.weights.decay.high = std::nan(""); });
  refused([&](auto& input, auto&) {
    input.weights.gate_high = gates.data();
    input.weights.decay.high = 0.5;
  });
  refused([&](auto& input, auto&) {
    gates[7] = -0.5;
    input.weights.gate_high = gates.data();
  });
  refused([&](auto& input, auto&) {
    input.weights.level_scales = scales.data();
    input.weights.levels = 4;
  });
  refused([](auto&, auto& options) { options.first_row = 10; });
  CertifiedInput gated = problem.input();
  gates[7] = 0.5;
  gated.weights.gate_high = gates.data();
  EXPECT_THROW(certified_hla2(gated), BadInput);
}

}  // namespace
}  // namespace attest
