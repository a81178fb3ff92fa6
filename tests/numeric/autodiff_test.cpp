#include "reference/numeric/autodiff.hpp"

#include <gtest/gtest.h>

#include "reference/numeric/magnitude.hpp"
#include "reference/numeric/rational.hpp"

namespace attest {
namespace {

// f(x, y) = (x y - 3 x) / (y + x x) + x, whose gradient by hand is below.
template <class S>
S f(const S& x, const S& y) {
  return (x * y - S(3) * x) / (y + x * x) + x;
}

const Rational x = Rational(2) / 3, y = Rational(-5) / 7;
Rational f_x() {
  const Rational below = y + x * x;
  return (y - 3) / below - (x * y - 3 * x) * 2 * x / (below * below) + 1;
}
Rational f_y() {
  const Rational below = y + x * x;
  return x / below - (x * y - 3 * x) / (below * below);
}

TEST(Dual, GivesTheExactDirectionalDerivative) {
  const Rational dx = Rational(3) / 5, dy = Rational(-1) / 11;
  const auto result = f(Dual<Rational>(x, dx), Dual<Rational>(y, dy));
  EXPECT_EQ(result.value, f(x, y));
  EXPECT_EQ(result.tangent, f_x() * dx + f_y() * dy);
}

TEST(Tape, GivesTheExactGradient) {
  Tape<Rational> tape;
  const auto a = Var<Rational>::input(x), b = Var<Rational>::input(y);
  const auto result = f(a, b);
  std::vector<Rational> bar(tape.size(), Rational(0));
  bar[result.node] = 1;
  const auto adjoint = tape.adjoints(bar);
  EXPECT_EQ(result.value, f(x, y));
  EXPECT_EQ(adjoint[a.node], f_x());
  EXPECT_EQ(adjoint[b.node], f_y());
}

TEST(Tape, NotesEveryUseOfAnInput) {  // a tape that forgot a use would give x instead of 2 x
  Tape<Rational> tape;
  const auto a = Var<Rational>::input(x);
  const auto result = a * a;
  std::vector<Rational> bar(tape.size(), Rational(0));
  bar[result.node] = 1;
  EXPECT_EQ(tape.adjoints(bar)[a.node], 2 * x);
}

TEST(Tape, KeepsConstantsOffTheTape) {
  Tape<Rational> tape;
  const Var<Rational> sum = Var<Rational>(2) + Var<Rational>(3);
  EXPECT_EQ(sum.node, -1);
  EXPECT_EQ(tape.size(), 0u);
}

TEST(Magnitude, AddsWhereTheSumSubtracts) {
  const Magnitude a(-3.0), b(2.0);
  EXPECT_EQ((a - b).value(), 5.0);
  EXPECT_EQ((a * b - b).value(), 8.0);
  EXPECT_EQ((Magnitude(0) - a).value(), 3.0);
}

}  // namespace
}  // namespace attest
