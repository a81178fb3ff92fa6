// The delta rules in every association of a step, in float, against the bounds of the form, for o and the final state.
// Controls: the running error of the form's own association, (I - b k k^T) S + b k v^T, does not cover those in which v meets
// the state first; and a residual in bf16 is beyond the bound.
#include <gtest/gtest.h>

#include "gpu_checks/battery/state_bound.hpp"
#include "reference/metrics/bound.hpp"
#include "reference/operators/common/log_linear_recurrence.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;
using Floats = Matrix<float>;

struct Token {
  float a, b;
  Floats k, v;  // rows
};

Floats scaled(float factor, Floats x) { return x *= factor; }
Floats read(const Floats& row, const Floats& state) { return product(row, state); }

// v - k^T S, from v on.
Floats residual(const Token& x, const Floats& state) {
  Floats r = x.v;
  for (Index i = 0; i < state.rows(); ++i)
    for (Index j = 0; j < r.cols(); ++j) r(0, j) -= x.k(0, i) * state(i, j);
  return r;
}
Floats transition(const Token& x) {
  return scaled(x.a, Floats(identity_matrix<float>(x.k.cols()) - x.b * outer(x.k, x.k)));
}

struct Association {
  const char* name;
  Floats (*step)(const Token&, const Floats&);
  bool v_first = true;  // v meets the state before the key does
};

const Association associations[] = {
    {"matrix",
     [](const Token& x, const Floats& s) { return product(transition(x), s) + x.b * outer(x.k, x.v); },
     false},
    {"textbook",
     [](const Token& x, const Floats& s) {
       const Floats faded = scaled(x.a, s);
       return faded + outer(x.k, x.b * (x.v - read(x.k, faded)));
     }},
    {"folded gate",
     [](const Token& x, const Floats& s) {
       return scaled(x.a, s) + outer(x.k, x.b * (x.v - x.a * read(x.k, s)));
     }},
    {"beta on the key",
     [](const Token& x, const Floats& s) {
       const Floats faded = scaled(x.a, s);
       return faded + outer(x.b * x.k, residual(x, faded));
     }},
    {"beta before",
     [](const Token& x, const Floats& s) {
       const Floats faded = scaled(x.a, s);
       return faded + outer(x.k, x.b * x.v - read(x.b * x.k, faded));
     }},
    {"written apart",
     [](const Token& x, const Floats& s) {
       const Floats faded = scaled(x.a, s);
       return faded - outer(x.k, x.b * read(x.k, faded)) + outer(x.b * x.k, x.v);
     },
     false},
};

const Association bf16_residual = {"residual in bf16", [](const Token& x, const Floats& s) {
                                     const Floats faded = scaled(x.a, s);
                                     Floats r = residual(x, faded);
                                     for (Index j = 0; j < r.cols(); ++j)
                                       r(0, j) = static_cast<float>(round_to(bf16, r(0, j)));
                                     return faded + outer(x.b * x.k, r);
                                   }};

// Keys that annihilate, values of 24 bits, states that the next token nearly writes away; or all of it nearly subnormal.
Head<double> head_of_keys(const Declaration& d, bool tiny, std::uint64_t seed) {
  Random random(seed);
  Head<double> head = random_head(d, {5, 2, 2, false, false, false}, parse_contract("input=fp32"), seed);
  for (Index t = 0; t < head.tokens(); ++t) {
    const double kind = random.uniform(0, 1);
    head.k(t, 0) = kind < 0.3 ? -1 : kind < 0.6 ? 1 : kind < 0.8 ? 0.6015625 : 0;
    head.k(t, 1) = head.k(t, 0) == 0 ? 1 : std::abs(head.k(t, 0)) == 1 ? 0 : 0.796875;
    head.beta[static_cast<std::size_t>(t)] = random.uniform(0, 1) < 0.7 ? 1 : 0.5;
    if (d.gates) head.alpha[static_cast<std::size_t>(t)] = random.uniform(0, 1) < 0.7 ? 1 : 0.3125;
    if (tiny)
      for (Matrix<double>* x : {&head.k, &head.v})
        for (Index j = 0; j < 2; ++j)
          (*x)(t, j) = round_to(fp32, (*x)(t, j) * (x == &head.k ? 0x1p-40 : 0x1p-95));
  }
  return head;
}

Token token_of(const Head<float>& head, Index t) {
  const auto at = static_cast<std::size_t>(t);
  return {head.alpha.empty() ? 1 : head.alpha[at], head.beta[at], Floats(head.k.row(t)),
          Floats(head.v.row(t))};
}

Solution<float> run(const Association& association, const Declaration& d, const Head<float>& head) {
  Solution<float> result{zeros<float>(head.tokens(), head.v.cols()), {}};
  const Floats nothing = zeros<float>(head.k.cols(), head.v.cols());
  DyadicCover<float> blocks{};
  if (!d.level_scales) blocks.push_back({0, 0, nothing});
  for (Index t = 0; t < head.tokens(); ++t) {
    const Token x = token_of(head, t);
    Token moving = x;
    if (d.level_scales) moving.v *= 0.0f;
    for (auto& block : blocks) block.state = association.step(moving, block.state);
    if (d.level_scales) blocks.push_back({t, 0, outer(x.k, x.b * x.v)});
    for (const auto& block : blocks) {
      const float level = d.level_scales ? head.level_scales(t, fenwick_level(t, block.start)) : 1;
      result.o.row(t) += level * read(Floats(head.q.row(t)), block.state);
    }
    if (d.level_scales) merge_siblings(blocks);
  }
  result.final.moments["S"] = {nothing};
  if (d.level_scales)
    result.final = cover_state(blocks, head.tokens(), head.dims());
  else
    result.final.moments["S"] = {blocks[0].state};
  return result;
}

// How many entries of o and the state are wrong by more than the bound, and than the matrix form's running error.
struct Beyond {
  int bound = 0, matrix_form = 0;
};

class DeltaAssociations : public testing::TestWithParam<const char*> {
 protected:
  Beyond compare(const Association& association, bool tiny) {
    const Operator& op = *find_operator(GetParam(), "masked");
    const Evaluator<Rational>& exact = op;
    const Evaluator<Running>& running = op;
    const Contract contract = parse_contract("input=fp32");
    Beyond beyond;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      const Head<double> head = head_of_keys(op.declaration(), tiny, seed);
      Head<Rational> rational = converted<Rational>(head);
      const Solution<Rational> truth = exact.evaluate(rational);
      const Solution<float> got = run(association, op.declaration(), converted<float>(head));
      const WorkingScope scope({fp32.unit_roundoff(), fp32.smallest_subnormal(), 0, true});
      const Solution<Running> own = running.evaluate(converted<Running>(head), {Form::stream, 0, 0});
      const ErrorModel model = error_model(op, head, {Form::stream, 0, 0}, contract);
      const StateBound states = state_bound(op, head, {Form::stream, 0, 0}, contract);
      EXPECT_FALSE(model.undecided) << model.reason;
      EXPECT_TRUE(states.undecided.empty()) << states.undecided;
      const auto count = [&](const Floats& x, const Matrix<Rational>& y, const Matrix<double>& bound,
                             const Matrix<Running>& matrix_form) {
        for (Index i = 0; i < x.size(); ++i) {
          const double error = std::abs(nearest_double(rational_from(x.data()[i]) - y.data()[i]));
          beyond.bound += !(error <= bound.data()[i]);
          beyond.matrix_form += error > matrix_form.data()[i].error;
        }
      };
      count(got.o, truth.o, model.deterministic, own.o);
      const auto& levels = got.final.moments.at("S");
      for (std::size_t level = 0; level < levels.size(); ++level)
        count(levels[level], truth.final.moments.at("S")[level], states.error.at("S")[level],
              own.final.moments.at("S")[level]);
    }
    return beyond;
  }
};

TEST_P(DeltaAssociations, AreAllWithinTheBoundOfTheStream) {
  const bool levels = find_operator(GetParam(), "masked")->declaration().level_scales;
  for (const Association& association : associations) {
    const Beyond beyond = compare(association, false);
    EXPECT_EQ(beyond.bound, 0) << association.name;
    if (levels) continue;  // its blocks never meet a value
    EXPECT_EQ(beyond.matrix_form > 0, association.v_first) << association.name << ": the control";
  }
}

TEST_P(DeltaAssociations, AreWithinItWhereProductsUnderflow) {
  for (const Association& association : associations)
    EXPECT_EQ(compare(association, true).bound, 0) << association.name;
}

TEST_P(DeltaAssociations, WithAResidualInBf16AreBeyondIt) {
  EXPECT_GT(compare(bf16_residual, false).bound, 0);
}

INSTANTIATE_TEST_SUITE_P(Every, DeltaAssociations,
                         testing::Values("delta", "gated_delta", "log_linear_gated_delta"));

}  // namespace
}  // namespace attest
