// The certified oracle at production sizes: masked sums of SPEC's linear and higher-order operators in
// double-double.
//
//   Lin(Q, K, V)_t = sum over s <= t of w_ts (q_t . k_s) v_s,    w_ts = gamma^(t-s) or prod_{r=s+1..t}
//   alpha_r, times
//                                                                lambda_t^level(t,s), level = bit_length(t
//                                                                xor s)
//   hla2 = Lin_{g^2}(Q, A, V)      ahla = Lin_g(Q, K, Lin_g(Q, K, V))      hla3 = Lin_{g^3}(Q, A, Lin_g(Q, K,
//   V)) hla2 unmasked = Lin_g(A, Q, V)      hla3 unmasked = Lin_g(Lin_g(A, Q, Q), K, V)          with A =
//   Lin_g(Q, K, K)
//
// Direct sums only, O(n^2 (d + dv)), one head, no state, no chunk algebra, no division by a gate. Every value
// comes with a radius, proved in tests/forms/certified.md. Where an intermediate overflows the radius is
// infinite: not certified.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/forms/certified_kernels.hpp"

namespace attest {

// The exact number x, given as high + low with |x - (high + low)| <= error |x| + 2^-1074.
struct CertifiedScalar {
  double high = 1, low = 0, error = 0;
};

// |exact - (high + low)| <= error * magnitude in every entry, and |exact| <= magnitude. Row-major (rows,
// columns).
struct CertifiedTable {
  Index rows = 0, columns = 0;
  std::vector<double> high, low, magnitude;
  double error = 0;
};

// A table that is read: plain doubles (exact, low and magnitude null) or a CertifiedTable. (tokens, columns)
struct CertifiedOperand {
  const double* high = nullptr;
  const double* low = nullptr;
  const double* magnitude = nullptr;
  Index columns = 0;
  double error = 0;

  CertifiedOperand(const double* values, Index values_columns) : high(values), columns(values_columns) {}
  CertifiedOperand(const CertifiedTable& table)
      : high(table.high.data()),
        low(table.low.data()),
        magnitude(table.magnitude.data()),
        columns(table.columns),
        error(table.error) {}
};

// The factors w_ts: a decay or gates (not both), and level scales. All in [0, 1] but the level scales.
struct CertifiedWeights {
  CertifiedScalar decay;                 // gamma; 1 = none
  const double* gate_high = nullptr;     // (tokens) alpha_t = high + low as in CertifiedScalar; null = 1
  const double* gate_low = nullptr;      // (tokens) null = 0
  double gate_error = 0;                 // relative, every token
  const double* level_scales = nullptr;  // (tokens, levels) exact; null = 1
  Index levels = 0;                      // at least bit_length(tokens - 1) + 1
};

struct CertifiedDelta;
struct CertifiedRows;

// Another machine for masked sums and delta rules: the same by a scheme of its own, with its own proof and error.
class CertifiedEngine {
 public:
  virtual ~CertifiedEngine() = default;
  // Rows [first_row, first_row + output.rows) into `output`, whose vectors have their size, and its error. False when it
  // cannot (no memory, too wide): the caller then computes them itself.
  virtual bool masked_linear(const CertifiedOperand& q, const CertifiedOperand& k, const CertifiedOperand& v,
                             Index tokens, const CertifiedWeights& weights, Index first_row,
                             CertifiedTable& output) const = 0;
  // certified_delta() in double-double without magnitudes, into rows whose vectors have their size.
  virtual bool delta_rule(const CertifiedDelta&, CertifiedRows&) const { return false; }
};

struct CertifiedOptions {
  Index first_row = 0, last_row = -1;         // half-open rows of the result; -1 = tokens
  int threads = 1;                            // over rows; the result does not depend on it
  const CertifiedKernels* kernels = nullptr;  // null = the fastest that this processor runs
  const CertifiedEngine* engine = nullptr;    // null = this processor
};

struct CertifiedInput {
  Index tokens = 0, key_dim = 0, value_dim = 0;
  const double *q = nullptr, *k = nullptr;  // (tokens, key_dim)
  const double* v = nullptr;                // (tokens, value_dim)
  CertifiedWeights weights;                 // hla2, ahla, hla3 take the decay alone
  CertifiedScalar scale;                    // multiplies every q
};

// Row-major (rows, value_dim): |exact - (high + low)| <= radius; the sum of the absolute values of the terms
// is at most magnitude, which exceeds it by less than a part in 2^32 (plus 2^-960 where factors are below
// one).
struct CertifiedRows {
  Index rows = 0, columns = 0;
  std::vector<double> high, low, radius, magnitude;
  bool by_engine = false;  // an engine was asked first
};

CertifiedTable certified_masked_linear(const CertifiedOperand& q, const CertifiedOperand& k,
                                       const CertifiedOperand& v, Index tokens,
                                       const CertifiedWeights& weights, const CertifiedOptions& options = {});

// linear, retention, mamba2, log_linear and log_linear_mamba2: the weights tell them apart.
CertifiedRows certified_linear(const CertifiedInput& input, const CertifiedOptions& options = {});
CertifiedRows certified_hla2(const CertifiedInput& input, const CertifiedOptions& options = {});
CertifiedRows certified_ahla(const CertifiedInput& input, const CertifiedOptions& options = {});
CertifiedRows certified_hla3(const CertifiedInput& input, const CertifiedOptions& options = {});
CertifiedRows certified_hla2_unmasked(const CertifiedInput& input, const CertifiedOptions& options = {});
CertifiedRows certified_hla3_unmasked(const CertifiedInput& input, const CertifiedOptions& options = {});

}  // namespace attest
