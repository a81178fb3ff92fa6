// The running error of streams on arrays against the same error entry by entry, through the bound that both make.
#include "reference/metrics/running_stream.hpp"

#include <gtest/gtest.h>

#include "reference/metrics/bound.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;

struct StreamSubject {
  const char *name, *variant;
  int algebra = 0;
};

std::ostream& operator<<(std::ostream& out, const StreamSubject& s) {
  return out << s.name << ' ' << s.variant << ' ' << s.algebra;
}

constexpr const char* contracts[] = {"", "input=bf16 state=bf16 output=bf16",
                                     "input=fp32 gate_sum=fp32/global"};

// No entry is 0 or 1: there the two count differently.
Head<double> dense_head(const Declaration& d, const Contract& contract, bool initial, bool ridge) {
  Head<double> head = random_head(d, {40, 5, 4, initial, ridge, true}, contract, 3);
  for (Matrix<double>* field : {&head.q, &head.k, &head.v})
    for (Index i = 0; i < field->size(); ++i)
      if (double& x = field->data()[i]; x == 0 || std::abs(x) == 1) x = 0.625;
  return head;
}

// With arrays for every stream, or for none.
ErrorModel bound(const StreamSubject& s, const Head<double>& head, const Contract& contract,
                 const Normaliser& around, bool arrays) {
  set_stream_work(arrays ? 0 : INFINITY);
  const ErrorModel model =
      error_model(*find_operator(s.name, s.variant), head, {Form::stream, 0, s.algebra}, contract, around);
  set_stream_work(usual_stream_work);
  return model;
}

// The smallest and the largest ratio of the bounds.
std::pair<double, double> ratios(const ErrorModel& a, const ErrorModel& b) {
  std::pair<double, double> result{INFINITY, 0};
  for (Index i = 0; i < a.deterministic.size(); ++i) {
    const double ratio = a.deterministic.data()[i] / b.deterministic.data()[i];
    result = {std::min(result.first, ratio), std::max(result.second, ratio)};
  }
  return result;
}

class RunningStream : public testing::TestWithParam<StreamSubject> {};

TEST_P(RunningStream, EqualsTheErrorEntryByEntry) {
  const Declaration& d = find_operator(GetParam().name, GetParam().variant)->declaration();
  for (const char* text : contracts)
    for (const bool initial : {false, true})
      for (const double decay : {1.0, 0.96875, 0.9})
        for (const Normaliser& around : {Normaliser{}, Normaliser{false, 0, true}}) {
          const Contract contract = parse_contract(text);
          Head<double> head = dense_head(d, contract, initial, decay < 1);
          if (d.decay) head.decay = decay;
          if (initial && decay == 0.9 && d.ridge) head.ridge = 1;
          const ErrorModel arrays = bound(GetParam(), head, contract, around, true),
                           entries = bound(GetParam(), head, contract, around, false);
          ASSERT_FALSE(arrays.undecided || entries.undecided) << arrays.reason << entries.reason;
          const auto [least, most] = ratios(arrays, entries);
          EXPECT_GE(least, 1 - 1e-9) << GetParam() << ' ' << text << ' ' << initial << decay << around.scaled;
          EXPECT_LE(most, 1 + 1e-4) << GetParam() << ' ' << text << ' ' << initial << decay << around.scaled;
        }
}

TEST_P(RunningStream, IsNotBelowTheErrorEntryByEntryWhereInputsAreZero) {
  const Declaration& d = find_operator(GetParam().name, GetParam().variant)->declaration();
  Head<double> head = dense_head(d, parse_contract(""), false, true);
  for (Index i = 0; i < head.k.size(); i += 3) head.k.data()[i] = 0;
  for (Index i = 0; i < head.q.size(); i += 2) head.q.data()[i] = 0;
  for (Index t = 0; t < head.tokens(); t += 4) head.v.row(t) = zeros<double>(1, head.v.cols());
  const ErrorModel arrays = bound(GetParam(), head, parse_contract(""), {}, true),
                   entries = bound(GetParam(), head, parse_contract(""), {}, false);
  for (Index i = 0; i < arrays.deterministic.size(); ++i)
    EXPECT_GE(arrays.deterministic.data()[i], (1 - 1e-9) * entries.deterministic.data()[i]) << i;
}

TEST_P(RunningStream, IsUndecidedWhereAStateOverflows) {
  const Declaration& d = find_operator(GetParam().name, GetParam().variant)->declaration();
  const Contract contract = parse_contract("input=fp16 state=fp16 output=fp32");
  Head<double> head = dense_head(d, contract, false, false);
  for (Index i = 0; i < head.v.size(); ++i) head.v.data()[i] *= 30000;
  const ErrorModel arrays = bound(GetParam(), head, contract, {}, true),
                   entries = bound(GetParam(), head, contract, {}, false);
  EXPECT_TRUE(arrays.undecided && entries.undecided);
  EXPECT_EQ(arrays.reason.substr(0, 8), entries.reason.substr(0, 8)) << arrays.reason << entries.reason;
}

INSTANTIATE_TEST_SUITE_P(Streams, RunningStream,
                         testing::Values(StreamSubject{"linear", "masked"},
                                         StreamSubject{"retention", "masked"},
                                         StreamSubject{"mamba2", "masked"}, StreamSubject{"hla2", "masked"},
                                         StreamSubject{"hla2", "masked", 1}, StreamSubject{"hla2", "printed"},
                                         StreamSubject{"ahla", "masked"}, StreamSubject{"hla3", "masked"}),
                         [](const auto& info) {
                           return std::string(info.param.name) + info.param.variant +
                                  std::to_string(info.param.algebra);
                         });

// The control: what tells one algebra of hla2 from the other in this comparison.
TEST(RunningStreamControl, AnotherAlgebraHasAnotherError) {
  const Contract contract = parse_contract("");
  const Head<double> head =
      dense_head(find_operator("hla2", "masked")->declaration(), contract, false, false);
  const auto [least, most] = ratios(bound({"hla2", "masked", 0}, head, contract, {}, true),
                                    bound({"hla2", "masked", 1}, head, contract, {}, false));
  EXPECT_TRUE(least < 0.99 || most > 1.01) << least << ' ' << most;
}

}  // namespace
}  // namespace attest
