// The generators: what they draw is legal and within the limits, finds a fault and shrinks it to the smallest case.
#include <gtest/gtest.h>

#include <attest/rapidcheck.hpp>
#include <set>

#include "reference/cases/case.hpp"
#include "tests/library/kernels.hpp"

namespace attest {
namespace {

// The smallest value reached by always taking the first smaller one that still fails.
template <class T, class Fails>
T smallest(rc::Shrinkable<T> shrinkable, Fails fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (auto candidates = shrinkable.shrinks(); const auto next = candidates.next();)
      if (fails(next->value())) {
        shrinkable = *next, smaller = true;
        break;
      }
  }
  return shrinkable.value();
}

TEST(Generators, DrawCasesOfEveryOperatorWithinTheLimits) {
  std::set<std::string> recipes;
  for (const char* op : {"softmax", "linear", "gated_delta", "log_linear_mamba2", "hla2"}) {
    KernelUnderTest kernel = right_kernel();
    kernel.op = op;
    if (kernel.op == "hla2") kernel.takes = "scale decay ridge";
    const auto gen = cases(kernel, {.tokens = 9, .key_dim = 4, .value_dim = 3, .heads = 2, .batch = 2});
    for (std::uint64_t i = 0; i < 60; ++i) {
      const Case drawn = parse_case(gen(rc::Random(i), 100).value());
      EXPECT_EQ(drawn.op, op);
      EXPECT_TRUE(*drawn.tokens >= 1 && *drawn.tokens <= 9 && drawn.key_dim <= 4 && drawn.value_dim <= 3);
      EXPECT_FALSE(drawn.options.decay && kernel.op != "hla2");
      EXPECT_GT(draw_input(to_text(drawn)).fields.at("q").data.size(), 0u);
      recipes.insert(drawn.recipe);
    }
  }
  EXPECT_EQ(recipes.size(), recipe_names().size());
}

TEST(Generators, ShrinkAFaultToOneTokenOfThePlainestRecipe) {
  const auto fails = [](const std::string& line) { return check_case(strict_kernel(), line).failed(); };
  int found = 0;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto drawn = cases(strict_kernel())(rc::Random(i), 100);
    if (!fails(drawn.value())) continue;
    ++found;
    const std::string least = smallest(drawn, fails);
    EXPECT_TRUE(
        least.starts_with("linear variant=masked T=1 d=1 dv=1 H=1 B=1 recipe=gaussian gates=published seed="))
        << least;
  }
  EXPECT_GT(found, 3);
}

TEST(Generators, DrawInputsThatARightKernelPassesAndAWrongOneFails) {
  const auto gen = inputs(right_kernel(), {.tokens = 12, .key_dim = 4, .value_dim = 4});
  int found = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const TestInput input = gen(rc::Random(i), 40).value();
    EXPECT_FALSE(check_input(right_kernel(), input).failed()) << check_input(right_kernel(), input);
    found += check_input(strict_kernel(), input).failed() ? 1 : 0;
  }
  EXPECT_GT(found, 25);
}

TEST(Generators, ShowInputsToTheBit) {
  std::ostringstream text;
  showValue({{{"q", {{1, 2}, {0.1, -3}}}}, {"decay=3/4"}}, text);
  EXPECT_EQ(text.str(), "decay=3/4\nq [ 1 2 ]: 0x1.999999999999ap-4 -0x1.8p+1\n");
}

}  // namespace
}  // namespace attest
