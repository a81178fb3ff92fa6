#include "reference/cases/recipe.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "reference/cases/random.hpp"
#include "reference/numeric/format.hpp"

namespace attest {
namespace {

// FNV-1a over the bit patterns.
std::uint64_t digest(const Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const double x : tensor.data)
    for (std::uint64_t bits = std::bit_cast<std::uint64_t>(x), i = 0; i < 8; ++i, bits >>= 8)
      hash = (hash ^ (bits & 0xff)) * 0x100000001b3u;
  return hash;
}

Tensor drawn(std::string_view recipe, Index tokens = 64, Index size = 16, std::uint64_t seed = 1) {
  return draw(*find_recipe(recipe), "k", {1, tokens, 2, size}, seed);
}

double row_dot(const Tensor& x, Index t, Index s) {
  const Index heads = x.shape[2], size = x.shape[3];
  double sum = 0;
  for (Index i = 0; i < size; ++i)
    sum += x.data[static_cast<std::size_t>(t * heads * size + i)] *
           x.data[static_cast<std::size_t>(s * heads * size + i)];
  return sum;
}
double cosine(const Tensor& x, Index t, Index s) {
  return row_dot(x, t, s) / std::sqrt(row_dot(x, t, t) * row_dot(x, s, s));
}

TEST(Random, IsSplitMix64) {  // reference values of the authors' splitmix64.c for seed 1234567
  Random random(1234567);
  EXPECT_EQ(random.bits(), 6457827717110365317u);
  EXPECT_EQ(random.bits(), 3203168211198807973u);
}

TEST(Random, DrawsGaussiansOfMeanZeroAndVarianceOne) {
  Random random(3);
  double sum = 0, square = 0, fourth = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = random.gaussian();
    sum += x, square += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));  // five standard errors
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 2.9, 5 * std::sqrt(96.0 / n));  // 3 - 6/(5*12)
}

TEST(Recipe, GivesTheSameBitsOnEveryMachine) {
  const std::map<std::string, std::uint64_t> pinned = {
      {"gaussian", 0xc65b5f452dbe65dau},     {"uniform", 0xa3fdab234b257c6du},
      {"heavy", 0x00fb84409c518ed1u},        {"bits", 0xe081faa1b8d24bd4u},
      {"range", 0x6879f01118b02f45u},        {"denormal", 0xeedc450c518fb8f8u},
      {"cancellation", 0xe610d77b19eb0182u}, {"correlated", 0xa75ad5c44b3522a5u},
      {"repeated", 0xffbf43a96dd2f464u},     {"sparse", 0x4bffba0ad164a5c1u},
      {"growing", 0xe0180d8aaff4de49u},
  };
  for (const RecipeInfo& recipe : recipes())
    EXPECT_EQ(digest(drawn(recipe.name)), pinned.at(recipe.name)) << recipe.name;
  const std::map<std::string, std::uint64_t> pinned_gates = {
      {"published/g", 0xf1ab610b4d8eb910u},     {"published/beta", 0xed52e176263cbfc5u},
      {"published/decay", 0x6528c05893028017u}, {"uniform/g", 0x1e090fc2c83d94deu},
      {"uniform/beta", 0x570d3d37c01a6089u},    {"uniform/decay", 0x41d1c3dfb08e2b46u},
      {"extreme/g", 0x32cb44a163a70012u},       {"extreme/beta", 0xe50fb7f3337f5d2fu},
      {"extreme/decay", 0x3f0b4ffa86bb41c8u},   {"none/g", 0x6ab05ef9aa8b9b25u},
      {"none/beta", 0x8822c24a37ab6f25u},       {"none/decay", 0x439bb40fbb1a9658u},
  };
  for (const RecipeInfo& recipe : gate_recipes())
    for (const char* field : {"g", "beta", "decay"}) {
      const bool decay = std::string_view(field) == "decay";
      const Tensor tensor =
          draw_gate(recipe, field, decay ? std::vector<Index>{3} : std::vector<Index>{1, 64, 3}, 1);
      EXPECT_EQ(digest(tensor), pinned_gates.at(recipe.name + '/' + field)) << recipe.name << field;
    }
}

TEST(Recipe, DependsOnSeedAndField) {
  EXPECT_NE(digest(drawn("gaussian", 64, 16, 1)), digest(drawn("gaussian", 64, 16, 2)));
  const auto& recipe = *find_recipe("gaussian");
  EXPECT_NE(draw(recipe, "q", {1, 4, 1, 4}, 1).data, draw(recipe, "k", {1, 4, 1, 4}, 1).data);
}

TEST(Recipe, BeginsALongerSequenceLikeAShorterOne) {
  for (const RecipeInfo& recipe : recipes()) {
    const Tensor shorter = drawn(recipe.name, 16), longer = drawn(recipe.name, 64);
    EXPECT_TRUE(std::equal(shorter.data.begin(), shorter.data.end(), longer.data.begin())) << recipe.name;
  }
}

TEST(Recipe, CancellationMakesNeighboursNearlyOpposite) {
  EXPECT_LT(cosine(drawn("cancellation"), 0, 1), -0.99);
  EXPECT_GT(cosine(drawn("gaussian"), 0, 1), -0.99);
}

TEST(Recipe, CorrelatedKeysShareADirection) {
  const Tensor keys = drawn("correlated");
  for (Index t = 1; t < 64; ++t) EXPECT_GT(cosine(keys, 0, t), 0.8);
}

TEST(Recipe, RepeatedTokensComeFromFourVectors) {
  const Tensor keys = drawn("repeated");
  std::set<double> first_entries;
  for (Index t = 0; t < 64; ++t) first_entries.insert(keys.data[static_cast<std::size_t>(t * 2 * 16)]);
  EXPECT_EQ(first_entries.size(), 4u);
}

TEST(Recipe, SparseIsMostlyZeroAndGrowingGrows) {
  const Tensor sparse = drawn("sparse");
  const auto zero = std::count(sparse.data.begin(), sparse.data.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(zero) / static_cast<double>(sparse.data.size()), 7.0 / 8, 0.05);
  const Tensor growing = drawn("growing", 256);
  EXPECT_GT(row_dot(growing, 255, 255), 50 * row_dot(growing, 0, 0));
}

TEST(Recipe, RangeAndHeavyReachFarAndDenormalReachesBelowNormal) {
  const auto largest = [](const Tensor& x) {
    return std::abs(*std::max_element(x.data.begin(), x.data.end(),
                                      [](double a, double b) { return std::abs(a) < std::abs(b); }));
  };
  EXPECT_GT(largest(drawn("range")), 2048);
  EXPECT_GT(largest(drawn("heavy")), 20);
  EXPECT_LE(largest(drawn("gaussian")), 6);
  const auto below = [](const Tensor& x, double limit) {
    return std::count_if(x.data.begin(), x.data.end(),
                         [&](double v) { return v != 0 && std::abs(v) < limit; });
  };
  EXPECT_GT(below(drawn("denormal"), fp32.smallest_normal()), 100);
  EXPECT_GT(below(drawn("denormal"), fp16.smallest_normal()), 200);
  EXPECT_EQ(below(drawn("gaussian"), fp32.smallest_normal()), 0);
}

TEST(Recipe, BitsAreValuesOfBf16) {
  for (const double x : drawn("bits").data) EXPECT_EQ(round_to(bf16, x), x);
}

TEST(Recipe, GatesStayInTheirDomain) {
  for (const RecipeInfo& recipe : gate_recipes()) {
    for (const double g : draw_gate(recipe, "g", {2, 64, 3}, 9).data) EXPECT_LE(g, 0) << recipe.name;
    for (const double beta : draw_gate(recipe, "beta", {2, 64, 3}, 9).data)
      EXPECT_TRUE(beta >= 0 && beta <= 1) << recipe.name;
    for (const double decay : draw_gate(recipe, "decay", {40}, 9).data)
      EXPECT_TRUE(decay > 0 && decay <= 1) << recipe.name;
  }
  for (const double g : draw_gate(*find_gate_recipe("published"), "g", {1, 256, 8}, 9).data)
    EXPECT_TRUE(g <= -1e-3 * 0.999 && g >= -1.6 * 1.001);  // A in [1, 16), dt in [1e-3, 1e-1)
}

TEST(Recipe, NormalisedRowsHaveNormOne) {
  Tensor keys = drawn("gaussian");
  normalise_rows(keys);
  for (Index t = 0; t < 64; ++t) EXPECT_NEAR(row_dot(keys, t, t), 1, 1e-14);
  Tensor zero{{1, 1, 1, 4}, {0, 0, 0, 0}};
  normalise_rows(zero);
  EXPECT_EQ(zero.data, (std::vector<double>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace attest
