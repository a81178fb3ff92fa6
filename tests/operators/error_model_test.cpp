// The error models against what they claim: the share of every stage against the finite perturbation of each
// of its entries (reverse mode at the actual values), emulated kernels against the bound, and mutants of
// both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "reference/metrics/bound.hpp"
#include "reference/metrics/verdict.hpp"
#include "reference/operators/common/error_lin.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;
using V = Var<double>;

Contract bf16_contract() {
  return parse_contract("input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 state=tf32 output=bf16");
}

// Every stage entry gets an input of the tape beside it, and every product its own: their adjoints are s_e.
class Probed : public Arithmetic<V> {
 public:
  struct Entry {
    std::string label;
    std::int64_t node;
    double size;
  };
  Matrix<V> product(const Matrix<V>& a, const Matrix<V>& b) override {
    Matrix<V> result = Arithmetic<V>::product(a, b);
    const double k = static_cast<double>(a.cols());
    for (Index i = 0; i < result.rows(); ++i)
      for (Index j = 0; j < result.cols(); ++j) {
        double size = 0;
        for (Index l = 0; l < a.cols(); ++l) size += std::abs(a(i, l).value * b(l, j).value);
        probe("product", result(i, j), size * k);
      }
    return result;
  }
  Matrix<V> operand(std::string_view label, Matrix<V> x) override {
    return stage(std::string(label), std::move(x));
  }
  // A state that has just been carried is in the format already: the scan carries some a second time.
  Matrix<V> carry(std::string_view label, Matrix<V> x) override {
    for (const Matrix<V>& before : carried_)
      if (before == x) return x;
    return carried_.emplace_back(stage(std::string(label), std::move(x)));
  }
  Matrix<V> output(Matrix<V> x) override { return stage("output", std::move(x)); }
  std::vector<Entry> entries;

 private:
  Matrix<V> stage(const std::string& label, Matrix<V> x) {
    for (Index i = 0; i < x.size(); ++i) probe(label, x.data()[i], std::abs(x.data()[i].value));
    return x;
  }
  // The tiny value makes the entry after its stage another number than before it.
  void probe(const std::string& label, V& x, double size) {
    const V beside = V::input(1e-15 * size);
    entries.push_back({label, beside.node, size});
    x = x + beside;
  }
  std::vector<Matrix<V>> carried_;
};

struct Measured {
  std::map<std::string, Matrix<double>> absolute,
      square;  // sum_e |s_e| |x_e| and sum_e (s_e x_e)^2, by label
};

Measured measure(const Operator& op, const Head<double>& head, const Evaluation& how) {
  Tape<double> tape;
  Probed probed;
  const Evaluator<V>& evaluator = op;
  const Matrix<V> o = evaluator.evaluate(converted<V>(head), how, probed).o;
  Measured result;
  for (Index i = 0; i < o.size(); ++i) {
    if (o.data()[i].node < 0) continue;
    std::vector<double> bar(tape.size(), 0.0);
    bar[static_cast<std::size_t>(o.data()[i].node)] = 1;
    bar = tape.adjoints(std::move(bar));
    for (const auto& entry : probed.entries) {
      const double term = std::abs(bar[static_cast<std::size_t>(entry.node)]) * entry.size;
      result.absolute.try_emplace(entry.label, zeros<double>(o.rows(), o.cols())).first->second.data()[i] +=
          term;
      result.square.try_emplace(entry.label, zeros<double>(o.rows(), o.cols())).first->second.data()[i] +=
          term * term;
    }
  }
  return result;
}

double unit_of(const Contract& contract, const std::string& label) {
  if (label == "output") return contract.output.unit_roundoff();
  if (label == "carry" || label.ends_with(".carry")) return contract.state.unit_roundoff();
  return contract.intermediate.unit_roundoff();
}

// claimed / measured - 1, the extremes over the elements whose measured share is not negligible.
struct Agreement {
  double lowest = 0, highest = 0;
  void see(double claimed, double measured, double scale) {
    const double difference = (claimed - measured) / std::max(measured, 1e-9 * scale);
    lowest = std::min(lowest, difference), highest = std::max(highest, difference);
  }
};

double largest(const Matrix<double>& m) {
  double result = 0;
  for (Index i = 0; i < m.size(); ++i) result = std::max(result, std::abs(m.data()[i]));
  return result;
}

Agreement agreement(const Matrix<double>& claimed, const Matrix<double>& measured, double unit) {
  Agreement result;
  for (Index i = 0; i < measured.size(); ++i)
    result.see(claimed.data()[i], unit * measured.data()[i], unit * largest(measured));
  return result;
}

struct Subject {
  const char *name, *variant;
  int algebra = 0;
  double loosest =
      0;  // how far above the measured share a claimed one may be, for the stages that are not exact
};

std::ostream& operator<<(std::ostream& out, const Subject& s) {
  return out << s.name << "_" << s.variant << "_" << s.algebra;
}

const Subject subjects[] = {{"linear", "masked"},
                            {"retention", "masked"},
                            {"mamba2", "masked"},
                            {"hla2", "masked", 0},
                            {"hla2", "masked", 1},
                            {"hla2", "unmasked"},
                            {"hla2", "printed"},
                            {"ahla", "masked"},
                            {"hla3", "masked"},
                            {"hla3", "unmasked"},
                            {"hla3", "printed", 0, 30.0},
                            {"delta", "masked"},
                            {"gated_delta", "masked"},
                            {"log_linear", "masked"},
                            {"log_linear_mamba2", "masked"},
                            {"log_linear_gated_delta", "masked"}};

class ChunkStages : public ::testing::TestWithParam<Subject> {};

// The printed third order reads y_j only through y_j.k_j; its model takes |y_j error| |k_j| there.
bool conservative(const Subject& s, const std::string& label) {
  return std::string(s.name) == "hla3" && std::string(s.variant) == "printed" && label.starts_with("y.");
}

Head<double> head_of(const Operator& op, const Shape& shape, const Contract& contract, std::uint64_t seed) {
  Head<double> head = random_head(op.declaration(), shape, contract, seed);
  if (!op.declaration().decayed_scan) head.decay = 1;
  return head;
}

TEST_P(ChunkStages, CostWhatThePerturbationOfEachOfTheirEntriesCosts) {
  const Subject& s = GetParam();
  const Operator& op = *find_operator(s.name, s.variant);
  const Contract contract = bf16_contract();
  std::map<std::string, double> loose;
  for (const Shape& shape : {Shape{11, 3, 2, false, false}, Shape{9, 2, 3, true, true},
                             Shape{8, 1, 1, true, false, false}, Shape{5, 3, 4, false, true}})
    for (const Index width : {1, 4, 8}) {
      const Head<double> head = head_of(op, shape, contract, 7 + static_cast<std::uint64_t>(width));
      const Evaluation how{Form::chunk, width, s.algebra};
      const ErrorModel model = first_order_model(op, head, how, contract);
      ASSERT_FALSE(model.undecided) << model.reason;
      ASSERT_TRUE(model.sharp);
      const Measured measured = measure(op, head, how);
      Matrix<double> variance = zeros<double>(shape.tokens, shape.value_dim);
      for (const auto& [label, share] : measured.absolute) {
        if (label == "product" || largest(share) == 0) continue;
        ASSERT_TRUE(model.shares.contains(label)) << label;
        const double unit = unit_of(contract, label);
        const Agreement agrees = agreement(model.shares.at(label), share, unit);
        EXPECT_GE(agrees.lowest, -1e-9)
            << label << " is too small, width " << width << " tokens " << shape.tokens;
        if (conservative(s, label)) {
          loose[label] = std::max(loose[label], agrees.highest);
          continue;
        }
        EXPECT_LE(agrees.highest, 1e-9)
            << label << " is too large, width " << width << " tokens " << shape.tokens;
      }
      for (const auto& [label, square] : measured.square)
        if (label != "product" && !conservative(s, label))
          variance += (unit_of(contract, label) * unit_of(contract, label)) * square;
      const Agreement spread = agreement(model.variance, variance, 1);
      EXPECT_GE(spread.lowest, -1e-9) << "variance, width " << width;
      EXPECT_LE(spread.highest, 1e-9) << "variance, width " << width;
      const Agreement sums =
          agreement(model.accumulation, measured.absolute.at("product"), contract.accumulate.unit_roundoff());
      EXPECT_GE(sums.lowest, 0) << "products";
      if (s.loosest > 0) continue;
      EXPECT_LE(largest(model.accumulation),
                12 * contract.accumulate.unit_roundoff() * largest(measured.absolute.at("product")) +
                    (op.declaration().gates ? 1e-4 : 0) * largest(measured.absolute.at("output")));
    }
  for (const auto& [label, factor] : loose) {
    EXPECT_LE(factor, s.loosest) << label;
    RecordProperty("loose " + label, std::to_string(1 + factor));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ChunkStages, ::testing::ValuesIn(subjects), [](const auto& info) {
  return std::string(info.param.name) + "_" + info.param.variant + "_" + std::to_string(info.param.algebra);
});

class CarriedStates : public ::testing::TestWithParam<Subject> {};

std::vector<Subject> recurrences() {
  std::vector<Subject> result{{"softmax", "masked"}};
  for (const Subject& s : subjects)
    if (std::string(s.name).find("hla") == std::string::npos) result.push_back(s);
  return result;
}

TEST_P(CarriedStates, CostInStreamAndScanWhatThePerturbationOfEachOfTheirEntriesCosts) {
  const Subject& s = GetParam();
  const Operator& op = *find_operator(s.name, s.variant);
  const Contract contract = bf16_contract();
  for (const Shape& shape :
       {Shape{11, 3, 2}, Shape{8, 2, 3, true}, Shape{5, 1, 1, true}, Shape{1, 2, 2, true}})
    for (const Form form : {Form::stream, Form::scan}) {
      if (std::string(s.name) == "softmax" && form == Form::scan) continue;
      const Head<double> head = head_of(op, shape, contract, 7);
      const ErrorModel model = first_order_model(op, head, {form, 1, 0}, contract);
      ASSERT_TRUE(model.sharp);
      const Measured measured = measure(op, head, {form, 1, 0});
      for (const auto& [label, share] : measured.absolute) {
        if (label == "product" || largest(share) == 0) continue;
        ASSERT_TRUE(model.shares.contains(label)) << label;
        const double unit =
            label == "output" ? contract.output.unit_roundoff() : contract.state.unit_roundoff();
        const Agreement agrees = agreement(model.shares.at(label), share, unit);
        EXPECT_GE(agrees.lowest, -1e-9)
            << label << " is too small, " << form_name(form) << " tokens " << shape.tokens;
        EXPECT_LE(agrees.highest, 1e-9)
            << label << " is too large, " << form_name(form) << " tokens " << shape.tokens;
      }
    }
}

// ---- negative controls of the comparison above

TEST(ChunkStages, ADroppedStageIsNoticed) {
  const Operator& op = *find_operator("hla2");
  const Contract contract = bf16_contract();
  const Head<double> head = random_head(op.declaration(), {11, 3, 2}, contract, 3);
  const Evaluation how{Form::chunk, 4, 1};
  const ErrorModel model = first_order_model(op, head, how, contract);
  const Measured measured = measure(op, head, how);
  Matrix<double> claimed = zeros<double>(11, 2), all = claimed;
  for (const auto& [label, share] : measured.absolute)
    if (label != "product") all += unit_of(contract, label) * share;
  for (const auto& [label, share] : model.shares)
    if (label != "a.rows") claimed += share;
  EXPECT_LT(agreement(claimed, all, 1).lowest, -0.01);
  claimed += model.shares.at("a.rows");
  EXPECT_GE(agreement(claimed, all, 1).lowest, -1e-9);
}

// Sees a carried state in its own chunk only: the cross term is missing.
class WithoutCarry : public ReadAsKey {
 public:
  using ReadAsKey::ReadAsKey;
  Array states(Norm p, const LinStages& lin, const PerChunk& error, bool) const override {
    return ReadAsKey::states(p, lin, error, false);
  }
};

// Adds |q||k| up where the sum q.k is what counts.
class WithoutCancellation : public ReadAsKey {
 public:
  WithoutCancellation(const RowSet& rows, const Array& q, const Array& v, Gates<double> gates)
      : ReadAsKey(rows, q.cwiseAbs(), v, gates) {}
  Array weights(Norm p, const LinStages& lin, const PerChunk& error) const override {
    LinStages sized = lin;
    sized.v = lin.v.cwiseAbs();
    return ReadAsKey::weights(p, sized, error);
  }
};

template <class R>
Agreement agreement_with_reader(const char* label) {
  const Operator& op = *find_operator("hla2");
  const Contract contract = bf16_contract();
  const Units units(contract);
  const Head<double> head = random_head(op.declaration(), {11, 3, 2}, contract, 3);
  const Array q = to_array(head.q), k = to_array(head.k), v = to_array(head.v);
  const Gates<double> once{nullptr, nullptr, head.decay, 1}, twice{nullptr, nullptr, head.decay, 2};
  const LinStages a(units, "a", q, k, k, once, Array::Zero(3, 3), 4);
  ErrorSum sum(units, 11, 2);
  a.collect(R(RowSet(11), q, v, twice), sum);
  const Measured measured = measure(op, head, {Form::chunk, 4, 1});
  return agreement(sum.finish().shares.at(label), measured.absolute.at(label), unit_of(contract, label));
}

TEST(ChunkStages, ASensitivityWithoutTheCrossTermIsNoticed) {
  EXPECT_GE(agreement_with_reader<ReadAsKey>("a.carry").lowest, -1e-9);
  EXPECT_LT(agreement_with_reader<WithoutCarry>("a.carry").lowest, -0.01);
}

TEST(ChunkStages, ASensitivityWithoutTheCancellationIsNoticed) {
  EXPECT_LE(agreement_with_reader<ReadAsKey>("a.weights").highest, 1e-9);
  EXPECT_GT(agreement_with_reader<WithoutCancellation>("a.weights").highest, 0.01);
}

// ---- emulated kernels

const char* const contracts[] = {
    "input=fp32",
    "input=bf16 product=bf16 intermediate=bf16 output=bf16",
    "input=bf16 product=bf16 accumulate=fp32/truncate intermediate=bf16 output=bf16 gate_sum=fp32/global",
    "input=bf16 product=bf16 intermediate=bf16 state=bf16 output=bf16",
    "input=fp16 product=fp16 intermediate=fp16 output=fp16",
    "input=fp32 product=tf32 accumulate=fp32/truncate",
    "input=fp32 product=bf16 intermediate=bf16 output=fp32",
    "input=fp32 accumulate=fp64 product=fp64 intermediate=fp64 state=fp64 gate_sum=fp64 output=fp32"};

struct Figures {
  double worst = 0;              // error / D
  double tightest = 1;           // statistical bound / D, the smallest
  std::vector<double> relative;  // D / |o|
  double power() const {
    return static_cast<double>(
               std::count_if(relative.begin(), relative.end(), [](double x) { return x < 0.25; })) /
           static_cast<double>(relative.size());
  }
  double median() {
    std::sort(relative.begin(), relative.end());
    return relative[relative.size() / 2];
  }
};

void compare(const Matrix<double>& got, const Matrix<double>& exact, const ErrorModel& model,
             const Contract& contract, Figures& figures) {
  const Matrix<double> passing = passing_bound(model, contract, got.size(), !contract.truncates);
  for (Index i = 0; i < got.size(); ++i) {
    const double error = std::abs(got.data()[i] - exact.data()[i]), bound = model.deterministic.data()[i];
    ASSERT_LE(error, bound) << "entry " << i;
    EXPECT_LE(error, passing.data()[i]) << "suspect: entry " << i;
    figures.tightest = std::min(figures.tightest, passing.data()[i] / bound);
    figures.worst = std::max(figures.worst, error / bound);
    figures.relative.push_back(bound / std::abs(exact.data()[i]));
  }
}

class EmulatedKernels : public ::testing::TestWithParam<Subject> {};

void run_contract(const Subject& s, const char* text, Form form) {
  const Operator& op = *find_operator(s.name, s.variant);
  const Contract contract = parse_contract(text);
  Figures figures;
  int undecided = 0;
  std::string reason;
  std::uint64_t seed = 100;
  for (const Shape& shape :
       {Shape{45, 8, 8}, Shape{33, 8, 5, true, true}, Shape{64, 16, 16, false, false, false}})
    for (const Index width : form == Form::chunk ? std::vector<Index>{8, 16} : std::vector<Index>{1}) {
      const Head<double> head = head_of(op, shape, contract, ++seed);
      const Evaluation how{form, width, s.algebra};
      const ErrorModel model = error_model(op, head, how, contract);
      if (model.undecided) {
        ++undecided, reason = model.reason;
        continue;
      }
      const Evaluator<double>& evaluator = op;
      compare(run_kernel(op, head, how, contract), evaluator.evaluate(head).o, model, contract, figures);
    }
  const std::string line =
      figures.relative.empty()
          ? "undecided: " + reason
          : fmt::format("max error/D {:.3f}, median D/|o| {:.2e}, power {:.2f}, undecided {}", figures.worst,
                        figures.median(), figures.power(), undecided);
  ::testing::Test::RecordProperty(std::string(form_name(form)) + " " + text, line);
  if (std::getenv("ATTEST_SHOW"))
    fmt::print("{} {} {} {} | {} | {}\n", s.name, s.variant, s.algebra, form_name(form), line, text);
}

TEST_P(EmulatedKernels, StayWithinTheBoundInTheChunkForm) {
  for (const char* text : contracts) run_contract(GetParam(), text, Form::chunk);
}
TEST(EmulatedSoftmax, StaysWithinTheBound) {
  for (const char* text : contracts) run_contract({"softmax", "masked"}, text, Form::stream);
}

// Numerator and denominator in one run, v with a last column of ones; large epsilon or none.
TEST(EmulatedKernels, StayWithinTheBoundWhenNormalised) {
  for (const char* name : {"linear", "mamba2", "hla2", "ahla"})
    for (const char* text : contracts)
      for (const double epsilon : {0.0, 8.0}) {
        const Operator& op = *find_operator(name);
        const Contract contract = parse_contract(text);
        Head<double> head = head_of(op, {40, 8, 5}, contract, 11);
        for (Matrix<double>* x : {&head.q, &head.k})  // a denominator that does not cancel
          for (Index i = 0; i < x->size(); ++i) x->data()[i] = std::abs(x->data()[i]);
        for (Index t = 0; t < 40; ++t) head.v(t, 4) = 1;
        const Evaluation how{Form::chunk, 8, 0};
        const ErrorModel model = error_model(op, head, how, contract, {true, epsilon});
        if (model.undecided) continue;
        const Evaluator<double>& exact = op;
        const Matrix<double> raw = contract.accumulate == fp64
                                       ? run_emulated<double>(op, head, how, contract, false)
                                       : run_emulated<float>(op, head, how, contract, false);
        const Matrix<double> truth = exact.evaluate(head).o;
        Matrix<double> got(40, 4), expected(40, 4);
        for (Index t = 0; t < 40; ++t)
          for (Index c = 0; c < 4; ++c) {
            const double below = round_to(contract.accumulate, raw(t, 4) + epsilon);
            got(t, c) = round_to(contract.output, round_to(contract.accumulate, raw(t, c) / below));
            expected(t, c) = truth(t, c) / (truth(t, 4) + epsilon);
          }
        Figures figures;
        compare(got, expected, model, contract, figures);
        if (contract.product.precision < contract.input.precision) continue;
        EXPECT_GT(figures.power(), 0.5) << name << " " << text;
      }
}

TEST(EmulatedKernels, ADenominatorThatItsErrorReachesIsUndecided) {
  const Operator& op = *find_operator("linear");
  const Contract contract = parse_contract("input=bf16 product=bf16 intermediate=bf16 output=bf16");
  Head<double> head = head_of(op, {8, 4, 3}, contract, 1);
  for (Index t = 0; t < 8; ++t) head.v(t, 2) = t % 2 ? -1 : 1;
  for (Index t = 1; t < 8; ++t) head.k.row(t) = head.k.row(0);
  const ErrorModel model = error_model(op, head, {Form::chunk, 4, 0}, contract, {true, 0});
  EXPECT_TRUE(model.undecided);
  EXPECT_EQ(model.reason.substr(0, 12), "conditioning");
}

TEST(ErrorModel, IsUndecidedWhereAStageMayOverflowItsFormat) {
  const Operator& op = *find_operator("hla2");
  Contract contract = parse_contract("input=fp16 product=fp16 intermediate=fp16 state=fp16 output=fp16");
  Head<double> head = head_of(op, {64, 4, 4}, contract, 1);
  EXPECT_FALSE(error_model(op, head, {Form::chunk, 16, 1}, contract).undecided);
  for (Index i = 0; i < head.k.size(); ++i) head.k.data()[i] *= 64;
  for (const Form form : {Form::chunk, Form::stream, Form::scan}) {
    const ErrorModel model = error_model(op, head, {form, 16, 1}, contract);
    EXPECT_TRUE(model.undecided);
    EXPECT_EQ(model.reason.substr(0, 5), "range") << model.reason;
  }
}

TEST(ErrorModel, IsUndecidedWhereAGateMayBeOffByAHalf) {
  const Operator& op = *find_operator("mamba2");
  const Contract contract = parse_contract("gate_sum=bf16");
  Head<double> head = head_of(op, {32, 4, 4}, contract, 1);
  for (Index t = 0; t < 32; ++t)
    head.log_gate[static_cast<std::size_t>(t)] = -8, head.alpha[static_cast<std::size_t>(t)] = std::exp(-8.0);
  EXPECT_EQ(error_model(op, head, {Form::chunk, 16, 0}, contract).reason.substr(0, 5), "gates");
}

TEST(ErrorModel, HasNoBoundForInputsThatAreNotFinite) {
  const Operator& op = *find_operator("linear");
  Head<double> head = head_of(op, {4, 2, 2}, Contract{}, 1);
  head.k(1, 1) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(error_model(op, head, {Form::chunk, 4, 0}, Contract{}).undecided);
}

TEST(ErrorModel, OfNoTokensIsEmpty) {
  for (const Operator* op : all_operators())
    for (const Form form : op->declaration().forms) {
      if (form == Form::direct) continue;
      const ErrorModel model =
          error_model(*op, head_of(*op, {0, 3, 2}, Contract{}, 1), {form, 4, 0}, Contract{});
      EXPECT_EQ(model.deterministic.size(), 0) << op->declaration().name;
      EXPECT_FALSE(model.undecided) << op->declaration().name << model.reason;
    }
}

TEST_P(EmulatedKernels, StayWithinTheBoundInTheStreamForm) {
  for (const char* text : contracts) run_contract(GetParam(), text, Form::stream);
}
TEST_P(EmulatedKernels, StayWithinTheBoundInTheScanForm) {
  for (const char* text : contracts) run_contract(GetParam(), text, Form::scan);
}

// A kernel that forgets what lies before the chunk, in the first state of its composition.
class Forgetful : public Emulated<float> {
 public:
  Forgetful(const Contract& contract, std::string forgotten)
      : Emulated(contract, true), forgotten_(std::move(forgotten)) {}
  Matrix<float> operand(std::string_view label, Matrix<float> x) override {
    if (label == forgotten_) x = zeros<float>(x.rows(), x.cols());
    return Emulated::operand(label, std::move(x));
  }

 private:
  std::string forgotten_;
};

// The state of the first Lin of a composition.
std::string first_state(const Declaration& d) {
  if (d.name == "ahla") return "r.state";
  if (d.name == "hla3" && d.variant == "printed") return "f.state";
  if (d.name.starts_with("hla")) return "a.state";
  return d.beta || d.level_scales ? "state" : "o.state";
}

TEST_P(EmulatedKernels, ThatForgetACrossTermExceedTheBoundOnMostElements) {
  const Subject& s = GetParam();
  const Operator& op = *find_operator(s.name, s.variant);
  const Contract contract = parse_contract("input=bf16 product=bf16 intermediate=bf16 output=bf16");
  const Head<double> head = head_of(op, {64, 16, 16}, contract, 5);
  const Evaluation how{Form::chunk, 16, s.algebra};
  const ErrorModel model = error_model(op, head, how, contract);
  Forgetful kernel(contract, first_state(op.declaration()));
  const Evaluator<float>& low = op;
  const Evaluator<double>& exact = op;
  const Matrix<float> got = low.evaluate(converted<float>(head), how, kernel).o;
  const Matrix<double> expected = exact.evaluate(head).o;
  Index caught = 0, later = 0;
  for (Index t = 16; t < 64; ++t)
    for (Index c = 0; c < 16; ++c, ++later)
      caught += !(std::abs(static_cast<double>(got(t, c)) - expected(t, c)) <= model.deterministic(t, c));
  RecordProperty("caught", std::to_string(static_cast<double>(caught) / static_cast<double>(later)));
  EXPECT_GT(2 * caught, later);
}

INSTANTIATE_TEST_SUITE_P(Every, CarriedStates, ::testing::ValuesIn(recurrences()), [](const auto& info) {
  return std::string(info.param.name) + "_" + info.param.variant + "_" + std::to_string(info.param.algebra);
});

INSTANTIATE_TEST_SUITE_P(Every, EmulatedKernels, ::testing::ValuesIn(subjects), [](const auto& info) {
  return std::string(info.param.name) + "_" + info.param.variant + "_" + std::to_string(info.param.algebra);
});

}  // namespace
}  // namespace attest
