// The arithmetic of a precision contract on the CPU, for forms evaluated in float (double for contracts with fp64):
//   product   operands rounded to `product`, then s <- s + a b term by term, rounded to `accumulate` after every
//             operation (to nearest even, or toward zero after the addition where the contract truncates)
//   operand, carry, output   rounded to `intermediate`, `state`, `output`
//   decay     exp(G_t - G_s) from sums G of log-gates in `gate_sum`, from the start of the chunk or of the sequence;
//             without log-gates the products of the alphas or of gamma
//   inverse   by substitution, or (I - L)(I + L^2)(I + L^4) ... for `powers`, L = N - I
// exp is rounded correctly to `gate_sum` (MPFR: the same bits everywhere), so exp=1ulp holds.
#pragma once
#include "reference/tensor/arithmetic.hpp"
#include "reference/tensor/contract.hpp"

namespace attest {

template <class S>
class EmulatedArithmetic final : public Arithmetic<S> {
 public:
  explicit EmulatedArithmetic(const Contract& contract);

  Matrix<S> product(const Matrix<S>& a, const Matrix<S>& b) override;
  Matrix<S> operand(std::string_view, Matrix<S> tensor) override {
    return rounded(intermediate_, std::move(tensor));
  }
  Matrix<S> carry(std::string_view, Matrix<S> state) override { return rounded(state_, std::move(state)); }
  Matrix<S> output(Matrix<S> o) override { return rounded(output_, std::move(o)); }
  Matrix<S> inverse(std::string_view name, const Matrix<S>& n) override;
  Matrix<S> decay(const Gates<S>& gates, Index first, Index last) override;

 private:
  using Round = S (*)(S);  // null: S itself
  static Round rounding_to(const Format& format);
  static Matrix<S> rounded(Round round, Matrix<S> tensor);

  Contract contract_;
  Round product_, accumulate_, intermediate_, state_, output_, gate_sum_;
};

// Whether the contract needs double to be emulated.
bool emulated_in_double(const Contract& contract);

// exp(x) rounded to the format.
double exponential(const Format& format, double x);

}  // namespace attest
