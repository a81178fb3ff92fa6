// A bound of a sum in any order holds for every tree of additions; that of one order does not.
#include "reference/numeric/running.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/cases/random.hpp"
#include "reference/numeric/format.hpp"

namespace attest {
namespace {

// The largest error of the sum of the terms in fp32 over all trees: any two may be added next.
double worst_error(const std::vector<double>& terms, double exact) {
  if (terms.size() == 1) return std::abs(terms[0] - exact);
  double worst = 0;
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      std::vector<double> rest;
      for (std::size_t k = 0; k < terms.size(); ++k)
        if (k != i && k != j) rest.push_back(terms[k]);
      rest.push_back(round_to(fp32, terms[i] + terms[j]));
      worst = std::max(worst, worst_error(rest, exact));
    }
  return worst;
}

// Of sizes far apart and of both signs; the double sum of up to five is exact.
std::vector<double> drawn_terms(Random& random, std::size_t count) {
  std::vector<double> terms;
  for (std::size_t i = 0; i < count; ++i)
    terms.push_back(random.sign() *
                    round_to(fp32, std::ldexp(1 + random.uniform(), static_cast<int>(random.below(12)))));
  return terms;
}

Running sum_of(const std::vector<double>& terms, bool any_order) {
  const WorkingScope scope({0x1p-24, 0, 0, any_order});
  Running sum;
  for (const double x : terms) sum += Running(x);
  return sum;
}

TEST(Running, OfAnyOrderHoldsForEveryTreeOfAdditionsAndOfOneOrderDoesNot) {
  Random random(1, "trees");
  int beyond_one_order = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<double> terms = drawn_terms(random, 2 + random.below(4));
    double exact = 0;
    for (const double x : terms) exact += x;
    const double worst = worst_error(terms, exact);
    EXPECT_LE(worst, sum_of(terms, true).error);
    if (worst > sum_of(terms, false).error) ++beyond_one_order;
  }
  EXPECT_GT(beyond_one_order, 10);
}

TEST(Running, KeepsToOneRoundingWhereThereIsOne) {
  const WorkingScope scope({0x1p-24, 0, 0, true});
  const Running a(3), b(4), zero;
  EXPECT_EQ((a + b).error, 7 * 0x1p-24);
  EXPECT_EQ((zero + a + zero).error, 0);
  EXPECT_EQ((Running(1) * (a + b)).error, (a + b).error);
}

// What overflows on the way is 0 after a factor of 0, and NaN in the format: that it happened is noted, in scopes within too.
TEST(Running, NotesWhatMayOverflowOnTheWay) {
  const auto noted = [](auto&& compute) {
    const WorkingScope scope({0x1p-24, 0, 0, true, fp32.max_finite() / 2});
    compute();
    return Running::working().exceeded;
  };
  const Running large(0x1p+70), half(0x1p+126);
  EXPECT_FALSE(noted([&] { (void)(large * Running(0x1p+50)); }));
  EXPECT_TRUE(noted([&] { EXPECT_EQ((large * large * Running(0)).error, 0); }));
  EXPECT_FALSE(noted([&] { (void)(half - Running(3)); }));
  EXPECT_TRUE(noted([&] { (void)(half + half - half); }));
  EXPECT_TRUE(noted([&] { (void)(half - half + Running(3)); }));  // in another order
  EXPECT_TRUE(noted([&] {
    const WorkingScope within(Running::working());
    (void)(large * large);
  }));
}

// A number that was stored is one term of what comes after.
TEST(Running, ForgetsTheTermsOfWhatIsStoredOrMultiplied) {
  const WorkingScope scope({0x1p-24, 0, 0, true});
  Running stored = Running(3) + Running(4);
  stored.widen(0);
  const double u = 0x1p-24, e = 7 * u;
  EXPECT_EQ((stored + Running(5)).error, e + u * (12 + e));
  const double gamma = 2 * u / (1 - 2 * u);
  EXPECT_EQ((Running(3) + Running(4) + Running(5)).error, gamma * 12);
  const Running product = (Running(3) + Running(4)) * Running(2);
  EXPECT_EQ((product + Running(5)).error, product.error + u * (19 + product.error));
}

}  // namespace
}  // namespace attest
