// The masked sum of the certified oracle (reference/forms/certified.hpp) on a GPU, in double-double:
//   out_t = sum_{s <= t} w_ts (q_t . k_s) v_s,  every entry as high + low with the sum of the absolute values beside it.
// A block owns kRows rows and a slice of columns and walks the tiles of kTokens tokens from the diagonal back to the
// first. Sums are compensated: product exact by fma, sum exact by two_sum, the errors summed plainly. The proof of the
// radius is gpu_checks/oracle/radius.md. w_ts = left(t) between(tile) right(s): products of gates, never quotients.
#pragma once
#include <cstdint>

namespace attest::gpu_oracle {

inline constexpr int kRows = 32, kTokens = 64, kDepth = 16, kColumns = 128, kThreads = 256;
inline constexpr int kSlice = 16;  // tokens of a slice of values: the inner length of an output sum

// A table in device memory, (tokens, columns); low and magnitude null where the entries are plain doubles.
struct Operand {
  const double *high = nullptr, *low = nullptr, *magnitude = nullptr;
  int columns = 0;
};

struct Pair {
  double high, low;
};

struct Sum {
  Operand q, k, v;
  int64_t tokens = 0, first_row = 0, last_row = 0;
  // One of: powers of a decay by distance (tokens); or gates (tokens) with, for every token s, the product of the gates
  // after s in its tile, and for every tile the product of its gates.
  const Pair *powers = nullptr, *gates = nullptr, *right = nullptr, *tiles = nullptr;
  const double* level_scales = nullptr;  // (tokens, levels)
  int levels = 0;
  double score_inflation = 1, sum_inflation = 1, weight_inflation = 1, floor = 0;
  double *out_high = nullptr, *out_low = nullptr,
         *out_magnitude = nullptr;  // (last_row - first_row, v.columns)
};

// Enqueues the sum on the stream; returns the CUDA error code.
int launch(const Sum& sum, void* stream);

}  // namespace attest::gpu_oracle
