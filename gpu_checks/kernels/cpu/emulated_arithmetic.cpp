#include "gpu_checks/kernels/cpu/emulated_arithmetic.hpp"

#include <mpfr.h>

#include <cmath>
#include <stdexcept>

namespace attest {

namespace {

template <class S, const Format& f>
S round_entry(S x) {
  if constexpr (std::is_same_v<S, float> && f.precision < 24)
    return round_float<f>(x);
  else
    return static_cast<S>(round_to(f, x));
}

float truncated_sum(float sum, float a, float b) { return add_toward_zero(sum, static_cast<double>(a) * b); }
double truncated_sum(double, double, double) { throw std::logic_error("no truncating fp64 accumulator"); }

}  // namespace

bool emulated_in_double(const Contract& c) {
  for (const Format& format :
       {c.input, c.product, c.accumulate, c.intermediate, c.state, c.gate_sum, c.output})
    if (format == fp64) return true;
  return false;
}

double exponential(const Format& format, double x) {
  mpfr_t value;
  mpfr_init2(value, format.precision + 32);  // far enough that the second rounding never decides
  mpfr_set_d(value, x, MPFR_RNDN);
  mpfr_exp(value, value, MPFR_RNDN);
  const double result = round_to(format, value);
  mpfr_clear(value);
  return result;
}

template <class S>
auto EmulatedArithmetic<S>::rounding_to(const Format& format) -> Round {
  if (format == fp64) return nullptr;
  if (format == fp32) return std::is_same_v<S, float> ? nullptr : &round_entry<S, fp32>;
  if (format == tf32) return &round_entry<S, tf32>;
  if (format == fp16) return &round_entry<S, fp16>;
  if (format == bf16) return &round_entry<S, bf16>;
  if (format == fp8_e4m3) return &round_entry<S, fp8_e4m3>;
  if (format == fp8_e5m2) return &round_entry<S, fp8_e5m2>;
  throw std::logic_error("no such format");
}

template <class S>
EmulatedArithmetic<S>::EmulatedArithmetic(const Contract& contract)
    : contract_(contract),
      product_(rounding_to(contract.product)),
      accumulate_(rounding_to(contract.accumulate)),
      intermediate_(rounding_to(contract.intermediate)),
      state_(rounding_to(contract.state)),
      output_(rounding_to(contract.output)),
      gate_sum_(rounding_to(contract.gate_sum)) {
  if (contract.truncates && (contract.accumulate != fp32 || !std::is_same_v<S, float>))
    throw std::logic_error("only an fp32 accumulator can truncate");
}

template <class S>
Matrix<S> EmulatedArithmetic<S>::rounded(Round round, Matrix<S> tensor) {
  if (round)
    for (Index i = 0; i < tensor.size(); ++i) tensor.data()[i] = round(tensor.data()[i]);
  return tensor;
}

template <class S>
Matrix<S> EmulatedArithmetic<S>::product(const Matrix<S>& left, const Matrix<S>& right) {
  if (!product_ && !contract_.truncates && !accumulate_) return attest::product(left, right);
  const Matrix<S> a = rounded(product_, left), b = rounded(product_, right);
  if (!contract_.truncates && !accumulate_) return attest::product(a, b);
  Matrix<S> result(a.rows(), b.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index k = 0; k < a.cols(); ++k)
      for (Index j = 0; j < b.cols(); ++j)
        result(i, j) = contract_.truncates ? truncated_sum(result(i, j), a(i, k), b(k, j))
                                           : accumulate_(result(i, j) + accumulate_(a(i, k) * b(k, j)));
  return result;
}

template <class S>
Matrix<S> EmulatedArithmetic<S>::inverse(std::string_view name, const Matrix<S>& n) {
  if (contract_.inverse == InverseMethod::substitution) return Arithmetic<S>::inverse(name, n);
  const Index size = n.rows();
  Matrix<S> power = n, result = identity_matrix<S>(size);  // L^(2^i), the product so far
  for (Index i = 0; i < size; ++i) power(i, i) = S(0);
  result = result - power;
  for (Index reached = 2; reached < size; reached *= 2) {
    power = operand(name, product(power, power));
    result = operand(name, Matrix<S>(result + product(result, power)));
  }
  return result;
}

template <class S>
Matrix<S> EmulatedArithmetic<S>::decay(const Gates<S>& gates, Index first, Index last) {
  if (!gates.log_gate) return Arithmetic<S>::decay(gates, first, last);
  const Index size = last - first + 1;
  const Index start = contract_.gate_scope == GateScope::global ? 0 : first;
  std::vector<S> sum(static_cast<std::size_t>(size), S(0));
  std::vector<Index> resets(static_cast<std::size_t>(size),
                            0);  // gates of -infinity so far: nothing passes them
  S total(0);
  Index reset = 0;
  for (Index t = start; t < last; ++t) {
    const S g = (*gates.log_gate)[static_cast<std::size_t>(t)];
    if (std::isinf(g))
      ++reset;
    else
      total = gate_sum_ ? gate_sum_(total + g) : total + g;
    if (t + 1 >= first) {
      const auto at = static_cast<std::size_t>(t + 1 - first);
      sum[at] = total, resets[at] = reset;
    }
  }
  Matrix<S> weights = zeros<S>(size, size);
  for (Index t = 0; t < size; ++t) {
    for (Index s = 0; s < t; ++s) {
      const auto from = static_cast<std::size_t>(s), to = static_cast<std::size_t>(t);
      if (resets[from] != resets[to]) continue;
      const S difference = gate_sum_ ? gate_sum_(sum[to] - sum[from]) : sum[to] - sum[from];
      weights(t, s) = static_cast<S>(exponential(contract_.gate_sum, difference));
    }
    weights(t, t) = S(1);
  }
  return weights;
}

template class EmulatedArithmetic<float>;
template class EmulatedArithmetic<double>;

}  // namespace attest
