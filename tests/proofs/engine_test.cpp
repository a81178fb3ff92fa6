#include "proofs/engine.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "proofs/rank.hpp"
#include "proofs/segments.hpp"

namespace attest {
namespace {

Fields xyz(const Shape&) { return {{"x"}, {"y"}, {"z"}}; }
template <class F>
Statement about_xyz(F sides) {
  return state("", {{1, 1, 1, 0}}, xyz, [sides]<class S>(const Shape&, const Inputs<S>& in) {
    const auto [left, right] = sides(in.scalar("x"), in.scalar("y"), in.scalar("z"));
    return Comparisons<S>{{"", as_matrix<S>(left), as_matrix<S>(right)}};
  });
}

TEST(Engine, AnIdentityHoldsWithItsDegree) {
  const auto decision = decide(
      about_xyz([](auto x, auto y, auto z) { return std::pair(x * (y + z), x * y + x * z); }), "law", {});
  EXPECT_EQ(decision.verdict, ClaimVerdict::holds);
  EXPECT_EQ(decision.total_degree, 2);
  EXPECT_GE(decision.instances_per_shape, 2);
  EXPECT_LE(decision.log2_failure, -100);
}

TEST(Engine, AFalseIdentityIsRefutedByItsSimplestInstance) {
  const auto decision =
      decide(about_xyz([](auto x, auto y, auto z) { return std::pair(x * (y + z), x * y + z); }), "law", {});
  ASSERT_EQ(decision.verdict, ClaimVerdict::refuted);
  const auto& in = decision.counterexample->inputs;
  EXPECT_EQ(in.scalar("x"), 0);
  EXPECT_EQ(in.scalar("y"), 0);
  EXPECT_EQ(in.scalar("z"), 1);
}

TEST(Engine, AFalseIdentityTrueOnEveryIntegerThatIsTriedIsUndecided) {
  const auto decision = decide(about_xyz([](auto x, auto y, auto) {
                                 using S = decltype(x);
                                 S product = x;
                                 for (int root = 1; root <= 5; ++root)
                                   product = product * (x - S(root)) * (x + S(root));
                                 return std::pair<S, S>(product * y, S(0));
                               }),
                               "law", {});
  EXPECT_EQ(decision.verdict, ClaimVerdict::undecided);
}

TEST(Engine, AHighDegreeTakesMoreInstances) {
  const auto decision = decide(
      about_xyz([](auto x, auto, auto) { return std::pair(power(x, 100000), power(power(x, 1000), 100)); }),
      "law", {});
  EXPECT_EQ(decision.verdict, ClaimVerdict::holds);
  EXPECT_EQ(decision.total_degree, 100000);
  EXPECT_EQ(decision.instances_per_shape, 3);
  EXPECT_LE(decision.log2_failure, -100);
}

TEST(Engine, NoShapesDecideNothing) {
  Statement none = about_xyz([](auto x, auto, auto) { return std::pair(x, x); });
  none.shapes.clear();
  EXPECT_EQ(decide(none, "law", {}).verdict, ClaimVerdict::undecided);
}

RC_GTEST_PROP(Engine, EveryWrongTermIsFoundAndItsCounterexampleHoldsInQ, (std::uint64_t seed)) {
  const int x = *rc::gen::inRange(0, 4), y = *rc::gen::inRange(0, 4), z = *rc::gen::inRange(0, 4);
  const int factor = *rc::gen::distinctFrom(rc::gen::inRange(-4, 5), 0);
  EngineOptions options;
  options.seed = seed;
  auto sides = [=](auto a, auto b, auto c) {
    using S = decltype(a);
    const S common = a * b - c;
    return std::pair<S, S>(common, common + S(factor) * power(a, x) * power(b, y) * power(c, z));
  };
  const auto decision = decide(about_xyz(sides), "law", options);
  RC_ASSERT(decision.verdict == ClaimVerdict::refuted);
  const auto& in = decision.counterexample->inputs;
  const auto [left, right] = sides(in.scalar("x"), in.scalar("y"), in.scalar("z"));
  RC_ASSERT(left != right);
  RC_ASSERT(decision.counterexample->difference.left(0, 0) == left);
  RC_ASSERT(decision.counterexample->difference.right(0, 0) == right);
}

TEST(Degree, IsThatOfTheHighestTerm) {
  const Degree x = Degree::of_degree(1), zero(0), one(1);
  EXPECT_EQ((x * x + x).degree(), 2);
  EXPECT_EQ((x * x * zero + x).degree(), 1);
  EXPECT_EQ((one - one * x).degree(), 1);
  EXPECT_EQ(zero.degree(), 0);
  EXPECT_EQ((zero * x).degree(), 0);
}

TEST(Rank, IsExactOverTheRationalsAndTheField) {
  Matrix<Rational> m(3, 3);
  for (Index i = 0; i < 9; ++i) m.data()[i] = Rational(static_cast<int>(i + 1), 3);
  EXPECT_EQ(rank(m), 2);
  m(2, 2) += 1;
  EXPECT_EQ(rank(m), 3);
  EXPECT_EQ(rank(Matrix<PrimeField>(4, 2)), 0);
  EXPECT_EQ(rank(identity_matrix<PrimeField>(5)), 5);
}

}  // namespace
}  // namespace attest
