// attest::check and its kin: a right kernel passes, every kind of wrong one fails and says so, bad input is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "tests/library/kernels.hpp"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string verdict_of(const Result& result, const std::string& check) {
  for (const CheckVerdict& verdict : result.checks)
    if (verdict.check == check) return verdict.verdict;
  return "no such check";
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "not refused";
}

TEST(LibraryCheck, PassesARightKernelAndSaysWhatItDidNotCover) {
  const Result result = check(right_kernel());
  EXPECT_TRUE(result) << result;
  EXPECT_FALSE(result.failed());
  EXPECT_EQ(verdict_of(result, "lattice"), "PASS");
  EXPECT_EQ(verdict_of(result, "split"), "NOT RUN");
  EXPECT_THAT(result.summary(), HasSubstr("uncovered not run: "));
}

TEST(LibraryCheck, RejectsAWrongKernelInAtMostTenLinesOfWhichTheLastRepeatsIt) {
  const Result result = check(strict_kernel(), {.seed = 7});
  EXPECT_FALSE(result);
  EXPECT_TRUE(result.failed());
  std::ostringstream shown;
  shown << result;
  const std::vector<std::string> lines = lines_of(shown.str());
  EXPECT_LE(lines.size(), 10u);
  EXPECT_EQ(lines.front(), "FAIL      mine: linear, stream algebra=direct");
  EXPECT_EQ(lines.back(),
            "replay    attest::check(kernel, {.seed = 7, .only = \"" + result.first_bad + "\"})");
  const Result again = check(strict_kernel(), {.seed = 7, .only = result.first_bad});
  ASSERT_EQ(again.checks.size(), 1u);
  EXPECT_EQ(again.checks[0].verdict, "FAIL");
  const auto first = std::ranges::find(result.checks, result.first_bad, &CheckVerdict::check);
  ASSERT_NE(first, result.checks.end());
  EXPECT_EQ(again.checks[0].reason, first->reason);
}

TEST(LibraryCheck, DrawsASeedAndNamesIt) {
  const Result first = check(right_kernel(), {.only = "lattice"}),
               second = check(right_kernel(), {.only = "lattice"});
  EXPECT_NE(first.seed, second.seed);
  EXPECT_THAT(first.summary(), HasSubstr(".seed = " + std::to_string(first.seed)));
  EXPECT_THAT(check(right_kernel(), {.seed = 1, .full = true, .only = "lattice"}).summary(),
              HasSubstr(".full = true"));
}

// What a kernel does wrong beside its values, and the words in which it is told.
TEST(LibraryCheck, RejectsWhatAKernelDoesToMemoryThatIsNotItsOwn) {
  const auto reason = [](std::function<void(const Call&)> wrong) {
    const Result result = check(linear_kernel(std::move(wrong)), {.seed = 1, .only = "lattice"});
    EXPECT_EQ(result.verdict, "FAIL");
    return result.checks.at(0).reason;
  };
  EXPECT_THAT(reason([](const Call& call) {
                linear_stream(call);
                if (call.tokens > 0) static_cast<float*>(call.find_input("q")->data)[0] += 1;
              }),
              HasSubstr("wrote to an input or beside it"));
  EXPECT_THAT(reason([](const Call& call) {
                linear_stream(call);
                const CallTensor* o = call.find_output("o");
                static_cast<float*>(o->data)[o->size()] = 1;
              }),
              HasSubstr("wrote where no output lies: byte 1 after the end of the output o"));
  EXPECT_THAT(reason([](const Call&) {}), HasSubstr("unwritten"));
  EXPECT_THAT(reason([](const Call& call) {  // one element before the first
                linear_stream(call);
                if (call.tokens > 0) call.output<float>("o")[0] += call.input<float>("v").data()[-1];
              }),
              HasSubstr("made them of memory that nobody wrote"));
}

// PyTorch writes any NaN in bf16 with all bits set: a NaN like another, and no element that nobody wrote.
TEST(LibraryCheck, TakesEveryNaNThatArithmeticMakesForOne) {
  for (const std::uint16_t nan : {0x7fc0, 0xffc0, 0xffff, 0x7fff}) {
    KernelUnderTest kernel = linear_kernel([=](const Call& call) { linear_stream_bf16(call, nan); });
    kernel.contract = "input=bf16 product=bf16 accumulate=fp32 output=bf16";
    const Result result = check(kernel, {.seed = 1});
    EXPECT_TRUE(result) << nan << '\n' << result;
    EXPECT_EQ(verdict_of(result, "containment"), "PASS");
  }
}

TEST(LibraryCheck, RejectsElementsOfTwoBytesThatNobodyWrote) {
  for (const char* format : {"bf16", "fp16"}) {
    KernelUnderTest kernel = linear_kernel([](const Call&) {});
    kernel.contract = std::string("input=bf16 product=bf16 output=") + format;
    EXPECT_THAT(check(kernel, {.seed = 1, .only = "lattice"}).checks.at(0).reason, HasSubstr("unwritten"));
  }
  KernelUnderTest adds = linear_kernel([](const Call& call) {  // onto what was there
    for (std::uint16_t& x : call.output<std::uint16_t>("o"))
      x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(from_bf16(x) + 1.0f) >> 16);
  });
  adds.contract = "input=bf16 product=bf16 output=bf16";
  EXPECT_THAT(check(adds, {.seed = 1, .only = "lattice"}).checks.at(0).reason,
              HasSubstr("memory that nobody wrote"));
}

TEST(LibraryCheck, RejectsAnExceptionAndElementsOfAnotherType) {
  const auto reason = [](std::function<void(const Call&)> wrong) {
    return check(linear_kernel(std::move(wrong)), {.seed = 1, .only = "lattice"}).checks.at(0).reason;
  };
  EXPECT_THAT(reason([](const Call&) { throw std::runtime_error("out of\nluck"); }),
              HasSubstr("threw an exception: out of\\x0aluck"));
  EXPECT_THAT(reason([](const Call&) { throw 3; }),
              HasSubstr("threw an exception: something that is no std::exception"));
  EXPECT_THAT(reason([](const Call&) { throw WrongOutput("o is a list"); }),
              testing::StartsWith("the kernel failed: o is a list"));
  EXPECT_THAT(reason([](const Call& call) { (void)call.input<double>("q"); }),
              HasSubstr("the elements of q have another type"));
}

TEST(LibraryCheck, EndsWithAnInterruption) {
  const auto interrupted = [](const Call&) {
    throw Interruption{std::make_exception_ptr(std::runtime_error("Ctrl-C"))};
  };
  EXPECT_THROW(check(linear_kernel(interrupted), {.seed = 1, .only = "lattice"}), Interruption);
}

TEST(LibraryCheck, RefusesLimitsThatAdmitNoHeadAndDoesNotRunWhereTheyAdmitNoSmallOne) {
  KernelUnderTest kernel = right_kernel();
  kernel.limits = "d=0";
  EXPECT_THAT(refusal([&] { check(kernel, {.seed = 1}); }), HasSubstr("\"d=0\": it admits no size"));
  kernel.limits = "dv=1000000";
  const Result result = check(kernel, {.seed = 1});
  EXPECT_EQ(result.verdict, "NOT RUN");
  EXPECT_THAT(result.summary(), HasSubstr("the limits admit no case small enough: dv is at least 1000000"));
}

TEST(LibraryCheck, DoesNotJudgeWhatAKernelIsNotMadeFor) {
  KernelUnderTest none = linear_kernel([](const Call&) { throw Unsupported("not on Mondays"); });
  const Result result = check(none, {.seed = 1});
  EXPECT_EQ(result.verdict, "NOT RUN");
  EXPECT_FALSE(result);
  EXPECT_FALSE(result.failed());
  EXPECT_THAT(result.summary(), HasSubstr("not on Mondays"));
  KernelUnderTest gates = right_kernel();
  gates.op = "mamba2";
  EXPECT_THAT(check(gates, {.seed = 1, .only = "value"}).summary(), HasSubstr("the kernel does not take g"));
}

// Options and fields that a kernel takes reach it: with `decay` among them the same function is a right retention.
TEST(LibraryCheck, HandsOverTheFieldsAndOptionsThatAreTaken) {
  KernelUnderTest kernel = right_kernel();
  kernel.op = "retention", kernel.takes = "scale decay";
  EXPECT_TRUE(check(kernel, {.seed = 3})) << check(kernel, {.seed = 3});
  kernel.run = [](const Call& call) {
    Call other = call;  // the decay of its first head for all
    std::erase_if(other.inputs, [](const CallTensor& t) { return t.name == "decay"; });
    if (call.find_input("decay")) other.options["decay"] = call.input<float>("decay")[0];
    linear_stream(other);
  };
  EXPECT_EQ(check(kernel, {.seed = 3}).verdict, "FAIL");
}

// A kernel of an operator with decay that has none is judged where the decay is 1.
TEST(LibraryCheck, JudgesAKernelWithoutDecayWhereTheDecayIsOne) {
  KernelUnderTest kernel = right_kernel();
  kernel.op = "retention";
  kernel.run = [](const Call& call) {
    EXPECT_TRUE(!call.find_input("decay") && !call.options.contains("decay"));
    linear_stream(call);
  };
  const Result result = check(kernel, {.seed = 3});
  EXPECT_EQ(result.verdict, "UNDECIDED") << result;  // retention is its decay
  EXPECT_THAT(result.summary(),
              HasSubstr("reason    never run with decay other than 1 (the kernel takes no decay)"));
  for (const char* name : {"lattice", "value", "paths", "shapes"})
    EXPECT_EQ(verdict_of(result, name), "PASS") << name;
  kernel.run = [](const Call& call) { linear_stream(call, true); };
  EXPECT_EQ(verdict_of(check(kernel, {.seed = 3}), "value"), "FAIL");
}

TEST(LibraryCheck, SaysWithWhichOptionsAKernelWasNeverRun) {
  EXPECT_THAT(check(right_kernel(), {.seed = 3}).summary(),
              HasSubstr("; never run with normalize, an initial state\n"));
  KernelUnderTest plain = right_kernel();
  plain.takes = "";
  EXPECT_THAT(check(plain, {.seed = 3}).summary(),
              HasSubstr("; never run with a scale of its own, normalize, an initial state\n"));
  EXPECT_THAT(check(plain, {.seed = 3, .only = "value"}).summary(), Not(HasSubstr("never run")));
}

TEST(LibraryCheck, HandsOverTheFormatsOfTheContract) {
  KernelUnderTest kernel = linear_kernel([](const Call& call) {
    EXPECT_EQ(call.find_input("q")->element, Element::bfloat16);
    EXPECT_EQ(call.find_output("o")->element, Element::float16);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(call.find_input("q")->data) % 256, 0u);
    (void)call.input<std::uint16_t>("q");
    throw Unsupported("seen");
  });
  kernel.contract = "input=bf16 product=bf16 output=fp16";
  EXPECT_THAT(check(kernel, {.seed = 1, .only = "value"}).summary(), HasSubstr("seen"));
}

TEST(LibraryCheck, KeepsTheMemoryOfACallForWhoWantsIt) {
  std::vector<std::pair<Call, std::vector<float>>> kept;
  const KernelUnderTest kernel = linear_kernel([&](const Call& call) {
    linear_stream(call);
    const auto q = call.input<float>("q");
    kept.emplace_back(call, std::vector<float>(q.begin(), q.end()));
  });
  EXPECT_TRUE(check(kernel, {.seed = 1, .only = "lattice"}));
  ASSERT_GT(kept.size(), 3u);
  for (const auto& [call, values] : kept) EXPECT_TRUE(std::ranges::equal(call.input<float>("q"), values));
}

TEST(LibraryCheck, RefusesWhatCannotBeInOneLine) {
  const auto refused = [](auto change) {
    KernelUnderTest kernel = right_kernel();
    change(kernel);
    return refusal([&] { check(kernel, {.seed = 1}); });
  };
  EXPECT_THAT(refused([](auto& k) { k.op = "hla9"; }), HasSubstr("operator \"hla9\": expected one of ahla"));
  EXPECT_THAT(refused([](auto& k) { k.form = "chunk"; }), HasSubstr("c=WIDTH"));
  EXPECT_THAT(refused([](auto& k) { k.contract = "input=fp12"; }), HasSubstr("fp12"));
  EXPECT_THAT(refused([](auto& k) { k.takes = "gamma"; }), HasSubstr("takes \"gamma\": expected of g alpha"));
  EXPECT_THAT(refused([](auto& k) { k.name = "a b"; }), HasSubstr("name \"a b\""));
  EXPECT_THAT(refused([](auto& k) { k.name = "cpu.hla2.chunk64.direct.bf16"; }),
              HasSubstr("a name that no registered kernel has"));
  EXPECT_THAT(refused([](auto& k) { k.run = nullptr; }), HasSubstr("run is empty"));
  EXPECT_THAT(refused([](auto& k) { k.limits = "t=9..1"; }), HasSubstr("NAME=LEAST..MOST"));
  EXPECT_THAT(refusal([] { check(right_kernel(), {.only = "nothing"}); }), HasSubstr("no such check"));
}

TEST(LibraryCheck, JudgesASingleCaseAndSingleInputs) {
  const std::string line = "linear T=20 d=5 dv=4 H=2 B=2 recipe=uniform seed=3";
  const Result right = check_case(right_kernel(), line), wrong = check_case(strict_kernel(), line);
  EXPECT_TRUE(right) << right;
  EXPECT_EQ(wrong.verdict, "FAIL");
  EXPECT_THAT(wrong.replay, HasSubstr("attest::check_case(kernel, \"linear variant=masked T=20 d=5"));
  EXPECT_TRUE(check_input(right_kernel(), draw_input(line))) << check_input(right_kernel(), draw_input(line));
  EXPECT_EQ(check_input(strict_kernel(), draw_input(line)).verdict, "FAIL");

  EXPECT_THAT(refusal([] { check_case(right_kernel(), "hla2 T=4 seed=1"); }),
              HasSubstr("which the kernel computes"));
  EXPECT_THAT(refusal([] { check_case(right_kernel(), "linear T=many"); }), HasSubstr("T=many"));
  TestInput short_of_one = draw_input(line);
  short_of_one.fields["v"].data.pop_back();
  EXPECT_THAT(refusal([&] { check_input(right_kernel(), short_of_one); }),
              HasSubstr("tensor \"v\": 319 values, expected 320"));
}

TEST(LibraryOracle, CertifiesValuesAndRefusesWhatAnOperatorDoesNotTake) {
  // T = 2, d = dv = 1, scale 1/3: o_1 = (q_1 k_0 v_0 + q_1 k_1 v_1) / 3 = (2 * 5 * 11 + 2 * 7 * 13) / 3
  const TestInput input{{{"q", {{2, 1}, {1, 2}}}, {"k", {{2, 1}, {5, 7}}}, {"v", {{2, 1}, {11, 13}}}},
                        {"scale=1/3"}};
  const auto values = oracle("linear", input);
  const CertifiedValues& o = values.at("o");
  EXPECT_EQ(o.shape, (std::vector<std::int64_t>{1, 2, 1, 1}));
  EXPECT_EQ(o.value[1], 292.0 / 3);
  EXPECT_NE(o.low[1], 0);
  EXPECT_LE(std::abs(std::fma(3, o.value[1], -292) + 3 * o.low[1]), 3 * o.radius[1] + 0x1p-90);
  EXPECT_LE(o.radius[1], 0x1p-90);
  EXPECT_EQ(values.at("final_state.S").value[0], 5 * 11 + 7 * 13);
  const auto refused = [&](auto change, OracleOptions options = {}) {
    TestInput other = input;
    change(other);
    return refusal([&] { oracle("linear", other, options); });
  };
  EXPECT_THAT(refused([](auto& in) {
                in.fields["beta"] = {{2}, {1, 1}};
              }),
              HasSubstr("\"beta\": linear (masked) does not take it"));
  EXPECT_THAT(refused([](auto& in) { in.fields.erase("v"); }), HasSubstr("\"v\": missing"));
  EXPECT_THAT(refused([](auto& in) { in.options = {"decay=1/2"}; }), HasSubstr("linear does not take it"));
  EXPECT_THAT(refused([](auto&) {}, {.precision = "good"}), HasSubstr("expected adaptive or double-double"));
  EXPECT_THAT(refused([](auto&) {}, {.gradient = true}), HasSubstr("do"));
}

}  // namespace
}  // namespace attest
