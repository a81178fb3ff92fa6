// The certified oracle of the delta rules at production sizes: their recurrence, token by token, every value column s of
// the state on its own, in double or in double-double,
//   s_t = a_t (s_(t-1) - b_t k_t (k_t . s_(t-1))) + b_t v_t k_t,      o_t = scale q_t . s_t
// and with level scales one state for every level l, o_t = scale sum_l lambda_t^l q_t . s_t^(l) (SPEC section 6).
// The radius is a theorem for every input (tests/forms/certified_delta.md). The error e_t of a column in the l2 norm obeys
//   e_t <= |a_t| max(1, |1 - b_t |k_t|^2|) e_(t-1) + rounding of the token,
// so that it grows by the rounding alone where the keys are unit vectors. No error model, no chunk algebra.
#pragma once
#include "reference/forms/certified.hpp"

namespace attest {

// |alpha_t - (high + low)| <= error of every token. Empty: alpha = 1.
struct DeltaGates {
  std::vector<double> high, low, error;
};

struct CertifiedDelta {
  Index tokens = 0, key_dim = 0, value_dim = 0;
  const double *q = nullptr, *k = nullptr;  // (tokens, key_dim)
  const double* v = nullptr;                // (tokens, value_dim)
  const double* beta = nullptr;             // (tokens)
  DeltaGates gates;
  double scale = 1, scale_low = 0, scale_error = 0;  // |scale - (high + low)| <= error
  const double* level_scales = nullptr;  // (tokens, levels) exact; null: one state, which is never reset
  Index levels = 0;
  std::vector<const double*> initial;  // of every level a (key_dim, value_dim), null: zero; empty: all zero
  Index position = 0;                  // of the first token, with level scales
};

enum class DeltaPrecision { plain, pair };  // double, or double-double

struct DeltaOptions {
  DeltaPrecision precision = DeltaPrecision::pair;
  bool magnitude =
      true;         // the sums of the absolute values of the terms, else zeros; a third more work than plain
  int threads = 1;  // over columns; the result does not depend on it
  const CertifiedKernels* kernels = nullptr;  // null = the fastest that this processor runs
  const CertifiedEngine* engine = nullptr;    // null = this processor; always in double-double
};

// A radius is infinite where nothing is known. An engine is believed after the processor agrees on a block of columns (in
// double, and on the first tokens in double-double); std::runtime_error where it does not.
CertifiedRows certified_delta(const CertifiedDelta& input, const DeltaOptions& options = {});

}  // namespace attest
