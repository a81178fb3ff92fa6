#include <cuda_runtime.h>

#include "gpu_checks/oracle/masked_linear.cuh"

namespace attest::gpu_oracle {
namespace {

constexpr int kSide = 16;                       // threads in a row and in a column of the block
constexpr int kRowsEach = kRows / kSide;        // rows of a thread: y, y + 16
constexpr int kScoresEach = kTokens / kSide;    // scores of a row of a thread
constexpr int kColumnsEach = kColumns / kSide;  // output columns of a thread
constexpr int kGroup = 4;                       // of them summed at a time

// Intrinsics throughout: the compiler must not contract a product and a sum.
__device__ Pair two_sum(double a, double b) {
  const double s = __dadd_rn(a, b), z = __dsub_rn(s, a);
  return {s, __dadd_rn(__dsub_rn(a, __dsub_rn(s, z)), __dsub_rn(b, z))};
}

// Lemma 2 of tests/forms/certified.md, in its fused form.
__device__ Pair product(Pair a, Pair b) {
  const double p = __dmul_rn(a.high, b.high), e = __fma_rn(a.high, b.high, -p);
  const double tail = __dadd_rn(e, __fma_rn(a.high, b.low, __dmul_rn(a.low, b.high)));
  const double s = __dadd_rn(p, tail);
  return {s, __dsub_rn(tail, __dsub_rn(s, p))};
}

// A compensated sum of products and the sum of their absolute values.
struct Accumulator {
  double sum, rest, magnitude;
  template <bool LeftPair, bool RightPair>
  __device__ void add(double x, double x_low, double x_size, double y, double y_low, double y_size) {
    const double p = __dmul_rn(x, y), e = __fma_rn(x, y, -p);
    const Pair s = two_sum(sum, p);
    sum = s.high;
    rest = __dadd_rn(rest, __dadd_rn(s.low, e));
    if constexpr (LeftPair) rest = __fma_rn(x_low, y, rest);
    if constexpr (RightPair) rest = __fma_rn(x, y_low, rest);
    magnitude = __fma_rn(x_size, y_size, magnitude);
  }
};

template <int Rows, int Columns>
struct Shared {
  double high[Rows][Columns], low[Rows][Columns], magnitude[Rows][Columns];
};

// One slice of a table into shared memory: rows first .. + Rows of columns column .. + Columns, zero outside. Transposed:
// the tile's rows are the table's columns.
template <bool Transposed, bool IsPair, int Rows, int Columns>
__device__ void fetch(const Operand& from, int64_t first, int64_t last, int column,
                      Shared<Rows, Columns>& to) {
  for (int i = threadIdx.x; i < Rows * Columns; i += kThreads) {
    const int r = Transposed ? i % Rows : i / Columns, c = Transposed ? i / Rows : i % Columns;
    // neighbouring threads read neighbouring columns of the table
    const int64_t row = first + (Transposed ? c : r);
    const int at = column + (Transposed ? r : c);
    const bool inside = row < last && at < from.columns;
    const int64_t index = row * from.columns + at;
    const double x = inside ? from.high[index] : 0;
    to.high[r][c] = x;
    to.low[r][c] = IsPair && inside ? from.low[index] : 0;
    to.magnitude[r][c] = IsPair ? (inside ? from.magnitude[index] : 0) : fabs(x);
  }
}

struct Buffers {
  Shared<kRows, kTokens> scores;
  union {
    struct {
      Shared<kDepth, kRows> q;
      Shared<kDepth, kTokens> k;
    } operands;
    Shared<kSlice, kColumns> values;
  };
  Pair left[kRows];  // product of the gates of the diagonal tile up to the row
};

__device__ int level_of(int64_t t, int64_t s) {
  return t == s ? 0 : 64 - __clzll(static_cast<long long>(t ^ s));
}

// The weight of the pair (t, s); `between` is the product of the gates of the tiles between theirs.
__device__ Pair weight(const Sum& sum, const Buffers& shared, int64_t t, int64_t s, int row, bool diagonal,
                       Pair between) {
  if (sum.powers) return sum.powers[t - s];
  if (!diagonal) return product(shared.left[row], product(between, sum.right[s]));
  Pair w{1, 0};
  for (int64_t r = s + 1; r <= t; ++r) w = product(w, sum.gates[r]);
  return w;
}

template <bool QPair, bool KPair, bool VPair>
__global__ void __launch_bounds__(kThreads) masked_linear(const Sum sum) {
  extern __shared__ double raw[];
  Buffers& shared = *reinterpret_cast<Buffers*>(raw);
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const int64_t blocks = (sum.last_row - sum.first_row + kRows - 1) / kRows;
  const int64_t first = sum.first_row + (blocks - 1 - blockIdx.x) * kRows;  // the longest first
  const int64_t last = min(first + kRows, sum.last_row);
  const int column = blockIdx.y * kColumns;
  // The rows of a block may lie in two tiles (first_row is arbitrary): the diagonal begins in the first one's.
  const int64_t diagonal = first / kTokens * kTokens;
  if (sum.gates && threadIdx.x < kRows) {
    Pair w{1, 0};
    for (int64_t r = diagonal; r <= first + threadIdx.x && r < sum.tokens; ++r) w = product(w, sum.gates[r]);
    shared.left[threadIdx.x] = w;
  }
  Accumulator total[kRowsEach][kColumnsEach];
  for (auto& row : total)
    for (auto& entry : row) entry = {0, 0, 0};
  Pair between{1, 0};
  const int64_t end = (last - 1) / kTokens * kTokens;
  for (int64_t s0 = end; s0 >= 0; s0 -= kTokens) {
    const int64_t s_end = min(s0 + kTokens, last);
    // scores
    Accumulator score[kRowsEach][kScoresEach];
    for (auto& row : score)
      for (auto& entry : row) entry = {0, 0, 0};
    for (int depth = 0; depth < sum.q.columns; depth += kDepth) {
      __syncthreads();
      fetch<true, QPair>(sum.q, first, last, depth, shared.operands.q);
      fetch<true, KPair>(sum.k, s0, s_end, depth, shared.operands.k);
      __syncthreads();
#pragma unroll 4
      for (int d = 0; d < kDepth; ++d) {
        const auto& q = shared.operands.q;
        const auto& k = shared.operands.k;
#pragma unroll
        for (int i = 0; i < kRowsEach; ++i)
#pragma unroll
          for (int j = 0; j < kScoresEach; ++j) {
            const int r = y + kSide * i, c = x + kSide * j;
            score[i][j].template add<QPair, KPair>(q.high[d][r], QPair ? q.low[d][r] : 0, q.magnitude[d][r],
                                                   k.high[d][c], KPair ? k.low[d][c] : 0, k.magnitude[d][c]);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i)
#pragma unroll
      for (int j = 0; j < kScoresEach; ++j) {
        const int r = y + kSide * i, c = x + kSide * j;
        const int64_t t = first + r, s = s0 + c;
        Pair value = two_sum(score[i][j].sum, score[i][j].rest);
        double magnitude = __fma_rn(score[i][j].magnitude, sum.score_inflation, sum.floor);
        const auto weigh = [&](Pair w) {
          value = product(value, w);
          const double size = __fma_rn(fabs(w.high), sum.weight_inflation, sum.floor);
          magnitude = __fma_rn(__dmul_rn(magnitude, size), sum.weight_inflation, sum.floor);
        };
        if (t < last && s <= t) {
          if (sum.powers || sum.gates) weigh(weight(sum, shared, t, s, r, s0 >= diagonal, between));
          if (sum.level_scales) weigh({sum.level_scales[t * sum.levels + level_of(t, s)], 0});
        } else {
          value = {0, 0}, magnitude = 0;
        }
        shared.scores.high[r][c] = value.high, shared.scores.low[r][c] = value.low,
        shared.scores.magnitude[r][c] = magnitude;
      }
    if (sum.gates && s0 < diagonal) between = product(between, sum.tiles[s0 / kTokens]);
    // out += scores V, slice by slice of tokens
    for (int slice = 0; slice < kTokens && s0 + slice < last; slice += kSlice) {
      __syncthreads();
      fetch<false, VPair>(sum.v, s0 + slice, s_end, column, shared.values);
      __syncthreads();
#pragma unroll
      for (int group = 0; group < kColumnsEach; group += kGroup) {
        Accumulator local[kRowsEach][kGroup];
        for (auto& row : local)
          for (auto& entry : row) entry = {0, 0, 0};
#pragma unroll 4
        for (int s = 0; s < kSlice; ++s)
#pragma unroll
          for (int i = 0; i < kRowsEach; ++i)
#pragma unroll
            for (int j = 0; j < kGroup; ++j) {
              const int r = y + kSide * i, c = x + kSide * (group + j);
              local[i][j].template add<true, VPair>(
                  shared.scores.high[r][slice + s], shared.scores.low[r][slice + s],
                  shared.scores.magnitude[r][slice + s], shared.values.high[s][c],
                  VPair ? shared.values.low[s][c] : 0, shared.values.magnitude[s][c]);
            }
#pragma unroll
        for (int i = 0; i < kRowsEach; ++i)
#pragma unroll
          for (int j = 0; j < kGroup; ++j) {
            Accumulator& all = total[i][group + j];
            const Pair s = two_sum(all.sum, local[i][j].sum);
            all.sum = s.high;
            all.rest = __dadd_rn(all.rest, __dadd_rn(s.low, local[i][j].rest));
            all.magnitude = __dadd_rn(all.magnitude, local[i][j].magnitude);
          }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i)
#pragma unroll
    for (int j = 0; j < kColumnsEach; ++j) {
      const int64_t t = first + y + kSide * i;
      const int c = column + x + kSide * j;
      if (t >= last || c >= sum.v.columns) continue;
      const Pair value = two_sum(total[i][j].sum, total[i][j].rest);
      const int64_t at = (t - sum.first_row) * sum.v.columns + c;
      sum.out_high[at] = value.high, sum.out_low[at] = value.low;
      sum.out_magnitude[at] = __fma_rn(total[i][j].magnitude, sum.sum_inflation, sum.floor);
    }
}

template <bool QPair, bool KPair, bool VPair>
int start(const Sum& sum, cudaStream_t stream) {
  const auto kernel = &masked_linear<QPair, KPair, VPair>;
  const cudaError_t room = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(sizeof(Buffers)));
  if (room != cudaSuccess) return room;
  const dim3 grid(static_cast<unsigned>((sum.last_row - sum.first_row + kRows - 1) / kRows),
                  static_cast<unsigned>((sum.v.columns + kColumns - 1) / kColumns));
  kernel<<<grid, kThreads, sizeof(Buffers), stream>>>(sum);
  return cudaGetLastError();
}

}  // namespace

int launch(const Sum& sum, void* stream) {
  if (sum.last_row == sum.first_row || sum.v.columns == 0) return cudaSuccess;
  const auto s = static_cast<cudaStream_t>(stream);
  const bool q = sum.q.low, k = sum.k.low, v = sum.v.low;
  if (q && !k) return v ? start<true, false, true>(sum, s) : start<true, false, false>(sum, s);
  if (q) return v ? start<true, true, true>(sum, s) : start<true, true, false>(sum, s);
  if (k) return v ? start<false, true, true>(sum, s) : start<false, true, false>(sum, s);
  return v ? start<false, false, true>(sum, s) : start<false, false, false>(sum, s);
}

}  // namespace attest::gpu_oracle
