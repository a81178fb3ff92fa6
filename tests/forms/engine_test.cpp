// An engine of the certified oracle is used when there is one, checked against intervals, and left when it cannot.
#include <gtest/gtest.h>

#include "reference/cases/case.hpp"
#include "reference/forms/certified_route.hpp"
#include "reference/forms/oracle.hpp"

namespace attest {
namespace {

// The processor again, its entries off by a share of themselves.
class Engine : public CertifiedEngine {
 public:
  explicit Engine(double off, bool able = true) : off_(off), able_(able) {}
  bool masked_linear(const CertifiedOperand& q, const CertifiedOperand& k, const CertifiedOperand& v,
                     Index tokens, const CertifiedWeights& weights, Index first_row,
                     CertifiedTable& output) const override {
    if (!able_) return false;
    CertifiedOptions options;
    options.first_row = first_row, options.last_row = first_row + output.rows;
    output = certified_masked_linear(q, k, v, tokens, weights, options);
    for (double& x : output.high) x *= 1 + off_;
    return true;
  }

 private:
  double off_;
  bool able_;
};

OracleResult evaluated(const Engine& engine) {
  const Case input =
      parse_case("hla2 variant=masked T=40 d=4 dv=3 H=2 B=1 recipe=gaussian gates=published seed=1");
  const Operator& op = *find_operator("hla2");
  const Problem problem = draw_problem(input, op.declaration());
  OracleRequest request;
  request.rows = {0, 40}, request.double_double = true;
  use_certified_engine(&engine);
  try {
    OracleResult result = evaluate_oracle(op, problem, request);
    use_certified_engine(nullptr);
    return result;
  } catch (...) {
    use_certified_engine(nullptr);
    throw;
  }
}

TEST(Engine, IsUsedAndNamed) { EXPECT_EQ(evaluated(Engine(0)).method, "double-double on the GPU"); }

TEST(Engine, ThatContradictsIntervalArithmeticEndsTheRun) {
  EXPECT_THROW(evaluated(Engine(1e-12)), std::runtime_error);
}

TEST(Engine, ThatCannotLeavesTheWorkToTheProcessor) {
  const OracleResult own = evaluated(Engine(0)), fallen_back = evaluated(Engine(0, false));
  EXPECT_EQ(own.tensors.at("o").value, fallen_back.tensors.at("o").value);
}

}  // namespace
}  // namespace attest
