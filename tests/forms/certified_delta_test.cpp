// The delta rules' certified recurrence against exact values: containment for random and for nasty inputs, the size of the
// radius, and the ways in which a wrong certificate must be caught. No value here is compared with a tolerance.
#include "reference/forms/certified_delta.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "reference/cases/case.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/certified_delta_route.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"
#include "reference/metrics/bound.hpp"
#include "tests/forms/sample_problem.hpp"

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const char* const operators[] = {"delta", "gated_delta", "log_linear_gated_delta"};
const DeltaPrecision precisions[] = {DeltaPrecision::plain, DeltaPrecision::pair};

using Change = std::function<void(Problem&)>;

Change multiply(const char* field, double factor) {
  return [=](Problem& problem) {
    for (double& x : problem.fields.at(field).data) x *= factor;
  };
}
// Every `every`-th entry of a field that the operator takes.
Change put(const char* field, double value, std::size_t every = 1) {
  return [=](Problem& problem) {
    const auto found = problem.fields.find(field);
    if (found == problem.fields.end()) return;
    for (std::size_t i = every - 1; i < found->second.data.size(); i += every) found->second.data[i] = value;
  };
}

struct Nasty {
  const char *name, *line;
  Change change;
};

std::vector<Nasty> nasty_inputs() {
  return {
      {"published", "T=70 d=8 dv=3 H=2 B=2 seed=1", {}},
      {"uniform gates", "T=70 d=9 dv=17 gates=uniform seed=2", {}},
      {"extreme gates", "T=70 d=8 dv=3 H=3 gates=extreme seed=3", {}},
      {"sparse", "T=70 d=8 dv=3 recipe=sparse seed=4", {}},
      {"cancelling", "T=70 d=8 dv=3 recipe=cancellation gates=uniform seed=5", {}},
      {"repeated keys", "T=70 d=4 dv=2 recipe=repeated gates=none seed=6", {}},
      {"grouped heads", "T=40 d=4 dv=2 H=4 Hq=2 Hk=1 Hv=4 seed=7", {}},
      {"packed", "T=60 d=4 dv=2 packed=0:1:1:30:60 seed=8", {}},
      {"one token", "T=1 d=4 dv=2 seed=9", {}},
      {"one column", "T=30 d=1 dv=1 seed=10", {}},
      {"long keys", "T=40 d=6 dv=2 seed=11", multiply("k", 3)},
      {"very long keys", "T=20 d=6 dv=2 seed=12", multiply("k", 0x1p10)},
      {"tiny keys", "T=40 d=6 dv=2 seed=13", multiply("k", 0x1p-300)},
      {"subnormal values", "T=40 d=6 dv=2 seed=14", multiply("v", 0x1p-1060)},
      {"beta 2", "T=70 d=6 dv=2 seed=15", put("beta", 2)},
      {"beta above 1 and below 0", "T=50 d=6 dv=2 seed=16",
       [](Problem& problem) { put("beta", 3)(problem), put("beta", -0.5, 2)(problem); }},
      {"closed gates", "T=70 d=6 dv=2 seed=17", put("g", -infinity, 9)},
      {"nearly closed gates", "T=70 d=6 dv=2 seed=18",
       [](Problem& problem) { put("g", -1e4, 9)(problem), put("g", -740, 7)(problem); }},
      {"sparse keys after closed gates", "T=70 d=6 dv=2 recipe=sparse gates=extreme seed=23",
       put("g", -infinity, 5)},
      {"rows that fade under new ones", "T=130 d=12 dv=5 recipe=sparse gates=extreme seed=24", {}},
      {"rows that fade under new ones, again", "T=130 d=16 dv=3 recipe=sparse gates=extreme seed=25",
       put("beta", 1.5)},
      {"zero keys", "T=40 d=6 dv=2 seed=19", put("k", 0)},
      {"zero values", "T=40 d=6 dv=2 seed=20", put("v", 0)},
      {"scaled", "T=40 d=6 dv=2 seed=21", [](Problem& p) { p.options.scale = Rational(1) / 3; }},
      {"sizes whose product underflows before it meets a large one", "T=40 d=6 dv=2 seed=26",
       [](Problem& p) {
         multiply("v", 0x1p460)(p), multiply("q", 0x1p-50)(p);
         if (p.fields.contains("level_scales")) multiply("level_scales", 0x1p-1028)(p);
       }},
      {"a subnormal scale of large queries", "T=40 d=6 dv=2 seed=27",
       [](Problem& p) {
         multiply("q", 0x1p480)(p);
         p.options.scale = rational_from(0x1p-1060);
       }},
      {"large level scales", "T=70 d=6 dv=2 seed=22", put("level_scales", -1e6, 3)},
  };
}

Problem problem_of(const std::string& name, const Nasty& input) {
  const Operator& op = operator_named(name, "masked");
  Problem problem = draw_problem(parse_case(name + " " + input.line), op.declaration());
  if (input.change) input.change(problem);
  return problem;
}

// How many entries contradict the exact value, and the largest radius; `spoil` may change what is certified.
struct Outcome {
  Index entries = 0, contradicted = 0, unknown = 0;
};

using Spoil = std::function<void(CertifiedRows&)>;

Outcome compare(const std::string& name, const Problem& problem, const DeltaOptions& options,
                const Spoil& spoil = {}) {
  const Operator& op = operator_named(name, "masked");
  OracleRequest request;
  request.rows = {0, problem.tokens}, request.threads = 1, request.magnitude = options.magnitude;
  const OracleTensor exact = evaluate_oracle(op, problem, request).tensors.at("o");
  Outcome outcome;
  for (const Slot& slot : slots(problem)) {
    std::optional<CertifiedRows> rows = certified_delta_rows(op.declaration(), problem, slot, options);
    if (spoil) spoil(*rows);
    for (Index t = 0; t < rows->rows; ++t)
      for (Index c = 0; c < rows->columns; ++c) {
        const auto i = static_cast<std::size_t>(t * rows->columns + c);
        const Index row = (slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head;
        const auto e = static_cast<std::size_t>(row * problem.value_dim + c);
        ++outcome.entries;
        if (std::isinf(rows->radius[i])) {
          ++outcome.unknown;
          continue;
        }
        const double apart = std::abs((rows->high[i] - exact.value[e]) + (rows->low[i] - exact.low[e]));
        const double room = rows->radius[i] + exact.radius[e];
        outcome.contradicted += !(apart <= room * (1 + 0x1p-40));
        if (options.magnitude)
          outcome.contradicted += !(exact.magnitude[e] <= rows->magnitude[i] * (1 + 0x1p-30) + 0x1p-900);
      }
  }
  return outcome;
}

TEST(CertifiedDelta, HoldsTheExactValueForNastyInputs) {
  for (const Nasty& input : nasty_inputs())
    for (const char* name : operators)
      for (const DeltaPrecision precision : precisions) {
        SCOPED_TRACE(std::string(name) + ", " + input.name);
        const Outcome outcome = compare(name, problem_of(name, input), {.precision = precision});
        EXPECT_EQ(outcome.contradicted, 0);
        EXPECT_GT(outcome.entries, 0);
        EXPECT_EQ(outcome.unknown, 0);
      }
}

TEST(CertifiedDelta, IsTheSameOnEveryProcessorUpToTheRadiusAndForAnyNumberOfThreads) {
  const Nasty input{"", "T=130 d=20 dv=37 gates=uniform seed=3", {}};
  for (const char* name : operators)
    for (const DeltaPrecision precision : precisions) {
      const Problem problem = problem_of(name, input);
      for (const CertifiedKernels* const* kernels = certified_kernels(); *kernels; ++kernels) {
        SCOPED_TRACE(std::string(name) + " " + (*kernels)->name);
        const DeltaOptions one{.precision = precision, .kernels = *kernels};
        EXPECT_EQ(compare(name, problem, one).contradicted, 0);
        DeltaOptions three = one;
        three.threads = 3;
        const Declaration& declaration = operator_named(name, "masked").declaration();
        const auto a = certified_delta_rows(declaration, problem, slots(problem)[0], one),
                   b = certified_delta_rows(declaration, problem, slots(problem)[0], three);
        ASSERT_TRUE(a && b);
        EXPECT_EQ(a->high, b->high);
        EXPECT_EQ(a->radius, b->radius);
      }
    }
}

TEST(CertifiedDelta, NoTokensGiveNoRows) {
  for (const char* name : operators) {
    const Problem problem = problem_of(name, {"", "T=0 d=4 dv=2 seed=9", {}});
    const Declaration& declaration = operator_named(name, "masked").declaration();
    const auto rows = certified_delta_rows(declaration, problem, slots(problem).at(0), {});
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->rows, 0);
    EXPECT_TRUE(rows->high.empty());
  }
}

// An initial state, for the log-linear operator with several levels and a position inside a block.
TEST(CertifiedDelta, ContinuesAnInitialState) {
  for (const Index position : {0, 1, 6, 7, 12})
    for (const char* name : operators) {
      const Declaration& declaration = operator_named(name, "masked").declaration();
      if (!declaration.level_scales && position != 0) continue;
      SCOPED_TRACE(std::string(name) + " from " + std::to_string(position));
      SampleShape shape;
      shape.tokens = 21, shape.levels = 7;
      Tensors fields = sample_fields(declaration, shape, 5);
      Draw draw(9);
      if (declaration.level_scales) {
        const Index levels = std::bit_width(static_cast<std::uint64_t>(position)) + 1;
        Tensor state{{1, shape.heads, levels, shape.key_dim, shape.value_dim}, {}};
        for (Index h = 0; h < shape.heads; ++h)
          for (Index level = 0; level < levels; ++level)
            for (Index i = 0; i < shape.key_dim * shape.value_dim; ++i)
              state.data.push_back(level > 0 && (position >> (level - 1) & 1) ? draw.half() : 0);
        fields["initial_state.S"] = state;
        fields["initial_state.position"] = {{1}, {static_cast<double>(position)}};
      } else {
        fields["initial_state.S"] =
            draw.tensor({1, shape.heads, shape.key_dim, shape.value_dim}, &Draw::half);
      }
      const Problem problem = make_problem(fields, declaration, {}, "test");
      for (const DeltaPrecision precision : precisions) {
        const Outcome outcome = compare(name, problem, {.precision = precision, .magnitude = position == 0});
        EXPECT_EQ(outcome.contradicted, 0);
        EXPECT_EQ(outcome.unknown, 0);
        EXPECT_EQ(outcome.entries, 21 * 2 * 3);
      }
    }
}

// The controls: what the comparison above must notice.
TEST(CertifiedDelta, ComparisonNoticesARadiusThatIsTooSmallAndAValueThatIsOff) {
  const Nasty input{"", "T=70 d=8 dv=3 gates=uniform seed=1", {}};
  for (const char* name : operators)
    for (const DeltaPrecision precision : precisions) {
      const Problem problem = problem_of(name, input);
      const auto spoiled = [&](const Spoil& spoil) {
        return compare(name, problem, {.precision = precision}, spoil).contradicted;
      };
      EXPECT_GT(spoiled([](CertifiedRows& rows) {
                  for (double& r : rows.radius) r *= 0x1p-20;
                }),
                0);
      EXPECT_GT(spoiled([](CertifiedRows& rows) { rows.low[100] += 2.1 * rows.radius[100]; }), 0);
      EXPECT_GT(spoiled([](CertifiedRows& rows) { rows.magnitude[100] /= 2; }), 0);
    }
}

// Rows of the state that only fade have a radius of their own size; as the radius of the whole it would be 1 and not 10^-40.
TEST(CertifiedDelta, RadiusOfFadedRowsIsAsSmallAsTheyAre) {
  for (const char* name : operators) {
    if (std::string(name) == "delta") continue;
    const Nasty input{
        "", "T=64 d=2 dv=1 gates=none seed=1", [](Problem& problem) {
          for (std::size_t t = 0; t < 64; ++t) {  // the first row is filled once, the second always
            problem.fields.at("k").data[2 * t] = t == 0, problem.fields.at("k").data[2 * t + 1] = t > 0;
            problem.fields.at("q").data[2 * t] = 1, problem.fields.at("q").data[2 * t + 1] = 0;
          }
          problem.fields.at("v").data.assign(64, 1.1);
          problem.fields.at("g").data.assign(64, 0);
          problem.fields.at("g").data[1] = -100.3;
        }};
    const Problem problem = problem_of(name, input);
    const Declaration& declaration = operator_named(name, "masked").declaration();
    for (const DeltaPrecision precision : precisions) {
      EXPECT_EQ(compare(name, problem, {.precision = precision}).contradicted, 0);
      const auto rows =
          certified_delta_rows(declaration, problem, slots(problem)[0], {.precision = precision});
      ASSERT_TRUE(rows);
      EXPECT_GT(rows->high[63], 1e-44);
      EXPECT_LT(rows->radius[63], 1e-55);
      EXPECT_GT(compare(name, problem, {.precision = precision},
                        [](CertifiedRows& r) {
                          for (double& radius : r.radius) radius *= 0x1p-20;
                        })
                    .contradicted,
                0);
    }
  }
}

// A step that is wrong by little in one token is caught by the exact values, and by the oracle itself, which compares the
// first rows with intervals.
TEST(CertifiedDelta, WrongStepIsCaught) {
  static const CertifiedKernels* const right = *certified_kernels();
  static Index calls = 0;
  CertifiedKernels wrong = *right;
  wrong.delta_step = [](const DeltaStep& step) {
    right->delta_step(step);
    if (++calls % 50 == 0) step.high[0] *= 1 + 0x1p-40;
  };
  const Nasty input{"", "T=70 d=8 dv=3 gates=uniform seed=1", {}};
  for (const char* name : operators) {
    const Outcome outcome = compare(name, problem_of(name, input), {.magnitude = false, .kernels = &wrong});
    EXPECT_GT(outcome.contradicted, 0) << name;
  }
}

// The exact recurrence of one column at T = 4096, by intervals of so many bits that they stay narrow.
TEST(CertifiedDelta, HoldsTheExactValueOfALongSequence) {
  const Index tokens = 4096, key_dim = 4;
  const Problem problem =
      problem_of("gated_delta", {"", "T=4096 d=4 dv=1 gates=uniform seed=3", put("beta", 2, 3)});
  const Declaration& declaration = operator_named("gated_delta", "masked").declaration();
  const PrecisionScope precision(14000);
  const Head<Interval> head = head_of<Interval>(problem, declaration, slots(problem)[0]);
  std::vector<Interval> state(static_cast<std::size_t>(key_dim), Interval(0)), o;
  for (Index t = 0; t < tokens; ++t) {
    Interval along = 0, read = 0;
    for (Index i = 0; i < key_dim; ++i) along += head.k(t, i) * state[static_cast<std::size_t>(i)];
    const auto at = static_cast<std::size_t>(t);
    const Interval c = head.beta[at] * (head.v(t, 0) - head.alpha[at] * along);
    for (Index i = 0; i < key_dim; ++i) {
      Interval& s = state[static_cast<std::size_t>(i)];
      s = head.alpha[at] * s + c * head.k(t, i);
      read += head.q(t, i) * s;
    }
    o.push_back(read);
  }
  for (const DeltaPrecision p : precisions) {
    const auto rows = certified_delta_rows(declaration, problem, slots(problem)[0], {.precision = p});
    ASSERT_TRUE(rows);
    Index contradicted = 0, noticed = 0;
    for (std::size_t t = 0; t < o.size(); ++t) {
      const Enclosure exact = enclosure_of(o[t]);
      const double apart = std::abs((rows->high[t] - exact.high) + (rows->low[t] - exact.low));
      ASSERT_LT(exact.radius, rows->radius[t]);
      contradicted += !(apart <= rows->radius[t] + exact.radius);
      noticed += !(apart <= rows->radius[t] * 0x1p-20 + exact.radius);
    }
    EXPECT_EQ(contradicted, 0);
    EXPECT_GT(noticed, 0);
  }
}

// With unit keys the radius stays 2^-10 below what a kernel that sums in fp32 is held to, without escalation.
TEST(CertifiedDelta, RadiusIsFarBelowTheBoundOfSumsInFp32) {
  for (const char* name : operators) {
    const Operator& op = operator_named(name, "masked");
    const Problem problem = problem_of(name, {"", "T=4096 d=32 dv=16 seed=1", {}});
    const Slot slot = slots(problem)[0];
    const auto rows = certified_delta_rows(op.declaration(), problem, slot,
                                           {.precision = DeltaPrecision::plain, .magnitude = false});
    ASSERT_TRUE(rows);
    const std::vector<Index> judged{0, 1, 63, 64, 1000, 2048, 4000, 4095};
    Contract contract;  // everything in fp32
    contract.input = contract.product = contract.intermediate = contract.state = contract.accumulate =
        contract.gate_sum = contract.output = fp32;
    const ErrorModel model = error_model(op, head_of<double>(problem, op.declaration(), slot),
                                         {Form::chunk, 64, 0}, contract, {}, &judged);
    double worst = 0;
    for (Index i = 0; i < static_cast<Index>(judged.size()); ++i)
      for (Index c = 0; c < 16; ++c)
        worst = std::max(
            worst, rows->radius[static_cast<std::size_t>(judged[static_cast<std::size_t>(i)] * 16 + c)] /
                       model.deterministic(i, c));
    EXPECT_LT(worst, 0x1p-10) << name;
    RecordProperty(std::string(name) + "_radius_over_bound_log2", std::to_string(std::log2(worst)));
  }
}

TEST(CertifiedDelta, IsWhatTheOracleUses) {
  const Problem problem = problem_of("gated_delta", {"", "T=300 d=32 dv=16 seed=1", {}});
  const Operator& op = operator_named("gated_delta", "masked");
  OracleRequest request;
  request.rows = {0, 300}, request.double_double = true;
  EXPECT_EQ(evaluate_oracle(op, problem, request).method, "double-double");
  request.in_double = true;
  EXPECT_EQ(evaluate_oracle(op, problem, request).method, "double");
  const Problem long_keys = problem_of("gated_delta", {"", "T=300 d=32 dv=16 seed=1", multiply("k", 100)});
  request.in_double = false;
  EXPECT_NE(evaluate_oracle(op, long_keys, request).method.find("mpfi"), std::string::npos);
}

}  // namespace
}  // namespace attest
