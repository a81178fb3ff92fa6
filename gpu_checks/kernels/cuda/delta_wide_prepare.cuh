// The chunks of the delta rules, in parallel, for delta_wide.cu: key and value dimension `dim`, in 99 KB of shared memory.
//   N = I + stril(beta K K^T o G), T = N^-1 beta (delta_prepare.cuh), U = T V, W = T (g K), K' = g' K, P = tril(Q K^T o G);
//   with levels also the rows of O inside a chunk, ((P T) o Lambda) V, transposed, in fp32.
// Without the delta rule T = I: no W, U = V, and P o Lambda is rounded once.
// U, W and K' are rows; P is a tile as it lies in shared memory, and with it goes G(t, start).
#pragma once
#include "gpu_checks/kernels/cuda/delta_prepare.cuh"

namespace attest::cuda {

// The tokens of a sequence that are computed in chunks: those from a multiple of the chunk on.
struct Stretch {
  int64_t batch, begin, tokens;  // first token
  int64_t number;                // of its first chunk among all chunks
  int64_t before, head;          // chunks of the calls before this, tokens of this call before `begin`
  __device__ int64_t chunks() const { return (tokens + chunk - 1) / chunk; }
  __device__ int64_t whole() const { return tokens / chunk; }
};
__device__ inline Stretch stretch_of(const Layout& layout, const Delta& job, int sequence) {
  Stretch all{sequence, 0, layout.tokens, first_segment(layout, sequence), 0, 0};
  if (layout.bounds) {
    const int64_t begin = layout.bounds[sequence];
    all.batch = 0, all.begin = begin, all.tokens = layout.bounds[sequence + 1] - begin;
  }
  if (job.position) {
    all.head = tokens_to_boundary(job.position[sequence], chunk, all.tokens);
    all.before = (job.position[sequence] + all.head) / chunk;
    all.begin += all.head, all.tokens -= all.head;
  }
  return all;
}
// A chunk by its number; layout.segment is a chunk.
struct ChunkPlace {
  int64_t batch, token;
  int size;  // 0: nothing here
};
__device__ inline ChunkPlace chunk_place(const Layout& layout, const Delta& job, int64_t number) {
  const Place place = place_of(layout, number);
  if (place.size <= 0) return {0, 0, 0};
  const Stretch all = stretch_of(layout, job, place.sequence);
  const int64_t first = (number - all.number) * chunk;
  return {all.batch, all.begin + first,
          static_cast<int>(max(int64_t{0}, min(int64_t{chunk}, all.tokens - first)))};
}

template <int dim, bool levels>
struct WidePreparePlan {
  static constexpr int tile = dim / 64 * subtile_bytes, square = 64 * padded * 4;
  // k | q, then N X Y, then v | T | P, then (P T) o Lambda
  static constexpr int n_at = tile, x_at = n_at + square, y_at = x_at + square, y_end = y_at + 32 * 36 * 4,
                       t_at = (y_end > 2 * tile ? y_end + 1023 : 2 * tile) / 1024 * 1024,
                       p_at = t_at + subtile_bytes, gates_at = p_at + (levels ? subtile_bytes : 0),
                       beta_at = gates_at + static_cast<int>(sizeof(Gates)), scales_at = beta_at + 64 * 4,
                       bytes = 1024 + scales_at + (levels ? 64 * (chunk_levels + 1) * 4 : 0);
  static_assert(bytes <= 99 * 1024);
};

// K' = g' K to memory, g K in place of K; each out of K, rounded once.
template <typename T, int dim>
__device__ inline void spread_keys(uint8_t* tile, const Gates& gate, const View& to, int64_t base, int size) {
  constexpr int pieces = dim / 8;
  for (int i = threadIdx.x; i < chunk * pieces; i += 256) {
    const int row = i / pieces, column = i % pieces * 8, at = tile_offset(row, column);
    uint4 started = *reinterpret_cast<const uint4*>(tile + at), ended = started;
    uint32_t *const from_start = &started.x, *const to_end = &ended.x;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 k = Pair<T>::unpack(from_start[j]);
      from_start[j] = Pair<T>::pack(k.x * gate.from_start[row], k.y * gate.from_start[row]);
      const float end = is<Mutant::wide_keys_unfaded> ? 1.f : gate.to_end[row];
      to_end[j] = Pair<T>::pack(k.x * end, k.y * end);
    }
    *reinterpret_cast<uint4*>(tile + at) = started;
    if (row < size)
      *reinterpret_cast<uint4*>(static_cast<T*>(to.data) + base + row * to.token + column) = ended;
  }
}

// A warpgroup's half of the columns of T B, B the tile of V or of g K, through that half of B to whole rows.
template <typename T, int dim>
__device__ inline void store_product(uint32_t t_tile, const Tiles& tiles, int b_at, const View& to,
                                     int64_t base, int size) {
  constexpr int half = dim / 2;
  const int group = Thread().group, own_at = b_at + group * (half / 64) * subtile_bytes;
  float d[half / 2];
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    multiply<T, half, 0, 1>(d, along_columns(t_tile, 0, k), along_rows(tiles.start + own_at, 0, k), k > 0);
  products_commit();
  products_wait<0>();
  pin(d);
  barrier(1 + group, 128);  // every warp has read its half
  store_rows<T, half>(d, tiles.base + own_at, to, base + group * half, size, 1 + group);
}

// P o Lambda out of a thread's 16 scores, rounded once.
template <typename T>
__device__ inline void weigh_scores_inside(const float (&p)[16], uint8_t* tile, const float* scales,
                                           const Gates& gate, int size) {
  const Thread me;
  float weights[16];
  weigh_scores<32>(weights, gate);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = me.row + 8 * half;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int s = me.group * 32 + 8 * j + me.pair;
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * half + i;
        const bool live = t >= s + i && t < size;
        value[i] =
            live ? p[at] * (weights[at] * scales[t * (chunk_levels + 1) + 32 - __clz(t ^ (s + i))]) : 0.f;
      }
      *reinterpret_cast<uint32_t*>(tile + tile_offset(t, s)) = Pair<T>::pack(value[0], value[1]);
    }
  }
}

// ((P T) o Lambda), rounded, in place of P.
template <typename T>
__device__ inline void weigh_inside(const Tiles& tiles, int p_at, int t_at, const float* scales, int size) {
  const Thread me;
  float m[32];
  if (me.group == 0) {
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply<T, 64, 0, 1>(m, along_columns(tiles.start + p_at, 0, k), along_rows(tiles.start + t_at, 0, k),
                            k > 0);
    products_commit();
    products_wait<0>();
    pin(m);
    weigh_levels(m, scales, size);
    barrier(1, 128);  // every warp has read P
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<uint32_t*>(tiles.base + p_at + tile_offset(me.row + 8 * half, 8 * j + me.pair)) =
            Pair<T>::pack(m[4 * j + 2 * half], m[4 * j + 2 * half + 1]);
  }
  publish_stores();
  __syncthreads();
}

template <typename T, int dim, bool levels, bool delta>
__global__ void __launch_bounds__(256, 2)
    prepare_wide(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  using P = WidePreparePlan<dim, levels>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t k_tile = tiles.start, second_tile = k_tile + P::n_at, t_tile = k_tile + P::t_at;
  uint8_t* const base = tiles.base;
  Gates& gate = *reinterpret_cast<Gates*>(base + P::gates_at);
  float *const betas = reinterpret_cast<float*>(base + P::beta_at),
               *const scales = reinterpret_cast<float*>(base + P::scales_at),
               *const n = reinterpret_cast<float*>(base + P::n_at),
               *const x = reinterpret_cast<float*>(base + P::x_at),
               *const y = reinterpret_cast<float*>(base + P::y_at);
  const int h = static_cast<int>(blockIdx.x % layout.heads);
  const ChunkPlace here = chunk_place(layout, job, blockIdx.x / layout.heads);
  const int size = here.size;
  if (size <= 0) return;
  fetch_tile<T, dim, 256>(k_tile, job.k, job.k.at(here.batch, 0, h), here.token, size);
  fetch_tile<T, dim, 256>(second_tile, job.q, job.q.at(here.batch, 0, h), here.token, size);
  copies_commit();
  if (delta && threadIdx.x < 64)
    betas[threadIdx.x] = threadIdx.x < size ? job.beta.read(here.batch, here.token + threadIdx.x, h, 0) : 0.f;
  if constexpr (levels)
    for (int i = threadIdx.x; i < size * chunk_levels; i += 256)
      if (const int level = i % chunk_levels; level < job.levels)
        scales[i / chunk_levels * (chunk_levels + 1) + level] =
            job.level_scales.read(here.batch, here.token + i / chunk_levels, h, level);
  if (threadIdx.x >= 224) {
    float raw[2] = {1, 1};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = 2 * (threadIdx.x - 224) + i; t < size)
        raw[i] = job.gate.raw(here.batch, here.token + t, h);
    prepare_gates(gate, job.gate, raw, size);
  }
  copies_wait<0>();
  publish_stores();
  __syncthreads();
  const int group = Thread().group;
  float w[16], p[16];
  products_begin();
#pragma unroll
  for (int k = 0; k < (delta ? dim / 16 : 0); ++k)
    multiply<T, 32, 0, 0>(w, along_columns(k_tile, 0, k), along_columns(k_tile, group * 32, k), k > 0);
#pragma unroll
  for (int k = 0; k < dim / 16; ++k)
    multiply<T, 32, 0, 0>(p, along_columns(second_tile, 0, k), along_columns(k_tile, group * 32, k), k > 0);
  products_commit();
  products_wait<0>();
  if constexpr (delta) pin(w);
  pin(p);
  if constexpr (delta) {
    store_scores<T, 32>(p, static_cast<uint8_t*>(job.scores) + int64_t{blockIdx.x} * subtile_bytes, gate);
    if constexpr (levels) store_scores<T, 32>(p, base + P::p_at, gate);
  } else {
    weigh_scores_inside<T>(p, base + P::p_at, scales, gate, size);
  }
  if (threadIdx.x < chunk)
    job.from_start[int64_t{blockIdx.x} * chunk + threadIdx.x] = gate.from_start[threadIdx.x];
  __syncthreads();  // N and X take the place of q
  if constexpr (delta) {
    store_system(w, n, x, gate, betas);
    __syncthreads();
    invert_system(n, x, y);
    store_inverse<T>(base + P::t_at, x, betas);
  }
  spread_keys<T, dim>(base, gate, job.faded_keys, job.faded_keys.at(here.batch, here.token, h), size);
  publish_stores();
  __syncthreads();
  fetch_tile<T, dim, 256>(second_tile, job.v, job.v.at(here.batch, 0, h), here.token, size);
  copies_commit();
  if constexpr (delta)
    store_product<T, dim>(t_tile, tiles, 0, job.w, job.w.at(here.batch, here.token, h), size);
  if constexpr (levels && delta) weigh_inside<T>(tiles, P::p_at, P::t_at, scales, size);
  copies_wait<0>();
  publish_stores();
  __syncthreads();
  if constexpr (levels)
    for (int block = group; block < dim / 64; block += 2) {
      float o[32];
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply<T, 64, 1, 0>(o, along_rows(second_tile, block * 64, k),
                              along_columns(tiles.start + P::p_at, 0, k), k > 0);
      products_commit();
      products_wait<0>();
      pin(o);
      float4* const sums =
          job.sums + (int64_t{blockIdx.x} * (dim / 64) + block) * 8 * 128 + threadIdx.x % 128;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        sums[i * 128] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    }
  if constexpr (!delta) return;
  if constexpr (levels) __syncthreads();  // rows of U pass through v
  store_product<T, dim>(t_tile, tiles, P::n_at, job.u, job.u.at(here.batch, here.token, h), size);
}

}  // namespace attest::cuda
