// The oracle against Arb: another library of enclosures, other code for the sums, the same numbers.
// Only operators whose value no rational holds, or whose sum is short to write down a second time.
#include <arb.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"
#include "tests/forms/sample_problem.hpp"

namespace attest {
namespace {

constexpr slong bits = 400;

class Ball {
 public:
  explicit Ball(double value = 0) { arb_init(value_), arb_set_d(value_, value); }
  Ball(const Ball& other) { arb_init(value_), arb_set(value_, other.value_); }
  Ball& operator=(const Ball& other) {
    arb_set(value_, other.value_);
    return *this;
  }
  ~Ball() { arb_clear(value_); }
  friend Ball operator+(const Ball& a, const Ball& b) { return apply(arb_add, a, b); }
  friend Ball operator-(const Ball& a, const Ball& b) { return apply(arb_sub, a, b); }
  friend Ball operator*(const Ball& a, const Ball& b) { return apply(arb_mul, a, b); }
  friend Ball operator/(const Ball& a, const Ball& b) { return apply(arb_div, a, b); }
  friend Ball exp(const Ball& a) {
    Ball result;
    arb_exp(result.value_, a.value_, bits);
    return result;
  }
  friend Ball sqrt(const Ball& a) {
    Ball result;
    arb_sqrt(result.value_, a.value_, bits);
    return result;
  }
  // Whether this enclosure and value + low +- radius have a point in common, both being narrow.
  bool meets(double value, double low, double radius) const {
    Ball theirs = Ball(value) + Ball(low);
    arb_add_error(theirs.value_, Ball(radius).value_);
    return arb_overlaps(value_, theirs.value_) && arb_rel_accuracy_bits(value_) > 300;
  }

 private:
  static Ball apply(void (*operation)(arb_t, const arb_t, const arb_t, slong), const Ball& a, const Ball& b) {
    Ball result;
    operation(result.value_, a.value_, b.value_, bits);
    return result;
  }
  arb_t value_;
};

constexpr Index tokens = 7, key_dim = 3, value_dim = 2;

// One head; entries with full fp32 significands, so that nothing is exact by luck.
Tensors fields() {
  Draw draw(20);
  const auto tensor = [&](std::vector<Index> shape, double scale, double offset) {
    Tensor result{std::move(shape), {}};
    for (Index i = element_count(result.shape); i > 0; --i)
      result.data.push_back(
          static_cast<float>(offset + scale * (static_cast<double>(draw.below(1 << 24)) / (1 << 23) - 1)));
    return result;
  };
  return {{"q", tensor({tokens, key_dim}, 1, 0)},
          {"k", tensor({tokens, key_dim}, 1, 0)},
          {"v", tensor({tokens, value_dim}, 1, 0)},
          {"g", tensor({tokens}, 0.7, -0.7)}};
}

Ball score(const Tensors& f, Index t, Index s) {
  Ball sum;
  for (Index a = 0; a < key_dim; ++a)
    sum = sum + Ball(f.at("q").data[t * key_dim + a]) * Ball(f.at("k").data[s * key_dim + a]);
  return sum;
}
Ball value(const Tensors& f, Index s, Index c) { return Ball(f.at("v").data[s * value_dim + c]); }

template <class Weight>
void expect_agreement(const char* name, Options options, const Tensors& given, Weight&& expected) {
  const Operator& op = operator_named(name, "masked");
  const Problem problem = make_problem(given, op.declaration(), options, "arb test");
  for (Form form : op.declaration().forms) {
    OracleRequest request;
    request.how = Evaluation{form, 4, 0};
    const OracleTensor o = evaluate_oracle(op, problem, request).tensors.at("o");
    for (Index t = 0; t < tokens; ++t)
      for (Index c = 0; c < value_dim; ++c) {
        const auto i = static_cast<std::size_t>(t * value_dim + c);
        const Ball exact = expected(t, c);
        EXPECT_TRUE(exact.meets(o.value[i], o.low[i], o.radius[i]))
            << name << " " << form_name(form) << " o[" << t << "," << c << "]";
        EXPECT_LE(o.radius[i], std::ldexp(std::abs(o.value[i]), -100));
        // The control: another value by one part in 2^90 is not enclosed.
        EXPECT_FALSE(exact.meets(o.value[i], o.low[i] + std::ldexp(o.value[i], -90), o.radius[i]));
      }
  }
}

TEST(Arb, EnclosesTheSameGatedSums) {
  const Tensors f = fields();
  expect_agreement("mamba2", {}, f, [&](Index t, Index c) {
    Ball sum;
    for (Index s = 0; s <= t; ++s) {
      Ball gate;
      for (Index r = s + 1; r <= t; ++r) gate = gate + Ball(f.at("g").data[r]);
      sum = sum + exp(gate) * score(f, t, s) * value(f, s, c);
    }
    return sum;
  });
}

TEST(Arb, EnclosesTheSameSoftmax) {
  Tensors f = fields();
  f.erase("g");
  expect_agreement("softmax", {}, f, [&](Index t, Index c) {
    Ball above, below;
    for (Index s = 0; s <= t; ++s) {
      const Ball weight = exp(score(f, t, s) / sqrt(Ball(static_cast<double>(key_dim))));
      above = above + weight * value(f, s, c), below = below + weight;
    }
    return above / below;
  });
}

TEST(Arb, EnclosesTheSameSecondOrderSum) {
  Tensors f = fields();
  f.erase("g");
  Options options;
  options.decay = Rational(9) / 10;
  const Ball gamma = Ball(9) / Ball(10);
  expect_agreement("hla2", options, f, [&](Index t, Index c) {
    Ball sum;
    for (Index j = 0; j <= t; ++j)
      for (Index i = 0; i <= j; ++i) {
        Ball weight(1);
        for (Index n = 0; n < 2 * t - i - j; ++n) weight = weight * gamma;
        sum = sum + weight * score(f, t, i) * score(f, j, i) * value(f, j, c);
      }
    return sum;
  });
}

}  // namespace
}  // namespace attest
