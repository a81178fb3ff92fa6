// Lin on Hopper's matrix units: bf16 or fp16 rows, fp32 accumulation and carry, chunks of 64 tokens, dimensions 64 and 128.
// Transposed: a warpgroup owns 64 columns of z. State P^T (64, key_dim) stays in its accumulators, and is repacked from
// there as the left operand, so it never passes through memory:
//   W = (X Y^T o G) to shared memory; O^T = P^T X^T g + Z^T W^T; P^T <- G(end,start) P^T + Z^T (g' Y).
// Rounded to the input format besides the inputs: P as operand, W, g' Y (only with gates), O.
#include "gpu_checks/kernels/cuda/gates.cuh"

namespace attest::cuda {
namespace {

template <int key_dim, int value_dim, bool with_output, bool gated>
struct Plan {
  static constexpr int groups = value_dim / 64, workers = 128 * groups;
  static constexpr int threads = workers;
  static constexpr int stages = with_output ? 3 : 5;
  static constexpr int wide = key_dim / 64 * subtile_bytes, tall = value_dim / 64 * subtile_bytes;
  static constexpr int stage_bytes = (with_output ? wide : 0) + wide + tall;
  static constexpr int w_at = stages * stage_bytes, o_at = w_at + (with_output ? 2 * subtile_bytes : 0);
  static constexpr int faded_at = o_at + (with_output ? tall : 0),
                       gates_at = faded_at + (gated ? 2 * wide : 0);
  static constexpr int bytes = 1024 + gates_at + (gated ? 3 * sizeof(Gates) : 0);
};

// What both kernels need: where the segment lies, its copies into the stages, its gates.
template <typename T, int key_dim, int value_dim, bool with_output, bool gated>
struct Walk {
  using P = Plan<key_dim, value_dim, with_output, gated>;
  const Lin& lin;
  Place place;
  int h, chunks;
  bool same;  // y and z are one tensor
  uint32_t start;
  uint8_t* base;
  int64_t x_base, y_base, z_base;

  __device__ Walk(const Layout& layout, const Lin& l, uint8_t* shared)
      : lin(l),
        place(place_of(layout, blockIdx.x / layout.heads)),
        h(static_cast<int>(blockIdx.x % layout.heads)) {
    chunks = is<Mutant::tail_chunk_dropped> ? place.size / chunk : (place.size + chunk - 1) / chunk;
    start = (shared_address(shared) + 1023) / 1024 * 1024;
    base = shared + (start - shared_address(shared));
    same = key_dim == value_dim && lin.y.data == lin.z.data && lin.y.token == lin.z.token &&
           lin.y.head == lin.z.head && lin.y.batch == lin.z.batch && lin.y.group == lin.z.group;
    x_base = with_output ? lin.x.at(place.batch, 0, h) : 0;
    y_base = lin.y.at(place.batch, 0, h);
    z_base = lin.z.at(place.batch, 0, h);
  }
  __device__ int size(int c) const { return min(chunk, place.size - c * chunk); }
  __device__ uint32_t y_tile(int c) const { return start + c % P::stages * P::stage_bytes; }
  __device__ uint32_t z_tile(int c) const { return same ? y_tile(c) : y_tile(c) + P::wide; }
  __device__ uint32_t x_tile(int c) const { return y_tile(c) + P::wide + P::tall; }
  __device__ Gates& gates(int c) const { return reinterpret_cast<Gates*>(base + P::gates_at)[c % 3]; }
  __device__ void fetch(int c) const {
    if (c < chunks) {
      const int64_t token = place.first + c * chunk;
      if constexpr (with_output) fetch_tile<T, key_dim, P::workers>(x_tile(c), lin.x, x_base, token, size(c));
      fetch_tile<T, key_dim, P::workers>(y_tile(c), lin.y, y_base, token, size(c));
      if (!same) fetch_tile<T, value_dim, P::workers>(z_tile(c), lin.z, z_base, token, size(c));
    }
    copies_commit();
  }
  // y of chunk c as the state takes it, and what makes it so where there are gates: a chunk ahead, by all threads.
  __device__ uint32_t later_y_tile(int c) const { return gated ? start + faded_at(c) : y_tile(c); }
  __device__ int faded_at(int c) const { return P::faded_at + c % 2 * P::wide; }
  __device__ void fade(int c) const {
    if (c < chunks)
      fade_rows<T, key_dim, P::workers>(base + (y_tile(c) - start), base + faded_at(c), gates(c).to_end);
  }
  // Gates of chunk c, by one warp, read a chunk ahead so that their latency stays hidden.
  __device__ void read_gates(float (&raw)[2], int c) const {
    const bool constant = lin.gate.kind == GateKind::constant;
    if (c >= chunks || (constant && c > 0)) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = c * chunk + 2 * (threadIdx.x & 31) + i;
      if (t < place.size || constant) raw[i] = lin.gate.raw(place.batch, place.first + t, h);
    }
  }
  __device__ void make_gates(float (&raw)[2], int c) const {
    if (c >= chunks) return;
    if (lin.gate.kind != GateKind::constant || c < 3 || size(c) < chunk)
      prepare_gates(gates(c), lin.gate, raw, size(c));
    read_gates(raw, c + 1);
  }
};

template <typename T, int key_dim, int value_dim, bool gated>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, false, gated>::threads, 1)
    lin_states(const __grid_constant__ Layout layout, const __grid_constant__ Lin lin) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, false, gated>;
  extern __shared__ uint8_t shared[];
  const Walk<T, key_dim, value_dim, false, gated> walk(layout, lin, shared);
  const int chunks = walk.chunks;
  if (walk.place.size <= 0) return;
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const bool maker = gated && threadIdx.x / 32 == 3;  // the warp that makes the gates
  float raw[2] = {1, 1};
  if (maker) {
    walk.read_gates(raw, 0);
    walk.make_gates(raw, 0);
    walk.make_gates(raw, 1);
  }
  for (int c = 0; c < P::stages - 2; ++c) walk.fetch(c);
  if constexpr (gated) {
    copies_wait<P::stages - 3>();
    __syncthreads();
    walk.fade(0);
  }
  float state[key_dim / 2], fade = 1;
#pragma unroll
  for (int i = 0; i < key_dim / 2; ++i) state[i] = 0;
  for (int c = 0; c < chunks; ++c) {
    copies_wait<P::stages - 4>();  // chunk c + 1
    publish_stores();
    __syncthreads();
    walk.fetch(c + P::stages - 2);
    const uint32_t z_tile = walk.z_tile(c);
    if constexpr (gated) {
      const float whole = walk.gates(c).from_start[chunk - 1];
      fade *= whole;
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
    }
    const uint32_t y_tile = walk.later_y_tile(c);
    products_begin();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, key_dim, 1, 1>(state, along_rows(z_tile, group * 64, k), along_rows(y_tile, 0, k), true);
    products_commit();
    if constexpr (gated) {
      if (maker) walk.make_gates(raw, c + 2);
      walk.fade(c + 1);
    }
    products_wait<0>();
    pin(state);
    if (is<Mutant::state_bf16>)
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] = __bfloat162float(__float2bfloat16_rn(state[i]));
  }
  const int row = group * 64 + warp * 16 + lane / 4, pair = 2 * (lane % 4);
  float* const memory =
      lin.states + static_cast<int64_t>(is<Mutant::state_slot_shared> ? blockIdx.x & ~1u : blockIdx.x) *
                       value_dim * key_dim;
#pragma unroll
  for (int j = 0; j < key_dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(memory + (row + 8 * half) * key_dim + 8 * j + pair) =
          make_float2(lin.y_scale * state[4 * j + 2 * half], lin.y_scale * state[4 * j + 2 * half + 1]);
  if (threadIdx.x == 0) lin.fade[blockIdx.x] = fade;
#endif
}

// The scores run a chunk ahead of the state, so that their way through shared memory overlaps with its products.
template <typename T, int key_dim, int value_dim, bool gated>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, true, gated>::threads, 1)
    lin_rows(const __grid_constant__ Layout layout, const __grid_constant__ Lin lin) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, true, gated>;
  constexpr int scores = 64 / P::groups;  // columns of W that a warpgroup computes
  extern __shared__ uint8_t shared[];
  const Walk<T, key_dim, value_dim, true, gated> walk(layout, lin, shared);
  const int chunks = walk.chunks;
  if (walk.place.size <= 0) return;
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const int64_t o_base = lin.o.at(walk.place.batch, 0, walk.h);
  const bool maker = gated && threadIdx.x / 32 == 3;  // the warp that makes the gates
  float raw[2] = {1, 1};
  if (maker) {
    walk.read_gates(raw, 0);
    walk.make_gates(raw, 0);
    walk.make_gates(raw, 1);
  }
  for (int c = 0; c < P::stages - 1; ++c) walk.fetch(c);
  // Accumulators: row warp * 16 + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1).
  const int row = group * 64 + warp * 16 + lane / 4, pair = 2 * (lane % 4);
  float state[key_dim / 2], w[scores / 2], o[32];
  const float* const memory = lin.states + static_cast<int64_t>(blockIdx.x) * value_dim * key_dim;
#pragma unroll
  for (int j = 0; j < key_dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 two = *reinterpret_cast<const float2*>(memory + (row + 8 * half) * key_dim + 8 * j + pair);
      state[4 * j + 2 * half] = two.x;
      state[4 * j + 2 * half + 1] = two.y;
    }
  auto w_tile = [&](int c) { return P::w_at + c % 2 * subtile_bytes; };
  auto start_scores = [&](int c) {
#pragma unroll
    for (int k = 0; k < key_dim / 16 - (is<Mutant::last_columns_skipped> && key_dim == 128); ++k)
      multiply<T, scores, 0, 0>(w, along_columns(walk.x_tile(c), 0, k),
                                along_columns(walk.y_tile(c), group * scores, k), k > 0);
    products_commit();
  };
  copies_wait<0>();
  publish_stores();
  __syncthreads();
  products_begin();
  start_scores(0);
  products_wait<0>();
  pin(w);
  const bool constant = lin.gate.kind == GateKind::constant;  // then every chunk has the same weights
  float weights[scores / 2];
  if constexpr (gated) weigh_scores<scores>(weights, group, walk.gates(0));
  store_scores<T, scores, gated>(w, walk.base + w_tile(0), group, weights);
  if constexpr (gated) walk.fade(0);

  for (int c = 0; c < chunks; ++c) {
    const uint32_t x_tile = walk.x_tile(c), z_tile = walk.z_tile(c);
    copies_wait<0>();  // chunk c + 1
    publish_stores();  // and W of chunk c
    __syncthreads();
    walk.fetch(c + P::stages - 1);
    uint32_t left[key_dim / 16][4];
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) left[k][i] = Pair<T>::pack(state[8 * k + 2 * i], state[8 * k + 2 * i + 1]);
    products_begin();
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(x_tile, 0, k), k > 0);
    products_commit();
    start_scores(c + 1);  // past the end: of nothing, and not used
    if constexpr (gated) {
      if (maker) walk.make_gates(raw, c + 2);
      const Gates& gate = walk.gates(c);
      const float whole = gate.from_start[chunk - 1];
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
      walk.fade(c + 1);
      products_wait<1>();
      pin(o);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 by = *reinterpret_cast<const float2*>(gate.from_start + 8 * j + pair);
        o[4 * j] *= by.x, o[4 * j + 1] *= by.y, o[4 * j + 2] *= by.x, o[4 * j + 3] *= by.y;
      }
      products_begin();
    }
    const uint32_t y_tile = walk.later_y_tile(c);
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, 64, 1, 0>(o, along_rows(z_tile, group * 64, k), along_columns(walk.start + w_tile(c), 0, k),
                            true);
    products_commit();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, key_dim, 1, 1>(state, along_rows(z_tile, group * 64, k), along_rows(y_tile, 0, k), true);
    products_commit();
    products_wait<2>();
    pin(w);
    if (c + 1 < chunks) {
      if (gated && !constant) weigh_scores<scores>(weights, group, walk.gates(c + 1));
      store_scores<T, scores, gated>(w, walk.base + w_tile(c + 1), group, weights);
    }
    products_wait<1>();
    pin(o);
    // O^T through shared memory to whole rows.
    uint8_t* const out = walk.base + P::o_at;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const int t = 8 * (j + lane / 16) + lane % 8, column = group * 64 + warp * 16 + lane / 8 % 2 * 8;
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        packed[i] = Pair<T>::pack(lin.x_scale * o[4 * j + 2 * i], lin.x_scale * o[4 * j + 2 * i + 1]);
      store_transposed(walk.start + P::o_at + tile_offset(t, column), packed[0], packed[1], packed[2],
                       packed[3]);
    }
    if (!is<Mutant::output_barrier_missing>) barrier(1 + group, 128);
#pragma unroll
    for (int i = threadIdx.x % 128; i < chunk * 8; i += 128) {
      const int t = i / 8, column = group * 64 + i % 8 * 8;
      if (t < walk.size(c)) {
        const int64_t to = o_base + (walk.place.first + c * chunk + t) * lin.o.token +
                           (is<Mutant::tile_offset_missing> ? column % 64 : column);
        *reinterpret_cast<uint4*>(static_cast<T*>(lin.o.data) + to) =
            *reinterpret_cast<const uint4*>(out + tile_offset(t, column));
      }
    }
    products_wait<0>();
    pin(state);
  }
#endif
}

template <typename T, int key_dim, int value_dim, bool with_output, bool gated>
auto kernel_of() {
  if constexpr (with_output)
    return lin_rows<T, key_dim, value_dim, gated>;
  else
    return lin_states<T, key_dim, value_dim, gated>;
}

template <typename T, int key_dim, int value_dim, bool with_output, bool gated>
cudaError_t launch_one(const Context& context, const Lin& lin) {
  using P = Plan<key_dim, value_dim, with_output, gated>;
  const auto kernel = kernel_of<T, key_dim, value_dim, with_output, gated>();
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::bytes);
  if (error != cudaSuccess) return error;
  const int64_t blocks = context.layout.segments * context.layout.heads;
  if (blocks == 0) return cudaSuccess;
  kernel<<<grid_of(blocks), P::threads, P::bytes, context.stream>>>(context.layout, lin);
  return cudaGetLastError();
}

template <typename T, bool with_output, bool gated>
cudaError_t launch_dims(const Context& context, const Lin& lin) {
  if (lin.key_dim == 64 && lin.value_dim == 64)
    return launch_one<T, 64, 64, with_output, gated>(context, lin);
#ifndef ATTEST_CUDA_SMALL
  if (lin.key_dim == 64) return launch_one<T, 64, 128, with_output, gated>(context, lin);
  if (lin.value_dim == 64) return launch_one<T, 128, 64, with_output, gated>(context, lin);
#endif
#if !defined(ATTEST_CUDA_SMALL) || defined(ATTEST_CUDA_WIDE)
  if (lin.value_dim == 128) return launch_one<T, 128, 128, with_output, gated>(context, lin);
#endif
  return cudaErrorInvalidValue;
}

template <bool with_output>
cudaError_t launch(const Context& context, const Lin& lin) {
  const bool gated = lin.gate.kind != GateKind::none;
#ifndef ATTEST_CUDA_SMALL
  if (lin.y.type == Type::f16)
    return gated ? launch_dims<__half, with_output, true>(context, lin)
                 : launch_dims<__half, with_output, false>(context, lin);
#endif
  return gated ? launch_dims<__nv_bfloat16, with_output, true>(context, lin)
               : launch_dims<__nv_bfloat16, with_output, false>(context, lin);
}

}  // namespace

bool wgmma_supports(const Context& context, const Lin& lin) {
  auto tuned = [](int dim) { return dim == 64 || dim == 128; };
#ifdef ATTEST_CUDA_SMALL
  if (lin.y.type != Type::bf16 || lin.key_dim != lin.value_dim) return false;
#ifndef ATTEST_CUDA_WIDE
  if (lin.key_dim != 64) return false;
#endif
#endif
  if (!context.hopper || !tuned(lin.key_dim) || !tuned(lin.value_dim)) return false;
  if (lin.y.type != Type::bf16 && lin.y.type != Type::f16) return false;
  if (lin.extra || lin.exclusive || lin.add.data || lin.coefficient != 1) return false;
  if (!takes_whole_rows(lin.y, lin.y.type) || !takes_whole_rows(lin.z, lin.y.type)) return false;
  return !lin.x.data ||
         (lin.y_scale == 1 && takes_whole_rows(lin.x, lin.y.type) && takes_whole_rows(lin.o, lin.y.type));
}

cudaError_t launch_wgmma_states(const Context& context, const Lin& lin) {
  return launch<false>(context, lin);
}
cudaError_t launch_wgmma_rows(const Context& context, const Lin& lin) { return launch<true>(context, lin); }

}  // namespace attest::cuda
