// Shared by the kernels on Hopper's matrix units: the gates of a chunk, the copies of tiles, faded operands.
#pragma once
#include "gpu_checks/kernels/cuda/wgmma.cuh"

namespace attest::cuda {

constexpr int chunk = 64;

struct Gates {
  float sum[chunk];  // log2 of the product of the gates from the start of the chunk, zero gates left out
  int zeros[chunk];  // zero gates up to here
  float from_start[chunk];  // G(t, start)
  float to_end[chunk];      // G(end, t)
};

// Rows [0, size) of a tile; the rest is zero.
template <typename T, int columns, int threads>
__device__ inline void fetch_tile(uint32_t tile, const View& view, int64_t base, int64_t token, int size) {
  constexpr int pieces = columns / 8, rows = threads / pieces;
  static_assert(rows % 8 == 0);  // so that the swizzle of a thread's pieces is the same
  const int row = threadIdx.x / pieces, column = threadIdx.x % pieces * 8;
  if (is<Mutant::index_token_16_bits>) token = static_cast<uint16_t>(token);
  const T* from = static_cast<const T*>(view.data) + base + (token + row) * view.token + column;
  const int64_t step = rows * view.token;
  const uint32_t to = tile + tile_offset(row, column);
#pragma unroll
  for (int i = 0; i < chunk / rows; ++i, from += step)
    copy_async(to + i * rows * 128, from, row + i * rows < size || is<Mutant::tail_dead_rows>);
}

// The gates of a chunk out of two tokens' raw gates in each lane of a warp.
__device__ inline void prepare_gates(Gates& gates, const Gate& gate, const float (&raw)[2], int size) {
  const int lane = threadIdx.x & 31;
  float sum[2];
  int zeros[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool inside = 2 * lane + i < size || is<Mutant::tail_decay_full_chunk>;
    const float x = inside ? gate.log2_of(raw[i]) : 0.f;
    zeros[i] = isinf(x);
    sum[i] = zeros[i] ? 0.f : x;
  }
  float own = sum[0] + sum[1], before = own;
  int own_zeros = zeros[0] + zeros[1], zeros_before = own_zeros;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, before, step);
    const int other_zeros = __shfl_up_sync(~0u, zeros_before, step);
    if (lane >= step) before += other, zeros_before += other_zeros;
  }
  const float total = __shfl_sync(~0u, before, 31);
  const int total_zeros = __shfl_sync(~0u, zeros_before, 31);
  const float earlier = __shfl_up_sync(~0u, before, 1);
  // Not the second less its own gate: a later token must not touch the rounding of an earlier one.
  const float second = before, first = is<Mutant::gate_by_difference> ? before - sum[1]
                                       : lane > 0                     ? earlier + sum[0]
                                                                      : sum[0];
  const int second_zeros = zeros_before, first_zeros = zeros_before - zeros[1];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float s = i ? second : first;
    if (is<Mutant::gate_sum_bf16>) s = __bfloat162float(__float2bfloat16_rn(s));
    const int z = i ? second_zeros : first_zeros;
    const int t = 2 * lane + i;
    gates.sum[t] = s;
    gates.zeros[t] = z;
    gates.from_start[t] = z == 0 ? exp2f(s) : 0.f;
    gates.to_end[t] = z == total_zeros ? exp2f(total - s) : 0.f;
  }
}

// The rows of a tile, each times its factor, rounded, into a tile that may be the same one.
template <typename T, int columns, int threads>
__device__ inline void fade_rows(const uint8_t* from, uint8_t* to, const float (&factors)[chunk]) {
  constexpr int pieces = columns / 8;
#pragma unroll
  for (int i = threadIdx.x; i < chunk * pieces; i += threads) {
    const int row = i / pieces, at = tile_offset(row, i % pieces * 8);
    const float by = factors[row];
    uint4 four = *reinterpret_cast<const uint4*>(from + at);
    for (uint32_t* two : {&four.x, &four.y, &four.z, &four.w}) {
      const float2 value = Pair<T>::unpack(*two);
      *two = Pair<T>::pack(value.x * by, value.y * by);
    }
    *reinterpret_cast<uint4*>(to + at) = four;
  }
}

// G(t, s) of a thread's scores, zero where s is after t.
template <int scores>
__device__ inline void weigh_scores(float (&weights)[scores / 2], int group, const Gates& gate) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, pair = 2 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = warp * 16 + lane / 4 + 8 * half, zeros = gate.zeros[t];
    const float sum = gate.sum[t];
#pragma unroll
    for (int j = 0; j < scores / 8; ++j) {
      const int s = group * scores + 8 * j + pair;
      const float2 sums = *reinterpret_cast<const float2*>(gate.sum + s);
      const int2 gone = *reinterpret_cast<const int2*>(gate.zeros + s);
      weights[4 * j + 2 * half] = t >= s && gone.x == zeros ? exp2f(sum - sums.x) : 0.f;
      weights[4 * j + 2 * half + 1] = t > s && gone.y == zeros ? exp2f(sum - sums.y) : 0.f;
    }
  }
}

// The scores of a chunk, masked and faded, into the tile W: rows t, columns s.
template <typename T, int scores, bool gated>
__device__ inline void store_scores(const float (&w)[scores / 2], uint8_t* tile, int group,
                                    const float (&weights)[scores / 2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, pair = 2 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = warp * 16 + lane / 4 + 8 * half;
#pragma unroll
    for (int j = 0; j < scores / 8; ++j) {
      const int s = group * scores + 8 * j + pair, i = 4 * j + 2 * half;
      const float low = gated ? w[i] * weights[i] : w[i], high = gated ? w[i + 1] * weights[i + 1] : w[i + 1];
      *reinterpret_cast<uint32_t*>(tile + tile_offset(t, s)) =
          Pair<T>::pack(t >= s + is<Mutant::mask_strict> ? low : 0.f, t > s ? high : 0.f);
    }
  }
}
template <typename T, int scores>
__device__ inline void store_scores(const float (&w)[scores / 2], uint8_t* tile, int group,
                                    const Gates& gate) {
  float weights[scores / 2];
  weigh_scores<scores>(weights, group, gate);
  store_scores<T, scores, true>(w, tile, group, weights);
}

// Rows that 16-byte copies can take.
inline bool takes_whole_rows(const View& view, Type type) {
  return view.type == type && view.dim == 1 && (view.token | view.head | view.batch) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

}  // namespace attest::cuda
