// Near misses of an operator: what a kernel computes that has one of the usual faults (a decay shifted by a token, levels
// off by one, the strict mask, a state stored transposed ...), evaluated in double. A fault is a change of what the
// operator is given wherever it can be one: the error model of the contract then bounds the faulty kernel as well.
#pragma once
#include <functional>
#include <vector>

#include "reference/forms/operator.hpp"

namespace attest {

// One head as the operator gets it, and what a head no longer shows.
struct NearMissInput {
  const Operator& op;
  const Head<double>& head;
  double scale = 1;  // the factor that is in head.q
  const Declaration& declaration() const { return op.declaration(); }
  // What the factor is where no option names it.
  double default_scale() const;
};

struct NearMiss {
  const char* name;
  // Whether the fault changes anything on such a head. Where not, a kernel that has it computes the operator itself.
  std::function<bool(const NearMissInput&)> applies;
  std::function<void(Head<double>&, const NearMissInput&)> change = nullptr;
  std::function<Matrix<double>(const NearMissInput&)> compute =
      nullptr;  // where no change of the head says it
};

const std::vector<NearMiss>& near_misses();

// The output by the stream form, the only one that every operator and decay has.
Solution<double> by_stream(const Operator& op, const Head<double>& head);
// Numerator over denominator, by a column of ones. Not from an initial state.
Matrix<double> normalised(const Operator& op, Head<double> head);

// What a kernel takes a moment for that reads its numbers as those of the transpose, and what stands where it writes the
// transpose, both in the shape of the moment.
Matrix<double> read_transposed(const Matrix<double>& moment);
Matrix<double> written_transposed(const Matrix<double>& moment);

}  // namespace attest
