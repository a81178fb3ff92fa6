// The chunks of the gated delta rule, in parallel, 64 tokens each, key and value dimension `dim`:
//   N = I + stril(beta K K^T o G), X = N^-1 (fp32: 16 x 16 blocks by substitution, then joined twice), T = X beta,
//   U = T V, W = T (g K); with levels also M = (P T) o Lambda, P = tril(Q K^T o G), and Q' = g Q - (P T) (g K).
// With S at the start of the chunk: S <- g(end) S + (U - W S)^T (g' K), O = Q' S + P T V (the last without levels).
// U and W are rows; Q' (64, dim) and M (64, 64) lie as left operands, 16 columns at a time: (step, thread, 8 values).
#pragma once
#include "gpu_checks/kernels/cuda/gates.cuh"
#include "gpu_checks/kernels/cuda/launch.cuh"
#include "gpu_checks/kernels/cuda/products.cuh"

namespace attest::cuda {

constexpr int padded = 72;       // floats of a row of a 64 x 64 matrix
constexpr int chunk_levels = 7;  // inside a chunk

template <int dim, bool levels>
struct PreparePlan {
  static constexpr int tile = dim / 64 * subtile_bytes;
  static constexpr int k_at = 0, v_at = tile, q_at = 2 * tile, t_at = (levels ? 3 : 2) * tile,
                       p_at = t_at + subtile_bytes, n_at = p_at + (levels ? subtile_bytes : 0),
                       x_at = n_at + 64 * padded * 4, y_at = x_at + 64 * padded * 4,
                       gates_at = y_at + 32 * 36 * 4, beta_at = gates_at + static_cast<int>(sizeof(Gates)),
                       scales_at = beta_at + 64 * 4,
                       bytes = 1024 + scales_at + (levels ? 64 * (chunk_levels + 1) * 4 : 0);
};

// Two rows and two columns of A B, A (.., size) row-major with stride `padded`, B with its own stride.
template <int size>
__device__ inline void small_product(float (&sum)[2][2], const float* a, const float* b, int b_stride) {
#pragma unroll
  for (int k = 0; k < size; k += 4) {
    const float4 rows[2] = {*reinterpret_cast<const float4*>(a + k),
                            *reinterpret_cast<const float4*>(a + padded + k)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = *reinterpret_cast<const float2*>(b + (k + i) * b_stride);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float left = i == 0 ? rows[r].x : i == 1 ? rows[r].y : i == 2 ? rows[r].z : rows[r].w;
        sum[r][0] = fmaf(left, two.x, sum[r][0]), sum[r][1] = fmaf(left, two.y, sum[r][1]);
      }
    }
  }
}

// X[r0.., c0..] = -X[r0.., r0..] N[r0.., c0..] X[c0.., c0..] for blocks of `size`, all in shared memory, by all threads.
template <int size>
__device__ inline void join_blocks(const float* n, float* x, float* y, int pairs) {
  constexpr int tiles = size / 2, y_stride = 36;
  const int i = threadIdx.x, pair = i / (tiles * tiles), r = i / tiles % tiles * 2, c = i % tiles * 2,
            first = pair * 2 * size, second = first + size;
  const bool mine = i < pairs * tiles * tiles;
  float* const own = y + (pair * size + r) * y_stride + c;
  if (mine) {
    float sum[2][2] = {};
    small_product<size>(sum, n + (second + r) * padded + first, x + first * padded + first + c, padded);
    *reinterpret_cast<float2*>(own) = make_float2(sum[0][0], sum[0][1]);
    *reinterpret_cast<float2*>(own + y_stride) = make_float2(sum[1][0], sum[1][1]);
  }
  __syncthreads();
  if (mine) {
    float sum[2][2] = {};
    small_product<size>(sum, x + (second + r) * padded + second, y + pair * size * y_stride + c, y_stride);
    float* const out = x + (second + r) * padded + first + c;
    *reinterpret_cast<float2*>(out) = make_float2(-sum[0][0], -sum[0][1]);
    *reinterpret_cast<float2*>(out + padded) = make_float2(-sum[1][0], -sum[1][1]);
  }
  __syncthreads();
}

// N below its diagonal out of a thread's 16 products of keys, and X = I. By 256 threads, as what follows.
__device__ inline void store_system(const float (&products)[16], float* n, float* x, const Gates& gate,
                                    const float* betas) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = me.row + half * 8, s = me.group * 32 + 8 * j + me.pair;
      float two[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool live = t > s + i && gate.zeros[s + i] == gate.zeros[t];
        two[i] =
            live ? betas[t] * exp2f(gate.sum[t] - gate.sum[s + i]) * products[4 * j + 2 * half + i] : 0.f;
      }
      *reinterpret_cast<float2*>(n + t * padded + s) = make_float2(two[0], two[1]);
      *reinterpret_cast<float2*>(x + t * padded + s) =
          make_float2(t == s ? 1.f : 0.f, t == s + 1 ? 1.f : 0.f);
    }
}

// X = N^-1: the inverses of the four 16 x 16 blocks of the diagonal, a column a thread, then joined twice.
__device__ inline void invert_system(const float* n, float* x, float* y) {
  if (threadIdx.x < 64) {
    const int first = threadIdx.x / 16 * 16, c = threadIdx.x % 16;
    float column[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      float sum = r == c ? 1.f : 0.f;
#pragma unroll
      for (int k = 0; k < r; ++k) sum = fmaf(-n[(first + r) * padded + first + k], column[k], sum);
      column[r] = sum;
      x[(first + r) * padded + first + c] = sum;
    }
  }
  __syncthreads();
  join_blocks<16>(n, x, y, 2);
  if (!is<Mutant::inverse_corner_missing>) join_blocks<32>(n, x, y, 1);
}

// T = X beta, rounded.
template <typename T>
__device__ inline void store_inverse(uint8_t* tile, const float* x, const float* betas) {
  for (int i = threadIdx.x; i < 64 * 32; i += 256) {
    const int t = i / 32, s = i % 32 * 2;
    const bool weighed = !is<Mutant::delta_beta_missing>;
    const float2 two = *reinterpret_cast<const float2*>(x + t * padded + s);
    const float low = two.x * (weighed ? betas[s] : 1.f), high = two.y * (weighed ? betas[s + 1] : 1.f);
    *reinterpret_cast<uint32_t*>(tile + tile_offset(t, s)) = Pair<T>::pack(low, high);
  }
}

// Left operands to and from memory: (step of 16 columns, thread, 8 values).
template <typename T, int columns>
__device__ inline void store_left(void* memory, int64_t number, const float (&d)[columns / 2]) {
  uint32_t left[columns / 16][4];
  pack_left<T>(left, d);
  uint4* const to = static_cast<uint4*>(memory) + number * (columns / 16) * 128 + threadIdx.x % 128;
#pragma unroll
  for (int k = 0; k < columns / 16; ++k)
    to[k * 128] = make_uint4(left[k][0], left[k][1], left[k][2], left[k][3]);
}
template <int columns>
__device__ inline void load_left(uint32_t (&left)[columns / 16][4], const void* memory, int64_t number) {
  const uint4* const from =
      static_cast<const uint4*>(memory) + number * (columns / 16) * 128 + threadIdx.x % 128;
#pragma unroll
  for (int k = 0; k < columns / 16; ++k) {
    const uint4 four = from[k * 128];
    left[k][0] = four.x, left[k][1] = four.y, left[k][2] = four.z, left[k][3] = four.w;
  }
}

// Rows of P T times the level scales (row, chunk_levels + 1), zero above the diagonal and past the end.
__device__ inline void weigh_levels(float (&m)[32], const float* scales, int size) {
  const Thread me;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = me.row + 8 * half;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int s = 8 * (i / 2) + me.pair + i % 2;
      float& value = m[4 * (i / 2) + 2 * half + i % 2];
      value = t >= s && t < size ? value * scales[t * (chunk_levels + 1) + 32 - __clz(t ^ s)] : 0.f;
    }
  }
}

// Accumulators of 64 rows, rounded, through shared memory to whole rows; `barrier_id` of the 128 threads that hold them.
template <typename T, int dim>
__device__ inline void store_rows(const float (&d)[dim / 2], uint8_t* tile, const View& to, int64_t base,
                                  int size, int barrier_id) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint32_t*>(tile + tile_offset(me.row + 8 * half, 8 * j + me.pair)) =
          Pair<T>::pack(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
  barrier(barrier_id, 128);
  tile_to_rows<T, dim>(tile, to, base, size);
}

template <typename T, int dim, bool levels>
__global__ void __launch_bounds__(256, 2)
    prepare_chunks(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  using P = PreparePlan<dim, levels>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  Gates& gate = *reinterpret_cast<Gates*>(base + P::gates_at);
  float *const betas = reinterpret_cast<float*>(base + P::beta_at), *const scales = reinterpret_cast<float*>(
                                                                        base + P::scales_at);
  float *const n = reinterpret_cast<float*>(base + P::n_at),
               *const x = reinterpret_cast<float*>(base + P::x_at),
               *const y = reinterpret_cast<float*>(base + P::y_at);
  const int h = static_cast<int>(blockIdx.x % layout.heads);
  const int64_t index = blockIdx.x / layout.heads, per_segment = layout.segment / chunk,
                segment = index / per_segment;
  const int in_segment = static_cast<int>(index % per_segment);
  const Place place = place_of(layout, segment);
  const int size = min(chunk, place.size - in_segment * chunk);
  if (size <= 0) return;
  const int64_t token = place.first + in_segment * chunk;
  const uint32_t k_tile = start + P::k_at, v_tile = start + P::v_at, q_tile = start + P::q_at,
                 t_tile = start + P::t_at, p_tile = start + P::p_at;
  fetch_tile<T, dim, 256>(k_tile, job.k, job.k.at(place.batch, 0, h), token, size);
  fetch_tile<T, dim, 256>(v_tile, job.v, job.v.at(place.batch, 0, h), token, size);
  if constexpr (levels) fetch_tile<T, dim, 256>(q_tile, job.q, job.q.at(place.batch, 0, h), token, size);
  copies_commit();
  if (threadIdx.x < 64)
    betas[threadIdx.x] = threadIdx.x < size ? job.beta.read(place.batch, token + threadIdx.x, h, 0) : 0.f;
  if constexpr (levels)
    for (int i = threadIdx.x; i < size * chunk_levels; i += 256)
      if (const int level = i % chunk_levels; level < job.levels)
        scales[i / chunk_levels * (chunk_levels + 1) + level] =
            job.level_scales.read(place.batch, token + i / chunk_levels, h, level);
  if (threadIdx.x >= 224) {
    float raw[2] = {1, 1};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = 2 * (threadIdx.x - 224) + i; t < size)
        raw[i] = job.gate.raw(place.batch, token + t, h);
    prepare_gates(gate, job.gate, raw, size);
  }
  copies_wait<0>();
  publish_stores();
  __syncthreads();
  const Thread me;
  const int group = me.group, pair = me.pair;
  float w[16], p[16];
  products_begin();
#pragma unroll
  for (int k = 0; k < dim / 16; ++k)
    multiply<T, 32, 0, 0>(w, along_columns(k_tile, 0, k), along_columns(k_tile, group * 32, k), k > 0);
  products_commit();
  if constexpr (levels) {
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
      multiply<T, 32, 0, 0>(p, along_columns(q_tile, 0, k), along_columns(k_tile, group * 32, k), k > 0);
    products_commit();
  }
  products_wait<0>();
  pin(w);
  store_system(w, n, x, gate, betas);
  if constexpr (levels) {
    pin(p);
    store_scores<T, 32>(p, base + P::p_at, gate);
  }
  __syncthreads();
  invert_system(n, x, y);
  fade_rows<T, dim, 256>(base + P::k_at, gate.from_start);
  store_inverse<T>(base + P::t_at, x, betas);
  publish_stores();
  __syncthreads();
  // The first warpgroup multiplies by V, the second by the faded K.
  const uint32_t rows_tile = group == 0 ? v_tile : k_tile;
  float wide[dim / 2];
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    multiply<T, dim, 0, 1>(wide, along_columns(t_tile, 0, k), along_rows(rows_tile, 0, k), k > 0);
  products_commit();
  products_wait<0>();
  pin(wide);
  const View& out = group == 0 ? job.u : job.w;
  const int64_t out_base = out.at(place.batch, token, h);
  // N and X are done with, and each is as large as a tile.
  static_assert(64 * padded * 4 >= P::tile);
  store_rows<T, dim>(wide, base + (group == 0 ? P::n_at : P::x_at), out, out_base, size, 1 + group);
  if constexpr (levels) {
    float m[32];
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply<T, 64, 0, 1>(m, along_columns(p_tile, 0, k), along_rows(t_tile, 0, k), k > 0);
    products_commit();
    products_wait<0>();
    pin(m);
    const int64_t all = (layout.tokens + chunk - 1) / chunk,
                  number = (place.batch * all + token / chunk) * layout.heads + h;
    if (group == 0) {
      weigh_levels(m, scales, size);
      store_left<T, 64>(job.weights, number, m);
    } else {
      uint32_t left[4][4];
      pack_left<T>(left, m);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<T, dim, 1>(wide, left[k], along_rows(k_tile, 0, k), k > 0);
      products_commit();
      products_wait<0>();
      pin(wide);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = me.row + 8 * half;
        const float by = gate.from_start[t];
#pragma unroll
        for (int j = 0; j < dim / 8; ++j) {
          const float2 q = Pair<T>::unpack(
              *reinterpret_cast<const uint32_t*>(base + P::q_at + tile_offset(t, 8 * j + pair)));
          float* const out = wide + 4 * j + 2 * half;
          out[0] = fmaf(by, q.x, -out[0]), out[1] = fmaf(by, q.y, -out[1]);
        }
      }
      store_left<T, dim>(job.queries, number, wide);
    }
  }
}

}  // namespace attest::cuda
