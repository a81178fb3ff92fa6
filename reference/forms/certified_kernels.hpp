// Inner loops of the certified oracle, one table of functions per instruction set, chosen at run time.
//
// A Tile is a row-major block of double-doubles with their magnitudes: value = high + low, |value| <=
// magnitude. Row strides and column counts are multiples of kTileAlign, so that no loop has a remainder.
#pragma once

#include <cstdint>

namespace attest {

using Index = std::int64_t;

inline constexpr Index kTileAlign = 16;

// low == nullptr: the entries are plain doubles, magnitude their absolute values.
struct ConstTile {
  const double *high, *low, *magnitude;
  Index stride;
};

struct Tile {
  double *high, *low, *magnitude;
  Index stride;
};

// One token of a delta rule on the columns of one state, in place (certified_delta_step.hpp): plain doubles where low is
// null, double-doubles otherwise.
struct DeltaStep {
  const double *q, *k;  // (key_dim)
  const double* v;      // (columns); null: 0
  double beta, gate_high, gate_low;
  Index key_dim, columns;
  double *high, *low;                // (key_dim, columns)
  double *o_high, *o_low, *squares;  // (columns) q . s and the sum of the squares of s.high, after the step
};

struct CertifiedKernels {
  const char* name;

  // out(r, c) (+)= sum over k < depth of left(r, k) * right(k, c), for r < rows and c < columns, as
  // compensated sums: high + low is the running value (not normalised), magnitude gathers |left| |right|.
  // Unless accumulate, out starts at zero.
  void (*multiply)(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows, Index columns,
                   Index depth, bool accumulate);

  // One row in place: normalise (high, low), then magnitude <- magnitude * inflate + floor.
  void (*normalise)(double* high, double* low, double* magnitude, Index count, double inflate, double floor);

  // One normalised row in place: (high, low) *= (w_high, w_low), magnitude <- (magnitude * w_magnitude) *
  // inflate + floor with w_magnitude = |w_high| inflate + floor.
  void (*weigh)(double* high, double* low, double* magnitude, const double* w_high, const double* w_low,
                Index count, double inflate, double floor);

  // One row of weights in place: (high, low) *= (factor_high, factor_low).
  void (*advance)(double* high, double* low, Index count, double factor_high, double factor_low);

  void (*delta_step)(const DeltaStep& step);
  // (high, low) += (more_high, more_low), count a multiple of kTileAlign; low null as in DeltaStep.
  void (*delta_add)(double* high, double* low, double* more_high, double* more_low, Index count);
};

// The kernels that this processor runs, fastest first; the last entry runs everywhere. Ends with nullptr.
const CertifiedKernels* const* certified_kernels();

const CertifiedKernels& certified_kernels_baseline();
const CertifiedKernels* certified_kernels_avx2();    // nullptr where not compiled for x86-64
const CertifiedKernels* certified_kernels_avx512();  // nullptr where not compiled for x86-64

}  // namespace attest
