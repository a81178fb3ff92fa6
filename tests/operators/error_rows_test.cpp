// The bound of chosen rows against the rows of the bound of all. The control: rows that are off by one are told apart.
#include "reference/operators/common/error_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/metrics/bound.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest {
namespace {

using namespace testing_errors;

// How far the chosen rows lie from those of the whole, relative to the largest entry.
double apart(const Matrix<double>& whole, const Matrix<double>& chosen, const std::vector<Index>& rows) {
  double most = 0, size = 1e-300;
  for (Index i = 0; i < whole.size(); ++i) size = std::max(size, std::abs(whole.data()[i]));
  EXPECT_EQ(chosen.rows(), static_cast<Index>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (Index c = 0; c < whole.cols(); ++c)
      most = std::max(most, std::abs(whole(rows[i], c) - chosen(static_cast<Index>(i), c)));
  return most / size;
}

bool has(const Declaration& declaration, Form form) {
  return std::find(declaration.forms.begin(), declaration.forms.end(), form) != declaration.forms.end();
}

TEST(ErrorRows, BoundOfChosenRowsIsThatOfAllRowsForEveryOperatorAndForm) {
  const std::vector<Index> rows{0, 3, 4, 9, 12};
  for (const char* text : {"input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 state=tf32 output=bf16",
                           "input=fp32 output=fp32"})
    for (const Operator* op : all_operators()) {
      const Contract contract = parse_contract(text);
      const Declaration& declaration = op->declaration();
      Head<double> head = random_head(declaration, {13, 3, 2, true, true}, contract, 5);
      if (!declaration.decayed_scan) head.decay = 1;
      const int algebras = std::max(1, static_cast<int>(declaration.algebras.size()));
      for (const Form form : {Form::chunk, Form::stream, Form::scan, Form::direct})
        for (int algebra = 0; algebra < algebras; ++algebra) {
          if (!has(declaration, form)) continue;
          SCOPED_TRACE(declaration.name + " " + declaration.variant + " " + std::string(form_name(form)));
          const Evaluation how{form, 4, algebra};
          const ErrorModel whole = error_model(*op, head, how, contract),
                           chosen = error_model(*op, head, how, contract, {}, &rows);
          EXPECT_EQ(whole.undecided, chosen.undecided) << whole.reason << chosen.reason;
          if (whole.undecided) continue;
          EXPECT_LE(apart(whole.deterministic, chosen.deterministic, rows), 1e-13);
          EXPECT_LE(apart(whole.accumulation, chosen.accumulation, rows), 1e-13);
          EXPECT_LE(apart(whole.variance, chosen.variance, rows), 1e-13);
          EXPECT_EQ(whole.stages, chosen.stages);
          EXPECT_GT(apart(whole.deterministic, chosen.deterministic, {1, 4, 5, 10, 11}), 1e-6);
        }
    }
}

TEST(ErrorRows, PicksRowsOfAPartOfTheTokens) {
  const std::vector<Index> chosen{1, 4, 6};
  const RowSet rows(8, &chosen);
  Array part(3, 1);  // of tokens 4, 5, 6
  part << 40, 50, 60;
  const Array picked = rows.pick(part, 4);
  ASSERT_EQ(picked.rows(), 2);
  EXPECT_EQ(picked(0, 0), 40);
  EXPECT_EQ(picked(1, 0), 60);
  EXPECT_EQ(rows.before(4), 1);
  EXPECT_EQ(RowSet(8).pick(part, 4).rows(), 3);
}

}  // namespace
}  // namespace attest
