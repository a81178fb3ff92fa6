// Correct kernels over random operators, forms, contracts, shapes, recipes and seeds: none may be called wrong.
// ATTEST_FALSE_ALARM_RUNS says how many (a few hundred by default, 10,000 nightly), ATTEST_FALSE_ALARM_SEED where to
// start. A run is one call, judged by the bound with its final states, or bit by bit on a lattice input.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/state_bound.hpp"
#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/metrics/bound.hpp"

namespace attest {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

Index up_to(Random& random, Index most) {
  return static_cast<Index>(random.below(static_cast<std::uint64_t>(most) + 1));
}

template <class T>
const T& any(Random& random, const std::vector<T>& list) {
  return list[random.below(list.size())];
}

Contract random_contract(Random& random) {
  static const std::vector<Format> formats{fp32, fp32, tf32, bf16, bf16, fp16};
  Contract contract;
  contract.input = any(random, formats);
  contract.product = random.one_in(2) ? contract.input : any(random, formats);
  contract.intermediate = random.one_in(2) ? contract.product : any(random, formats);
  contract.state = random.one_in(2) ? fp32 : any(random, formats);
  contract.output = any(random, formats);
  contract.truncates = random.one_in(6);
  return contract;
}

// A registered kernel, an unedited production kernel, or a CPU form with a contract of its own.
Kernel random_kernel(Random& random) {
  static const std::vector<Kernel> unedited = unedited_kernels();
  if (random.one_in(6)) return any(random, unedited);
  const Kernel& kernel = any(random, registered_kernels());
  const bool products = kernel.how.form == Form::chunk;
  if (!products || random.one_in(2)) return kernel;
  Evaluation how = kernel.how;
  how.chunk = Index(1) << up_to(random, 6);
  const Contract contract = random_contract(random);
  Kernel own = cpu_kernel(*find_operator(kernel.op, kernel.variant), how, "random", contract);
  own.limits = kernel.limits;
  return own;
}

Case random_case(Random& random, const Declaration& d) {
  Case shape;
  shape.tokens = up_to(random, random.one_in(4) ? 150 : 40);
  shape.key_dim = 1 + up_to(random, 11), shape.value_dim = 1 + up_to(random, 11);
  shape.heads = Index(1) << up_to(random, 2), shape.batch = 1 + up_to(random, 1);
  for (Index* heads : {&shape.heads_q, &shape.heads_k, &shape.heads_v})
    if (random.one_in(4)) *heads = std::max<Index>(1, shape.heads >> up_to(random, 2));
  shape.recipe = any(random, recipes()).name, shape.gates = any(random, gate_recipes()).name;
  shape.seed = random.bits() >> 1;
  if (random.one_in(4)) {
    shape.batch = 1, shape.packed = {0};
    while (shape.packed.size() < 4)
      shape.packed.push_back(shape.packed.back() + up_to(random, *shape.tokens - shape.packed.back()));
    shape.packed.push_back(*shape.tokens);
  }
  Options& options = shape.options;
  if (d.decay && random.one_in(3)) options.decay = Rational(up_to(random, 16)) / 16;
  if (d.ridge && random.one_in(4)) options.ridge = Rational(up_to(random, 8)) / 4;
  if (random.one_in(4)) options.scale = Rational(1 + up_to(random, 6)) / (1 + up_to(random, 12));
  if (d.normalize && random.one_in(5)) options.normalize = true, options.epsilon = Rational(1) / 8;
  return shape;
}

// One run; its findings. A suspicion counts only if fresh seeds repeat it.
Findings run_once(const Kernel& kernel, const BatteryContext& context, Case shape, Random& random,
                  bool lattice) {
  Findings findings(kernel);
  findings.input(short_text(shape));
  if (lattice) {
    shape.options = {};
    if (const auto problem = draw_lattice(context, shape, random)) {
      if (const auto outputs = call(context, *problem, findings))
        findings.exact(*problem, *outputs, lattice_outputs(context, *problem));
    } else {
      findings.leave_out("no certificate");
    }
    return findings;
  }
  const bool statistical = find_recipe(shape.recipe)->independent &&
                           find_gate_recipe(shape.gates)->independent && !kernel.contract.truncates;
  judge_call(context, drawn(context, shape), statistical, findings);
  return findings;
}

struct Ran {
  Verdict verdict;
  bool failed, lattice;
  std::string words;  // what repeats it, and the reason
};

Ran run_seed(std::uint64_t seed) {
  Random random(seed, "false alarms");
  const Kernel kernel = random_kernel(random);
  const BatteryContext context{kernel, *find_operator(kernel.op, kernel.variant), seed, Effort::quick};
  const Case shape = fitted(context, random_case(random, context.declaration()));
  const bool lattice = no_lattice(context).empty() && random.one_in(3);
  Findings findings = run_once(kernel, context, shape, random, lattice);
  for (int again = 0; again < 2 && !findings.failed() && findings.suspicious() > 0; ++again) {
    Case fresh = shape;
    fresh.seed = random.bits() >> 1;
    const Findings second = run_once(kernel, context, fresh, random, false);
    if (second.failed() || second.suspicious() > 0) findings.fault("suspect again");
  }
  const std::string words = fmt::format("ATTEST_FALSE_ALARM_SEED={} {} '{}' {}: {}", seed, kernel.name,
                                        to_text(kernel.contract), to_text(shape), findings.outcome().reason);
  return {findings.outcome().verdict, findings.failed(), lattice, words};
}

TEST(FalseAlarms, DoNotHappenToRightKernels) {
  const std::uint64_t runs = from_environment("ATTEST_FALSE_ALARM_RUNS", 300);
  const std::uint64_t start = from_environment("ATTEST_FALSE_ALARM_SEED", 1);
  std::map<Verdict, std::uint64_t> counts;
  std::uint64_t alarms = 0, exact = 0;
  for (std::uint64_t seed = start; seed < start + runs; ++seed) {
    const Ran ran = run_seed(seed);
    exact += ran.lattice;
    ++counts[ran.verdict];
    if (!ran.failed) continue;
    ++alarms;
    ADD_FAILURE() << ran.words;
  }
  fmt::print(
      "{} runs, {} on lattice inputs: {} pass, {} undecided, {} suspect once, {} not run, {} false alarms\n",
      runs, exact, counts[Verdict::pass], counts[Verdict::undecided], counts[Verdict::suspect],
      counts[Verdict::not_run], alarms);
}

// U = N^-1 (diag(beta) V) is usual in the place of (N^-1 diag(beta)) V: beta v, 2^-133 and less, loses bits that a long key
// makes 2^16 times as large. (Found by hunting on a right kernel.)
TEST(FalseAlarms, NoneForValuesThatAreScaledBeforeTheInverse) {
  Head<double> head;
  head.q = head.k = head.v = zeros<double>(3, 1);
  head.k(0, 0) = 1, head.k(1, 0) = -256, head.v(0, 0) = 0x1.68008p-131, head.beta = {0.25, 1, 0};
  head.q(1, 0) = head.q(2, 0) = 1;  // of its own chunk, and of the state
  const double u = 0.25 * head.v(0, 0), error = 65535 * std::abs(u - round_to(fp32, u));
  EXPECT_GT(error, 0x1p-135);
  head.alpha = {1, 1, 1}, head.log_gate = {0, 0, 0}, head.level_scales = zeros<double>(3, 3);
  for (Index i = 0; i < 9; ++i) head.level_scales.data()[i] = 1;
  // Of log-linear operators too: two tokens are one block, (K'^T N^-1) (diag(beta) V).
  for (const char* name : {"delta", "log_linear_gated_delta"}) {
    SCOPED_TRACE(name);
    const Operator& op = operator_named(name, "masked");
    const StateBound bound = state_bound(op, head, {Form::chunk, 2}, Contract{});
    ASSERT_EQ(bound.undecided, "");
    double of_state = 0;  // of the blocks the one that holds both tokens
    for (const Matrix<double>& block : bound.error.at("S")) of_state = std::max(of_state, block(0, 0));
    EXPECT_LE(error, of_state);
    EXPECT_LE(of_state, 8 * error);
    const ErrorModel model = error_model(op, head, {Form::chunk, 2}, Contract{});
    ASSERT_FALSE(model.undecided) << model.reason;
    for (const Index t : {1, 2}) EXPECT_LE(error, model.deterministic(t, 0)) << t;
  }
}

// exp(-100) is 26.6 times 2^-149 and in fp32 27 times: wrong by 1.6 % of every key that it meets, however small that makes the key,
// and two keys of 766 make it 2^19 times as large. (Found by hunting on a right kernel.)
TEST(FalseAlarms, NoneForAGateThatUnderflowsBeforeItMeetsAKey) {
  Head<double> head;
  head.q = head.k = head.v = zeros<double>(2, 1);
  head.k(0, 0) = head.v(0, 0) = 1, head.k(1, 0) = -766, head.q(1, 0) = 1;
  const double gate = std::exp(-100), error = (766 * 766 - 1) * std::abs(gate - round_to(fp32, gate));
  EXPECT_GT(error, 0x1p-132);
  head.log_gate = {0, -100}, head.alpha = {1, gate}, head.beta = {1, 1};
  head.level_scales = zeros<double>(2, 2);
  for (Index i = 0; i < 4; ++i) head.level_scales.data()[i] = 1;
  for (const char* name : {"gated_delta", "log_linear_gated_delta"}) {
    SCOPED_TRACE(name);
    const ErrorModel model = error_model(operator_named(name, "masked"), head, {Form::chunk, 1}, Contract{});
    ASSERT_FALSE(model.undecided) << model.reason;
    EXPECT_LE(error, model.deterministic(1, 0));
    EXPECT_LE(model.deterministic(1, 0), 8 * error);
  }
}

// 2^-140 times 1 - 2^-10 is a tie and stays 2^-140 in fp32, 62 times over: each product of gates loses half of 2^-149.
TEST(FalseAlarms, NoneForAProductOfGatesThatUnderflowsManyTimes) {
  const Index tokens = 64;
  Head<double> head;
  head.q = head.k = head.v = zeros<double>(tokens, 1);
  head.k(0, 0) = head.v(0, 0) = 1, head.q(tokens - 1, 0) = 1000;
  head.beta.assign(tokens, 0), head.beta[0] = 1;
  head.alpha.assign(tokens, 1 - 0x1p-10), head.alpha[1] = 0x1p-140;
  head.level_scales = zeros<double>(tokens, 7);
  for (Index i = 0; i < 7 * tokens; ++i) head.level_scales.data()[i] = 1;
  double rounded = 0x1p-140, weight = 0x1p-140;
  for (Index t = 2; t < tokens; ++t)
    weight *= head.alpha[2], rounded = round_to(fp32, rounded * head.alpha[2]);
  const double error = 1000 * std::abs(rounded - weight);
  EXPECT_EQ(rounded, 0x1p-140);
  for (const char* name : {"gated_delta", "log_linear_gated_delta"}) {
    SCOPED_TRACE(name);
    const ErrorModel model =
        error_model(operator_named(name, "masked"), head, {Form::chunk, tokens}, Contract{});
    ASSERT_FALSE(model.undecided) << model.reason;
    EXPECT_LE(error, model.deterministic(tokens - 1, 0));
    EXPECT_LE(model.deterministic(tokens - 1, 0), 8 * error);
  }
}

// Matrix units add what a chunk gives onto what its state gave: 1, and 48 terms of 2^-25 that each round away. (Found by attack.)
TEST(FalseAlarms, NoneForOneAccumulatorOfStateAndChunk) {
  const Index width = 64, terms = 48, tokens = width + terms;
  Head<double> head;
  head.q = head.k = zeros<double>(tokens, width), head.v = zeros<double>(tokens, 1);
  head.k(0, width - 1) = head.v(0, 0) = 1;
  for (Index t = width; t < tokens; ++t) head.k(t, t - width) = 1, head.v(t, 0) = 0x1p-25;
  for (Index i = 0; i < width; ++i) head.q(tokens - 1, i) = 1;
  head.alpha.assign(tokens, 1), head.beta.assign(tokens, 1), head.decay = 1;
  head.level_scales = zeros<double>(tokens, 8);
  for (Index i = 0; i < 8 * tokens; ++i) head.level_scales.data()[i] = 1;
  double rounded = 1;
  for (Index i = 0; i < terms; ++i) rounded = round_to(fp32, rounded + 0x1p-25);
  const double error = 1 + terms * 0x1p-25 - rounded;
  EXPECT_EQ(rounded, 1);
  for (const char* name : {"linear", "retention", "mamba2", "delta", "gated_delta", "log_linear",
                           "log_linear_mamba2", "log_linear_gated_delta"}) {
    SCOPED_TRACE(name);
    const ErrorModel model =
        error_model(operator_named(name, "masked"), head, {Form::chunk, width}, Contract{});
    ASSERT_FALSE(model.undecided) << model.reason;
    EXPECT_LE(error, model.deterministic(tokens - 1, 0));
    EXPECT_LE(model.deterministic(tokens - 1, 0), 32 * error);
  }
}

// F <- gamma^2 F + (S q) v^T in fp32: o of the last token.
float last_of_outer_stream(const Head<double>& head) {
  const Index d = head.q.cols();
  const auto gamma = static_cast<float>(head.decay);
  std::vector<float> state(static_cast<std::size_t>(d * d)), f(static_cast<std::size_t>(d));
  float o = 0;
  for (Index t = 0; t < head.tokens(); ++t) {
    o = 0;
    for (Index a = 0; a < d; ++a) {
      float read = 0;
      for (Index b = 0; b < d; ++b) {
        float& s = state[static_cast<std::size_t>(a * d + b)];
        const float written = static_cast<float>(head.k(t, a)) * static_cast<float>(head.k(t, b));
        s = gamma * s + written;
        const float term = s * static_cast<float>(head.q(t, b));
        read = read + term;
      }
      float& one = f[static_cast<std::size_t>(a)];
      const float gained = read * static_cast<float>(head.v(t, 0));
      one = gamma * gamma * one + gained;
      const float term = static_cast<float>(head.q(t, a)) * one;
      o = o + term;
    }
  }
  return o;
}

// The usual way to write the stream of HLA2, which is not how the form itself associates it: S may be subnormal where q makes up for it,
// and k (k q) small where S q is not. (Found by hunting with the NumPy example: 19.1, 2.69 and 1.07 times the bound.)
TEST(FalseAlarms, NoneForAStreamOfHla2ThatMakesTheStateTimesTheQuery) {
  const Operator& op = operator_named("hla2", "masked");
  const auto& algebras = op.declaration().algebras;
  const Evaluation how{Form::stream, 0,
                       static_cast<int>(std::ranges::find(algebras, "direct") - algebras.begin())};
  const Evaluator<double>& exact = op;
  const auto reached = [&](const Head<double>& head) {
    Arithmetic<double> plain;
    const Index last = head.tokens() - 1;
    const double error = std::abs(last_of_outer_stream(head) - exact.evaluate(head, how, plain).o(last, 0));
    const ErrorModel model = error_model(op, head, how, Contract{});
    return model.undecided || error == 0 ? 0 : error / model.deterministic(last, 0);
  };
  Head<double> subnormal;
  subnormal.q = subnormal.k = zeros<double>(2, 2), subnormal.v = zeros<double>(2, 1), subnormal.decay = 1;
  subnormal.k(0, 0) = 0x1.b6p-1, subnormal.k(0, 1) = 0x1.e288p-133;
  subnormal.q(0, 0) = -0x1.72p+7, subnormal.q(1, 1) = subnormal.v(0, 0) = 1;
  EXPECT_GT(reached(subnormal), 0.1);
  Random random(1, "outer streams");
  double most = 0;
  for (int i = 0; i < 2000; ++i) {
    const Index tokens = 1 + up_to(random, 5), d = 1 + up_to(random, 2);
    Head<double> head;
    head.q = head.k = zeros<double>(tokens, d), head.v = zeros<double>(tokens, 1);
    head.decay = std::ldexp(1.0, -static_cast<int>(up_to(random, 2) * up_to(random, 16)));
    const int spread = random.one_in(2) ? 60 : 2;
    for (Matrix<double>* x : {&head.q, &head.k, &head.v})
      for (Index e = 0; e < x->size(); ++e)
        if (!random.one_in(3))
          x->data()[e] = round_to(
              fp32,
              random.sign() * std::ldexp(1 + random.uniform(), 2 - static_cast<int>(up_to(random, spread))));
    most = std::max(most, reached(head));
  }
  EXPECT_LE(most, 1);
  EXPECT_GT(most, 0.4);
}

// k = 256 with beta = 1 makes a transition of -65535 and of nine tokens more than fp32 holds, and NaN of a state of 0: in a scan
// and between the chunks of one, not in a stream, which multiplies the state alone. (Found by hunting on right kernels.)
TEST(FalseAlarms, NoneWhereAProductOfTransitionsOverflows) {
  const auto head_of_tokens = [](Index tokens, double value) {
    Head<double> head;
    head.q = head.k = head.v = zeros<double>(tokens, 1);
    for (Index t = 0; t < tokens; ++t) head.k(t, 0) = 256, head.v(t, 0) = value;
    head.beta.assign(static_cast<std::size_t>(tokens), 1);
    return head;
  };
  const Operator& op = operator_named("delta", "masked");
  const Head<double> few = head_of_tokens(1, 0), many = head_of_tokens(9, 0);
  for (const Evaluation& how :
       {Evaluation{Form::scan, 0, {}}, Evaluation{Form::chunk, 16, {}}, Evaluation{Form::stream, 0, {}}}) {
    const bool overflows = how.form != Form::stream;
    EXPECT_TRUE(state_bound(op, few, how, Contract{}).undecided.empty());
    EXPECT_EQ(state_bound(op, many, how, Contract{}).undecided.starts_with("range"), overflows);
    EXPECT_EQ(error_model(op, few, how, Contract{}).reason, "");
    EXPECT_EQ(error_model(op, many, how, Contract{}).undecided, overflows);
  }
}

// Of log-linear chunks what meets no state yet, and of delta chunks T (V - F S), which a kernel may make in the place of T V - W S:
// two terms of 2^128 and more that cancel, where all else is small or 0. In fp32 their sum is no number.
TEST(FalseAlarms, NoneWhereTermsThatCancelOverflow) {
  struct Overflowing {
    const char *op, *what;
    std::vector<double> k, q, beta, alpha;
    double state;  // k v^T of the token before
  };
  const auto reason = [](const Overflowing& c, double size) {
    const Index tokens = std::ssize(c.k);
    Head<double> head;
    head.q = head.k = head.v = zeros<double>(tokens, 1), head.level_scales = zeros<double>(tokens, 3);
    for (Index t = 0; t < tokens; ++t)
      head.k(t, 0) = c.k[static_cast<std::size_t>(t)], head.q(t, 0) = size * c.q[static_cast<std::size_t>(t)];
    for (Index i = 0; i < 3 * tokens; ++i) head.level_scales.data()[i] = 1;
    head.beta = c.beta, head.alpha = c.alpha;
    head.beta[0] *= size;
    if (c.state != 0)
      head.initial.moments["S"] = {zeros<double>(1, 1)}, head.initial.moments["S"][0](0, 0) = c.state * size;
    return error_model(operator_named(c.op, "masked"), head, {Form::chunk, 2}, Contract{}).reason;
  };
  for (const Overflowing& c : {
           Overflowing{"log_linear_gated_delta", "P T", {1, 1}, {0, 0x1p+126}, {0x1p+10, 1}, {1, 1}, 0},
           Overflowing{"log_linear_gated_delta",
                       "K'^T T",
                       {4, 0x1p+10, 0},
                       {0, 0, 1},
                       {0x1p+126, 0x1p-20, 0},
                       {0x1p-20, 1, 1},
                       0},
           Overflowing{"gated_delta", "T (V - F S)", {1, 1}, {0, 1}, {1, 0x1p+10}, {1, 1}, 0x1p+120},
       }) {
    EXPECT_TRUE(reason(c, 1).starts_with("range: partial sums")) << c.what << ": " << reason(c, 1);
    EXPECT_EQ(reason(c, 0x1p-30), "") << c.what;
  }
}

// lambda beta (q k) = 2^128 and infinite in fp32, no number where it meets v = 0; nothing else of the token is large.
TEST(FalseAlarms, NoneForAWeightOfATokensOwnValueThatOverflows) {
  Head<double> head;
  head.q = head.k = head.v = zeros<double>(1, 1), head.level_scales = zeros<double>(1, 1);
  head.k(0, 0) = 0x1p-20, head.level_scales(0, 0) = 1, head.alpha = {1};
  for (const bool overflows : {true, false}) {
    head.q(0, 0) = overflows ? 0x1p+108 : 0x1p+100, head.beta = {0x1p+40};
    for (const Evaluation& how :
         {Evaluation{Form::stream}, Evaluation{Form::scan}, Evaluation{Form::chunk, 16}})
      EXPECT_EQ(
          error_model(operator_named("log_linear_gated_delta", "masked"), head, how, Contract{}).undecided,
          overflows);
  }
}

// A state of 2^138 is infinite in fp32, and no number where a decay of 0 meets it.
TEST(FalseAlarms, NoneForAStateThatIsInfiniteInItsFormat) {
  Head<double> head;
  head.q = head.k = head.v = zeros<double>(1, 1);
  head.decay = 0;
  const Operator& op = operator_named("hla2", "masked");
  for (const double state : {1.0, std::numeric_limits<double>::infinity()}) {
    for (const char* name : {"S", "C", "m", "G", "h"}) head.initial.moments[name] = {zeros<double>(1, 1)};
    head.initial.moments["S"][0](0, 0) = state;
    const bool finite = std::isfinite(state);
    EXPECT_EQ(state_bound(op, head, {Form::stream, 0, {}}, Contract{}).undecided.empty(), finite);
    EXPECT_EQ(error_model(op, head, {Form::stream, 0, {}}, Contract{}).undecided, !finite);
  }
}

TEST(FalseAlarms, ThatOnceHappenedDoNotHappenAgain) {
  for (const std::uint64_t seed : {5453, 9227, 700191, 800640, 7000545}) {
    const Ran ran = run_seed(seed);
    EXPECT_FALSE(ran.failed) << ran.words;
  }
}

}  // namespace
}  // namespace attest
