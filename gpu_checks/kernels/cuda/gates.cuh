// Shared by the kernels on matrix units: the gates of a chunk, the copies of tiles, faded operands.
#pragma once
#include "gpu_checks/kernels/cuda/tile.cuh"

namespace attest::cuda {

constexpr int chunk = 64;

// Tiles begin at a multiple of 1024 bytes of shared memory.
struct Tiles {
  uint32_t start;
  uint8_t* base;
  __device__ explicit Tiles(uint8_t* shared)
      : start((shared_address(shared) + 1023) / 1024 * 1024),
        base(shared + (start - shared_address(shared))) {}
};

// Accumulators of a warpgroup: rows `row` and row + 8 of its 64, columns 8 j + pair and the next.
struct Thread {
  int lane, group, warp, row, pair;
  __device__ Thread()
      : lane(threadIdx.x % 32),
        group(threadIdx.x / 128),
        warp(threadIdx.x / 32 % 4),
        row(warp * 16 + lane / 4),
        pair(2 * (lane % 4)) {}
};

struct Gates {
  float sum[chunk];  // log2 of the product of the gates from the start of the chunk, zero gates left out
  int zeros[chunk];  // zero gates up to here
  float from_start[chunk];  // G(t, start)
  float to_end[chunk];      // G(end, t)
};

// Rows [0, size) of a tile, and of them the columns that are given; the rest is zero.
template <typename T, int columns, int threads>
__device__ inline void fetch_tile(uint32_t tile, const View& view, int64_t base, int64_t token, int size,
                                  int given = columns) {
  constexpr int pieces = columns / 8, rows = threads / pieces;
  static_assert(rows % 8 == 0);  // so that the swizzle of a thread's pieces is the same
  const int row = threadIdx.x % threads / pieces, column = threadIdx.x % pieces * 8;
  if (column >= given && !is<Mutant::columns_beyond>) size = 0;
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

// The gates along the chunks of a stretch of tokens, by one warp. Raw gates are read a chunk ahead, so that their latency
// stays hidden; a constant gate is prepared once for every slot, and anew for a partial chunk.
template <int slots>
struct GateWalk {
  const Gate& gate;
  Gates* prepared;
  int64_t batch, first;  // first token
  int h, size;           // tokens
  bool mine;             // this warp makes them
  bool constant = gate.kind == GateKind::constant;
  float raw[2] = {1, 1};

  __device__ Gates& at(int c) const { return prepared[c % slots]; }
  __device__ void read(int c) {
    if (constant && c > 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = c * chunk + 2 * (threadIdx.x % 32) + i; t < size || (constant && size > 0))
        raw[i] = gate.raw(batch, first + t, h);
  }
  __device__ void make(int c) {
    const int left = size - c * chunk;
    if (!mine || left <= 0) return;
    if (!constant || c < slots || left < chunk) prepare_gates(at(c), gate, raw, min(chunk, left));
    read(c + 1);
  }
  // The gates of the first `count` chunks.
  __device__ void begin(int count) {
    if (mine) read(0);
    for (int c = 0; c < count; ++c) make(c);
  }
};

// `rows` rows of a tile, each times its factor, rounded, to another tile or in place, by `threads` threads.
template <typename T, int columns, int threads, int rows = chunk>
__device__ inline void fade_rows(uint8_t* to, const uint8_t* tile, const float (&factors)[chunk],
                                 int first = 0) {
  constexpr int pieces = columns / 8, together = 2;
  static_assert(rows * pieces % (together * threads) == 0);
#pragma unroll
  for (int i = threadIdx.x % threads; i < rows * pieces; i += together * threads) {
    uint4 four[together];  // read before the first is written
    int at[together];
    float by[together];
#pragma unroll
    for (int n = 0; n < together; ++n) {
      const int piece = i + n * threads, row = first + piece / pieces;
      at[n] = tile_offset(row, piece % pieces * 8), by[n] = factors[row];
      four[n] = *reinterpret_cast<const uint4*>(tile + at[n]);
    }
#pragma unroll
    for (int n = 0; n < together; ++n) {
      for (uint32_t* two : {&four[n].x, &four[n].y, &four[n].z, &four[n].w}) {
        const float2 value = Pair<T>::unpack(*two);
        *two = Pair<T>::pack(value.x * by[n], value.y * by[n]);
      }
      *reinterpret_cast<uint4*>(to + at[n]) = four[n];
    }
  }
}
template <typename T, int columns, int threads, int rows = chunk>
__device__ inline void fade_rows(uint8_t* tile, const float (&factors)[chunk], int first = 0) {
  fade_rows<T, columns, threads, rows>(tile, tile, factors, first);
}

// Z^T of a warp's 16 columns and tokens 16 k on as a left operand, and that times g'.
__device__ inline void load_values(uint32_t (&left)[4], uint32_t z_tile, int k) {
  const Thread me;
  load_transposed(left, z_tile + tile_offset(16 * k + me.lane / 16 * 8 + me.lane % 8,
                                             me.group * 64 + me.warp * 16 + me.lane / 8 % 2 * 8));
}
template <typename T>
__device__ inline void fade_values(uint32_t (&left)[4], const Gates& gate, int k) {
  const Thread me;
  const float2 first = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + me.pair),
               last = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + 8 + me.pair);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 z = Pair<T>::unpack(left[i]), by = i < 2 ? first : last;
    left[i] = Pair<T>::pack(z.x * by.x, z.y * by.y);
  }
}
template <typename T>
__device__ inline void load_faded(uint32_t (&faded)[chunk / 16][4], uint32_t z_tile, const Gates& gate) {
#pragma unroll
  for (int k = 0; k < chunk / 16; ++k) {
    load_values(faded[k], z_tile, k);
    fade_values<T>(faded[k], gate, k);
  }
}

// G(t, s) of a thread's scores, zero where s is after t; `exclusive`: of the token before.
template <int scores>
__device__ inline void weigh_scores(float (&weights)[scores / 2], const Gates& gate, int exclusive = 0) {
  const Thread me;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = me.row + 8 * half - exclusive, read = exclusive ? max(t, 0) : t, zeros = gate.zeros[read];
    const float sum = gate.sum[read];
#pragma unroll
    for (int j = 0; j < scores / 8; ++j) {
      const int s = me.group * scores + 8 * j + me.pair;
      const float2 sums = *reinterpret_cast<const float2*>(gate.sum + s);
      const int2 gone = *reinterpret_cast<const int2*>(gate.zeros + s);
      weights[4 * j + 2 * half] = t >= s && gone.x == zeros ? exp2f(sum - sums.x) : 0.f;
      weights[4 * j + 2 * half + 1] = t > s && gone.y == zeros ? exp2f(sum - sums.y) : 0.f;
    }
  }
}

// The scores of a chunk, masked and faded, into the tile W: rows t, columns s.
template <typename T, int scores, bool gated>
__device__ inline void store_scores(const float (&w)[scores / 2], uint8_t* tile,
                                    const float (&weights)[scores / 2], int exclusive = 0) {
  const Thread me;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = me.row + 8 * half, first = me.group * scores + me.pair, at = tile_offset(t, first);
#pragma unroll
    for (int j = 0; j < scores / 8; ++j) {
      const int s = first + 8 * j, i = 4 * j + 2 * half;
      const float low = gated ? w[i] * weights[i] : w[i], high = gated ? w[i + 1] * weights[i + 1] : w[i + 1];
      *reinterpret_cast<uint32_t*>(tile + (at ^ 16 * j)) = Pair<T>::pack(
          t - exclusive >= s + is<Mutant::mask_strict> ? low : 0.f, t - exclusive > s ? high : 0.f);
    }
  }
}
template <typename T, int scores>
__device__ inline void store_scores(const float (&w)[scores / 2], uint8_t* tile, const Gates& gate) {
  float weights[scores / 2];
  weigh_scores<scores>(weights, gate);
  store_scores<T, scores, true>(w, tile, weights);
}

// Accumulators of 64 rows as left operands, and as they lie in memory: (step of 16 columns, thread, 8 values).
template <typename T, int n>
__device__ inline void pack_left(uint32_t (&left)[n / 8][4], const float (&d)[n]) {
#pragma unroll
  for (int k = 0; k < n / 8; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) left[k][i] = Pair<T>::pack(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// A state P^T, `columns` of them, of a warpgroup in fp32 to or from (value_dim, key_dim).
template <int columns>
__device__ inline void load_state(float (&state)[columns / 2], const float* memory, float scale = 1) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < columns / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 two = *reinterpret_cast<const float2*>(
          memory + (me.group * 64 + me.row + 8 * half) * columns + 8 * j + me.pair);
      state[4 * j + 2 * half] = scale * two.x, state[4 * j + 2 * half + 1] = scale * two.y;
    }
}
template <int columns>
__device__ inline void store_state(float* memory, const float (&state)[columns / 2], float scale = 1) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < columns / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(memory + (me.group * 64 + me.row + 8 * half) * columns + 8 * j + me.pair) =
          make_float2(scale * state[4 * j + 2 * half], scale * state[4 * j + 2 * half + 1]);
}

// `columns` columns of the rows [0, size) of a tile to memory, by so many threads; `given`: how many columns exist there.
template <typename T, int columns, int threads = 128>
__device__ inline void tile_to_rows(const uint8_t* tile, const View& to, int64_t base, int size,
                                    int first = 0, int given = 1 << 30) {
  constexpr int pieces = columns / 8, rows = threads / pieces;
  static_assert(rows % 8 == 0);  // so that the swizzle of a thread's pieces is the same
  const int row = threadIdx.x % threads / pieces, column = first + threadIdx.x % pieces * 8;
  if (column >= given) return;
  const uint8_t* const from = tile + tile_offset(row, column);
  T* out = static_cast<T*>(to.data) + base + row * to.token +
           (is<Mutant::tile_offset_missing> ? column % 64 : column);
  const int64_t step = rows * to.token;
#pragma unroll
  for (int i = 0; i < chunk / rows; ++i, out += step)
    if (row + i * rows < size)
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(from + i * rows * 128);
}

// A warpgroup's 64 columns of O, which it holds transposed, scaled, into a tile of rows.
template <typename T>
__device__ inline void store_rows(const float (&o)[32], float scale, uint32_t tile) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const int t = 8 * (j + me.lane / 16) + me.lane % 8,
              column = me.group * 64 + me.warp * 16 + me.lane / 8 % 2 * 8;
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      packed[i] = Pair<T>::pack(scale * o[4 * j + 2 * i], scale * o[4 * j + 2 * i + 1]);
    store_transposed(tile + tile_offset(t, column), packed[0], packed[1], packed[2], packed[3]);
  }
}
// And through it to whole rows in memory.
template <typename T>
__device__ inline void leave_rows(const float (&o)[32], float scale, const Tiles& tiles, int tile_at,
                                  const View& to, int64_t base, int size, int given = 1 << 30) {
  const Thread me;
  store_rows<T>(o, scale, tiles.start + tile_at);
  if (!is<Mutant::output_barrier_missing>) barrier(1 + me.group, 128);
  tile_to_rows<T, 64>(tiles.base + tile_at, to, base, size, me.group * 64, given);
}

// Columns of O^T times the gates from the start of the chunk; `exclusive`: to the token before.
__device__ inline void fade_from_start(float (&o)[32], const Gates& gate, bool exclusive = false) {
  const Thread me;
  if (exclusive) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (const int t = 8 * (i / 4) + me.pair + i % 2; t > 0) o[i] *= gate.from_start[t - 1];
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 by = *reinterpret_cast<const float2*>(gate.from_start + 8 * j + me.pair);
    o[4 * j] *= by.x, o[4 * j + 1] *= by.y, o[4 * j + 2] *= by.x, o[4 * j + 3] *= by.y;
  }
}

}  // namespace attest::cuda
