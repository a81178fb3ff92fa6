#include "linear_attention.hpp"

#include <gtest/gtest.h>

#include <attest/attest.hpp>
#include <attest/rapidcheck.hpp>

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

attest::KernelUnderTest linear_attention(bool forgets_itself) {
  attest::KernelUnderTest kernel{
      .name = "linear_attention", .op = "linear", .form = "stream", .contract = "input=fp32 output=fp32"};
  kernel.run = [=](const attest::Call& call) {
    const LinearAttention run{size(call.batch),     size(call.tokens),
                              size(call.heads),     size(call.key_dim),
                              size(call.value_dim), static_cast<float>(call.option("scale", 1)),
                              forgets_itself};
    run(call.input<float>("q"), call.input<float>("k"), call.input<float>("v"), call.output<float>("o"));
  };
  return kernel;
}

TEST(LinearAttention, IsRight) {
  const attest::Result result = attest::check(linear_attention(false));
  EXPECT_TRUE(result) << result;
}

TEST(LinearAttention, IsRightOnEveryCase) {
  EXPECT_TRUE(rc::check("linear attention is within its bound", [] {
    const attest::KernelUnderTest kernel = linear_attention(false);
    const attest::Result result = attest::check_case(kernel, *attest::cases(kernel));
    if (result.failed()) RC_FAIL(result.summary());
  }));
}

// What a failure looks like; run with --gtest_also_run_disabled_tests.
TEST(LinearAttention, DISABLED_IsRightWithoutItself) {
  const attest::Result result = attest::check(linear_attention(true), {.seed = 7});
  EXPECT_TRUE(result) << result;
}

TEST(LinearAttention, DISABLED_IsRightWithoutItselfOnEveryCase) {
  EXPECT_TRUE(rc::check("linear attention without its own token is within its bound", [] {
    const attest::KernelUnderTest kernel = linear_attention(true);
    const attest::Result result = attest::check_case(kernel, *attest::cases(kernel));
    if (result.failed()) RC_FAIL(result.summary());
  }));
}

}  // namespace
