#include "reference/forms/certified_delta_error.hpp"

#include <algorithm>

#include "reference/forms/certified_error.hpp"
#include "reference/numeric/double_double.hpp"

namespace attest {

double norm_of(const double* x, Index count) {
  double squares = 0;
  for (Index i = 0; i < count; ++i) squares += x[i] * x[i];
  return norm_from(squares, norm_inflation(count));
}

namespace {

// At least |1 - b |k|^2| and 1: the norm of I - b k k^T.
double reflection(const double* k, double b, Index key_dim) {
  double squares = 0;
  for (Index i = 0; i < key_dim; ++i) squares += k[i] * k[i];
  const double size = std::abs(b) * (squares * static_cast<double>(key_dim + 8) + 0x1p-1000) + 2;
  return std::max(1.0, std::abs(1 - b * squares) + size * 0x1p-52);
}

// What a token is to every column: upper bounds of sizes.
struct Token {
  const double *q, *k;
  double alpha = 1, alpha_error = 0, beta, rho, key;

  Token(const CertifiedDelta& input, Index t, bool plain)
      : q(input.q + t * input.key_dim), k(input.k + t * input.key_dim), beta(std::abs(input.beta[t])) {
    if (const auto at = static_cast<std::size_t>(t); !input.gates.high.empty()) {
      alpha_error = input.gates.error[at] + (plain ? std::abs(input.gates.low[at]) : 0);
      alpha = std::abs(input.gates.high[at]) + std::abs(input.gates.low[at]) + alpha_error;
    }
    rho = reflection(k, input.beta[t], input.key_dim), key = norm_of(k, input.key_dim);
  }
};

bool is_plain(const DeltaUnits& units) { return units.local > kU2 * 64; }

}  // namespace

DeltaUnits delta_units(DeltaPrecision precision, Index key_dim, Index parts) {
  const auto depth = static_cast<double>(key_dim);
  if (precision == DeltaPrecision::plain)
    return {(depth / 4 + 8) * kUnitRoundoff * kUp, 6 * kUnitRoundoff, kUnitRoundoff};
  const double joined = static_cast<double>(parts), part = depth / joined + 2;
  const double dot = 5 * (part + 4) * (part + 4) + (joined + 1) * (4 * joined + 4 * part + 12);
  return {dot * kU2 * kUp, 32 * kU2, 4 * kU2};
}

std::vector<DeltaFactors> delta_factors(const CertifiedDelta& input, const DeltaUnits& units) {
  std::vector<DeltaFactors> all;
  all.reserve(static_cast<std::size_t>(input.tokens));
  for (Index t = 0; t < input.tokens; ++t) {
    const Token token(input, t, is_plain(units));
    const double along = product_up(token.beta, token.key);
    const double rounding =
        product_up(token.alpha, product_up(along, token.key) * (units.dot + units.local) + units.local);
    all.push_back({.growth = token.alpha * token.rho * kDeltaUp,
                   .state = (rounding + product_up(token.alpha_error, token.rho)) * kDeltaUp,
                   .value = product_up(units.local, along) * kDeltaUp,
                   .floor = 0x1p-1000 * (1 + token.key * (1 + token.beta) * (1 + token.alpha)),
                   .query = norm_of(token.q, input.key_dim) * kDeltaUp,
                   .fade = token.alpha * kDeltaUp,
                   .lost = (token.alpha_error + product_up(units.local, token.alpha)) * kDeltaUp});
  }
  return all;
}

}  // namespace attest
