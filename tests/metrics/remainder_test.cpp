// The bound beyond first order against kernels on heads that leave little first-order trace: states that the next key
// annihilates, moments that cancel, subnormal values. The full bound is never exceeded; where the first order alone is,
// the test says so, and that is its control. (Without cancellation it never is: one rounding costs at most u / (1 + u),
// and that is less by the order of a square. Jeannerod and Rump 2018.) Exact values by rational arithmetic. The known
// cases of the delta rules stand in tests/gpu_checks/worst_case_test.cpp.
#include <gtest/gtest.h>

#include "reference/metrics/bound.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;

struct Subject {
  const char *name, *variant;
  Form form;
  int algebra = 0;
};

std::ostream& operator<<(std::ostream& out, const Subject& s) {
  return out << s.name << " " << s.variant << " " << form_name(s.form) << " " << s.algebra;
}

// A few bits times a power of two of either sign, often zero: rows that annihilate one another, sums that cancel.
double wild(Random& random, const Format& format, int low, int high) {
  const double kind = random.uniform(0, 1);
  if (kind < 0.25) return 0;
  const double sign = random.uniform(0, 1) < 0.5 ? -1 : 1;
  const double scale = std::ldexp(1.0, static_cast<int>(std::floor(random.uniform(low, high))));
  return round_to(format, sign * scale * (kind < 0.6 ? 1 : random.uniform(1, 2)));
}

void fill(Random& random, const Format& format, int low, int high, Matrix<double>& x) {
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = wild(random, format, low, high);
}

Head<double> wild_head(const Declaration& d, const Contract& contract, int low, int high,
                       std::uint64_t seed) {
  Random random(seed);
  Head<double> head = random_head(d, {9, 2, 1, false, false, false}, contract, seed);
  fill(random, contract.input, low, high, head.q);
  fill(random, contract.input, low, high, head.v);
  if (!d.beta) fill(random, contract.input, low, high, head.k);
  for (Index t = 0; t < head.tokens(); ++t) {
    if (d.beta) {  // unit vectors, so that beta = 1 annihilates exactly
      head.k(t, 0) = random.uniform(0, 1) < 0.5 ? 0.6015625 : 0;
      head.k(t, 1) = head.k(t, 0) == 0 ? 1 : 0.796875;
      head.beta[static_cast<std::size_t>(t)] = random.uniform(0, 1) < 0.7 ? 1 : 0.5;
    }
    if (d.gates) head.alpha[static_cast<std::size_t>(t)] = random.uniform(0, 1) < 0.7 ? 1 : 0.25;
    if (t > 0 &&
        random.uniform(0, 1) < 0.5) {  // the token before once more, its value nearly or exactly negated
      head.q.row(t) = head.q.row(t - 1), head.k.row(t) = head.k.row(t - 1);
      head.v(t, 0) = -head.v(t - 1, 0);
    }
  }
  if (d.decay) head.decay = d.decayed_scan ? 0.5 : 1;
  return head;
}

// hla2 of two factors that both cancel exactly and neither in rounded arithmetic: q is orthogonal to every key, and the
// values sum up to zero. Every stage's sensitivity is then zero at the exact values.
Head<double> cancelling_head(const Declaration& d, const Contract& contract, std::uint64_t seed) {
  Random random(seed);
  Head<double> head = random_head(d, {4, 2, 1, false, false, false}, contract, seed);
  const double a = round_to(contract.input, random.uniform(1, 2)),
               b = round_to(contract.input, random.uniform(1, 2));
  const double x = round_to(contract.input, random.uniform(1, 2)),
               y = round_to(contract.input, random.uniform(1, 2));
  for (Index t = 0; t < 4; ++t) {
    head.k(t, 0) = a, head.k(t, 1) = b;
    head.q(t, 0) = b, head.q(t, 1) = -a;
    head.v(t, 0) = t == 0 ? x : t == 1 ? y : t == 2 ? -x : -y;
  }
  head.decay = 1;
  return head;
}

struct Count {
  int cases = 0, decided = 0, beyond_first_order = 0;
  Count& operator+=(const Count& more) {
    cases += more.cases, decided += more.decided, beyond_first_order += more.beyond_first_order;
    return *this;
  }
};

template <class Draw>
Count compare(const Subject& s, const Contract& contract, std::uint64_t seeds, Draw&& draw) {
  const Operator& op = *find_operator(s.name, s.variant);
  Count count;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Head<double> head = draw(op.declaration(), seed);
    const Evaluation how{s.form, 2, s.algebra};
    const ErrorModel model = error_model(op, head, how, contract),
                     first = first_order_model(op, head, how, contract);
    ++count.cases;
    if (model.undecided) continue;
    ++count.decided;
    const Evaluator<Rational>& exact = op;
    Head<Rational> same;
    {
      const auto convert = [](const Matrix<double>& x) {
        Matrix<Rational> result(x.rows(), x.cols());
        for (Index i = 0; i < x.size(); ++i) result.data()[i] = rational_from(x.data()[i]);
        return result;
      };
      same.q = convert(head.q), same.k = convert(head.k), same.v = convert(head.v);
      same.level_scales = convert(head.level_scales);
      for (const double x : head.alpha) same.alpha.push_back(rational_from(x));
      for (const double x : head.beta) same.beta.push_back(rational_from(x));
      same.decay = rational_from(head.decay), same.ridge = rational_from(head.ridge);
    }
    const Matrix<Rational> truth = exact.evaluate(same).o;
    const Matrix<double> got = run_kernel(op, head, how, contract);
    for (Index i = 0; i < got.size(); ++i) {
      const double error = std::abs(nearest_double(rational_from(got.data()[i]) - truth.data()[i]));
      EXPECT_LE(error, model.deterministic.data()[i])
          << s << " seed " << seed << " entry " << i << " " << to_text(contract);
      count.beyond_first_order += error > first.deterministic.data()[i];
    }
  }
  return count;
}

class Remainder : public testing::TestWithParam<Subject> {};

TEST_P(Remainder, CoversStatesThatAreAnnihilatedAndSumsThatCancel) {
  Count count;
  for (const char* text : {"input=bf16 product=bf16 intermediate=bf16 state=bf16 output=fp32", "input=fp32",
                           "input=bf16 product=bf16 accumulate=fp32 intermediate=tf32 state=tf32 output=bf16",
                           "input=fp32 product=tf32 intermediate=tf32 state=bf16 output=fp32"}) {
    const Contract contract = parse_contract(text);
    count += compare(GetParam(), contract, 100, [&](const Declaration& d, std::uint64_t seed) {
      return wild_head(d, contract, -8, 8, seed);
    });
  }
  EXPECT_GT(2 * count.decided, count.cases);
}

TEST_P(Remainder, CoversUnderflow) {
  Count count;
  for (const char* text : {"input=fp32", "input=fp16 product=fp16 intermediate=fp16 state=fp16 output=fp16",
                           "input=fp32 product=tf32 output=fp32"}) {
    const Contract contract = parse_contract(text);
    const int low = contract.input == fp16 ? -14 : -70, high = contract.input == fp16 ? -4 : -30;
    count += compare(GetParam(), contract, 100, [&](const Declaration& d, std::uint64_t seed) {
      return wild_head(d, contract, low, high, seed);
    });
  }
  EXPECT_GT(2 * count.decided, count.cases);
  EXPECT_GT(count.beyond_first_order, 0) << "no case underflows: the test shows nothing";
}

TEST(Remainder, OfTwoFactorsThatCancelIsMoreThanTheFirstOrder) {
  const Contract contract =
      parse_contract("input=bf16 product=bf16 intermediate=bf16 state=bf16 output=fp32");
  const Count count =
      compare({"hla2", "unmasked", Form::chunk}, contract, 200,
              [&](const Declaration& d, std::uint64_t seed) { return cancelling_head(d, contract, seed); });
  EXPECT_GT(count.decided, 100);
  EXPECT_GT(count.beyond_first_order, 0);
}

std::vector<Subject> subjects() {
  std::vector<Subject> list;
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    if (!d.exact) continue;  // softmax: no rational value; its bound is tested in tests/operators
    for (const Form form : {Form::chunk, Form::stream, Form::scan})
      for (int algebra = 0; algebra < static_cast<int>(d.algebras.size()); ++algebra)
        if (std::find(d.forms.begin(), d.forms.end(), form) != d.forms.end()) {
          const bool running = (d.name.starts_with("hla") || d.name == "ahla") && form != Form::chunk;
          if (!running) list.push_back({d.name.c_str(), d.variant.c_str(), form, algebra});
        }
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, Remainder, testing::ValuesIn(subjects()), [](const auto& info) {
  const Subject& s = info.param;
  return std::string(s.name) + "_" + s.variant + "_" + std::string(form_name(s.form)) + "_" +
         std::to_string(s.algebra);
});

}  // namespace
}  // namespace attest
