// Batches, packing, grouped heads and carried states change no value: exact for every operator and variant.
#include <gtest/gtest.h>

#include "reference/forms/oracle.hpp"
#include "tests/forms/sample_problem.hpp"

namespace attest {
namespace {

class EveryOperator : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }
  const Declaration& declaration() const { return op().declaration(); }
  // Rational where the operator has it, else a precision at which equal computations give equal digits.
  OracleResult solve(const Tensors& fields, const Options& options) const {
    OracleRequest request{.how = Evaluation{Form::stream}};
    if (declaration().exact)
      request.exact = true;
    else
      request.bits = 256;
    return evaluate_oracle(op(), make_problem(fields, declaration(), options, "sample"), request);
  }
  std::vector<Options> all_options() const {
    std::vector<Options> list{sample_options(declaration())};
    if (declaration().normalize) list.push_back(sample_options(declaration(), true));
    return list;
  }
};

// Rows [first, first + count) of a tensor [1, T, ...], printed so that equal values print alike.
std::vector<std::string> printed_rows(const OracleTensor& tensor, Index first, Index count) {
  const Index width = element_count(tensor.shape) / std::max<Index>(1, tensor.shape[1]);
  std::vector<std::string> rows;
  for (auto i = static_cast<std::size_t>(first * width);
       i < static_cast<std::size_t>((first + count) * width); ++i)
    rows.push_back(tensor.exact.empty()
                       ? std::to_string(tensor.value[i]) + " " + std::to_string(tensor.low[i] * 1e30)
                       : tensor.exact[i]);
  return rows;
}
std::vector<std::string> printed(const OracleTensor& tensor) {
  return printed_rows(tensor, 0, tensor.shape[1]);
}

Tensors initial_from_final(const OracleResult& result) {
  Tensors state;
  for (const auto& [name, tensor] : result.tensors)
    if (name.starts_with("final_state."))
      state["initial_state." + name.substr(12)] = {tensor.shape, tensor.value};
  if (!result.final_position.empty())
    state["initial_state.position"] = {
        {static_cast<Index>(result.final_position.size())},
        std::vector<double>(result.final_position.begin(), result.final_position.end())};
  return state;
}

TEST_P(EveryOperator, GivesPackedSequencesWhatItGivesThemApart) {
  const Tensors fields = sample_fields(declaration(), {.tokens = 7}, 11);
  for (const Options& options : all_options()) {
    Tensors packed = fields;
    packed["cu_seqlens"] = {{5}, {0, 3, 3, 4, 7}};
    const OracleResult together = solve(packed, options);
    for (const auto& [first, last] : std::vector<std::pair<Index, Index>>{{0, 3}, {3, 3}, {3, 4}, {4, 7}}) {
      const OracleResult apart = solve(token_range(fields, first, last), options);
      EXPECT_EQ(printed_rows(together.tensors.at("o"), first, last - first), printed(apart.tensors.at("o")));
    }
  }
}

TEST_P(EveryOperator, CarriesTheStateAcrossASplitAtEveryToken) {
  const Tensors fields = sample_fields(declaration(), {.tokens = 6}, 5);
  if (declaration().moments.empty()) GTEST_SKIP() << "this operator has no state";
  for (const Options& options : all_options()) {
    const OracleResult whole = solve(fields, options);
    for (Index split = 0; split <= 6; ++split) {
      const OracleResult head = solve(token_range(fields, 0, split), options);
      Tensors rest = token_range(fields, split, 6);
      rest.merge(initial_from_final(head));
      const OracleResult tail = solve(rest, options);
      EXPECT_EQ(printed(head.tensors.at("o")), printed_rows(whole.tensors.at("o"), 0, split));
      EXPECT_EQ(printed(tail.tensors.at("o")), printed_rows(whole.tensors.at("o"), split, 6 - split));
      for (const auto& [name, tensor] : whole.tensors)
        EXPECT_EQ(name == "o" || tensor.exact == tail.tensors.at(name).exact, true) << name;
      EXPECT_EQ(whole.final_position, tail.final_position);
    }
  }
}

TEST_P(EveryOperator, LosesItsWayWhenTheCarriedStateIsWrong) {  // the control of the test above
  if (declaration().moments.empty()) GTEST_SKIP() << "this operator has no state";
  Tensors fields = sample_fields(declaration(), {.tokens = 6}, 5);
  for (auto& [name, tensor] : fields)
    if (name == "alpha") std::fill(tensor.data.begin(), tensor.data.end(), 0.75);
  const Options options = sample_options(declaration());
  const OracleResult whole = solve(fields, options), head = solve(token_range(fields, 0, 3), options);
  Tensors rest = token_range(fields, 3, 6);
  rest.merge(initial_from_final(head));
  for (auto& [name, tensor] : rest)
    if (name.starts_with("initial_state.") && name != "initial_state.position")
      for (double& entry : tensor.data) entry *= 2;
  EXPECT_NE(printed(solve(rest, options).tensors.at("o")), printed_rows(whole.tensors.at("o"), 3, 3));
}

TEST_P(EveryOperator, GivesGroupedHeadsWhatItGivesRepeatedHeads) {
  const Tensors full = sample_fields(declaration(), {.batch = 2, .tokens = 5, .heads = 4}, 3);
  Tensors grouped = full, repeated = full;
  for (const auto& [name, heads] : std::vector<std::pair<std::string, Index>>{{"q", 2}, {"k", 1}, {"v", 4}}) {
    const Tensor& tensor = full.at(name);
    Tensor small{tensor.shape, {}};
    small.shape[2] = heads;
    const Index width = tensor.shape[3];
    for (Index row = 0; row < 2 * 5; ++row)
      for (Index h = 0; h < 4; ++h) {
        const auto from = full.at(name).data.begin() + (row * 4 + h / (4 / heads)) * width;
        std::copy(from, from + width, repeated[name].data.begin() + (row * 4 + h) * width);
        if (h < heads)
          small.data.insert(small.data.end(), full.at(name).data.begin() + (row * 4 + h) * width,
                            full.at(name).data.begin() + (row * 4 + h + 1) * width);
      }
    grouped[name] = small;
  }
  const Options options = sample_options(declaration());
  EXPECT_EQ(printed(solve(grouped, options).tensors.at("o")),
            printed(solve(repeated, options).tensors.at("o")));
  EXPECT_NE(printed(solve(grouped, options).tensors.at("o")), printed(solve(full, options).tensors.at("o")));
}

TEST_P(EveryOperator, GivesABatchWhatItGivesItsEntries) {
  const Tensors both = sample_fields(declaration(), {.batch = 2, .tokens = 4}, 9);
  Tensors second;
  for (const auto& [name, tensor] : both) {
    Tensor& entry = second[name];
    entry.shape = tensor.shape;
    entry.shape[0] = 1;
    entry.data.assign(tensor.data.begin() + static_cast<std::ptrdiff_t>(tensor.data.size() / 2),
                      tensor.data.end());
  }
  const Options options = sample_options(declaration());
  const auto all = printed_rows(solve(both, options).tensors.at("o"), 0, 4);
  EXPECT_EQ(std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end()),
            printed(solve(second, options).tensors.at("o")));
}

TEST_P(EveryOperator, ScalesEveryQuery) {
  const Tensors fields = sample_fields(declaration(), {}, 21);
  Tensors scaled = fields;
  for (double& entry : scaled["q"].data) entry *= 4;
  Options quarter = sample_options(declaration()), four = quarter;
  quarter.scale = Rational(1);
  four.scale = Rational(4);
  EXPECT_EQ(printed(solve(scaled, quarter).tensors.at("o")), printed(solve(fields, four).tensors.at("o")));
}

TEST_P(EveryOperator, GivesEmptyOutputsForNoTokens) {
  const OracleResult result =
      solve(sample_fields(declaration(), {.tokens = 0}, 1), sample_options(declaration()));
  EXPECT_EQ(result.tensors.at("o").shape, (std::vector<Index>{1, 0, 2, 3}));
  EXPECT_TRUE(result.tensors.at("o").value.empty());
}

TEST_P(EveryOperator, ComputesInDoubleWhatTheOracleGivesOnExactInputs) {
  if (!declaration().exact) GTEST_SKIP() << "softmax rounds";
  const Problem problem = make_problem(sample_fields(declaration(), {.batch = 2, .tokens = 4}, 2),
                                       declaration(), sample_options(declaration()), "sample");
  Arithmetic<double> arithmetic;
  const Tensors outputs = run<double>(op(), problem, {Form::stream}, arithmetic);
  const OracleResult oracle = evaluate_oracle(op(), problem, {.exact = true});
  ASSERT_EQ(outputs.size(), oracle.tensors.size());
  for (const auto& [name, tensor] : oracle.tensors) {
    EXPECT_EQ(outputs.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(outputs.at(name).data, tensor.value) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Batch, EveryOperator, testing::ValuesIn(all_operators()), [](const auto& info) {
  return info.param->declaration().name + "_" + info.param->declaration().variant;
});

}  // namespace
}  // namespace attest
