// The unit roundoffs of a precision contract as the stages of a form meet them, and the sum of what stages
// cost. Rounding a value that its format already holds is exact and costs nothing, so a unit may be 0.
#pragma once
#include <Eigen/Dense>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/operators/common/error_model.hpp"
#include "reference/tensor/arithmetic.hpp"

namespace attest {

using Array = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline Array to_array(const Matrix<double>& m) {
  return Eigen::Map<const Array>(m.data(), m.rows(), m.cols());
}
inline Array rows_of(const Matrix<double>& m, Index first, Index count) {
  return Eigen::Map<const Array>(m.data() + first * m.cols(), count, m.cols());
}
inline Matrix<double> to_matrix(const Array& a) {
  Matrix<double> result(a.rows(), a.cols());
  Eigen::Map<Array>(result.data(), a.rows(), a.cols()) = a;
  return result;
}

// How single errors add up: by absolute values (the worst case) or by squares (the variance). Both are
// multiplicative, size(p, x y) = size(p, x) size(p, y), so one formula serves both.
enum class Norm { absolute, square };

inline Array size_of(Norm p, const Array& x) {
  return p == Norm::absolute ? Array(x.cwiseAbs()) : Array(x.cwiseAbs2());
}
inline double size_of(Norm p, double x) { return p == Norm::absolute ? std::abs(x) : x * x; }

struct Units {
  // scaled: every q has been multiplied by a scale, in `accumulate`.
  explicit Units(const Contract& contract, bool scaled = false);
  double operand = 0;        // a computed tensor that operand() stores and a product reads
  double carried_state = 0;  // the same for a state that carry() has rounded
  double carry = 0;          // a state at carry()
  double output = 0;
  double query = 0;  // a scaled query, before a product reads it
  double input = 0;  // an input that a product reads; that of scaled queries is charged to all inputs
  double step = 0;   // one elementwise operation in `accumulate`
  double sum = 0;    // one addition of a product's accumulator
  double eta = 0;    // underflow of one operation in `accumulate`
  Contract contract;
  // Of `intermediate` and `product` the one of smaller range: what an operand may overflow.
  const Format& operand_format() const {
    return contract.product.emax < contract.intermediate.emax ? contract.product : contract.intermediate;
  }
  double gamma(Index terms) const;  // K u / (1 - K u); infinite when K u >= 1
  double gamma_step(Index terms) const;
};

// Relative error of decay(): like Arithmetic::decay, (last-first+1, last-first+1), row and column 0 for the
// start.
Array gate_error(const Units& units, const Gates<double>& gates, Index first, Index last);
// Relative error of the gate of one token, as the stream and scan forms use it.
double single_gate_error(const Units& units, const Gates<double>& gates, Index t);

// Adds up the contributions of the stages to the outputs.
class ErrorSum {
 public:
  ErrorSum(const Units& units, Index tokens, Index columns);
  using Contribution = std::function<Array(Norm)>;  // (tokens, columns)
  // A stage rounded to nearest with unit roundoff `unit`; the contribution is for u = 1.
  void rounded(const std::string& label, double unit, const Contribution& contribution);
  void rounded(const std::string& label, double unit, const Array& absolute, const Array& square);
  void arithmetic(const Array& contribution);
  // Adds stages whose sensitivities are upper bounds: to D, and never to the statistical part.
  void absorb(const ErrorSum& bounded);
  void undecide(const std::string& reason);
  // Notes that a tensor is stored in `format`: undecided when it may overflow.
  void range(const std::string& label, const Format& format, const Array& tensor);
  void range(const std::string& label, const Format& format, double largest);
  void gates(const Array& relative_error);
  ErrorModel finish() const;
  const Units& units() const { return units_; }

 private:
  const Units& units_;
  Array rounded_, arithmetic_, variance_;
  std::map<std::string, Array> shares_;
  Index stages_ = 0;
  std::string undecided_;
};

}  // namespace attest
