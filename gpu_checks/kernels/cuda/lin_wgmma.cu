// Lin on Hopper's matrix units: bf16 or fp16 rows, fp32 accumulation and carry, chunks of 64 tokens, dimensions 64 and 128.
// Transposed: a warpgroup owns 64 columns of z. State P^T (64, key_dim) stays in its accumulators, and is repacked from
// there as the left operand, so it never passes through memory:
//   W = (X Y^T o G) to shared memory; O^T = P^T X^T g + Z^T W^T; P^T <- G(end,start) P^T + (Z g')^T Y.
// Rounded to the input format besides the inputs: P as operand, W, Z g' (only with gates), O.
#include "gpu_checks/kernels/cuda/wgmma.cuh"

namespace attest::cuda {
namespace {

constexpr int chunk = 64;

struct Gates {
  float sum[chunk];  // log2 of the product of the gates from the start of the chunk, zero gates left out
  int zeros[chunk];  // zero gates up to here
  float from_start[chunk];  // G(t, start)
  float to_end[chunk];      // G(end, t)
};

template <typename T, int key_dim, int value_dim, bool with_output>
struct Plan {
  static constexpr int groups = value_dim / 64, threads = 128 * groups, stages = with_output ? 2 : 3;
  static constexpr int wide = key_dim / 64 * subtile_bytes, tall = value_dim / 64 * subtile_bytes;
  static constexpr int stage_bytes = (with_output ? wide : 0) + wide + tall;
  static constexpr int bytes =
      1024 + stages * stage_bytes + (with_output ? subtile_bytes : 0) + 2 * sizeof(Gates);
};

// Rows [0, size) of a tile; the rest is zero.
template <typename T, int columns, int threads>
__device__ inline void fetch_tile(uint32_t tile, const View& view, int64_t base, int64_t token, int size) {
  constexpr int pieces = columns / 8;
#pragma unroll
  for (int i = threadIdx.x; i < chunk * pieces; i += threads) {
    const int row = i / pieces, column = i % pieces * 8;
    const bool inside = row < size;
    const T* from =
        static_cast<const T*>(view.data) + base + (token + (inside ? row : 0)) * view.token + column;
    copy_async(tile + tile_offset(row, column), from, inside);
  }
}

// The gates of the tokens [token, token + size), by one warp.
__device__ inline void prepare_gates(Gates& gates, const Gate& gate, int64_t batch, int64_t token, int h,
                                     int size) {
  const int lane = threadIdx.x & 31;
  float sum[2];
  int zeros[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const float x = t < size ? gate.log2_alpha(batch, token + t, h) : 0.f;
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
  const float second = before, first = before - sum[1];
  const int second_zeros = zeros_before, first_zeros = zeros_before - zeros[1];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float s = i ? second : first;
    const int z = i ? second_zeros : first_zeros;
    const int t = 2 * lane + i;
    gates.sum[t] = s;
    gates.zeros[t] = z;
    gates.from_start[t] = z == 0 ? exp2f(s) : 0.f;
    gates.to_end[t] = z == total_zeros ? exp2f(total - s) : 0.f;
  }
}

template <typename T, int key_dim, int value_dim, bool with_output, bool gated>
__global__ void __launch_bounds__(2 * value_dim, with_output ? 1 : 2)
    lin_chunks(const __grid_constant__ Layout layout, const __grid_constant__ Lin lin) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<T, key_dim, value_dim, with_output>;
  constexpr int scores = 64 / P::groups;  // columns of W that a warpgroup computes
  extern __shared__ uint8_t raw[];
  const uint32_t start = (shared_address(raw) + 1023) / 1024 * 1024;
  uint8_t* const base = raw + (start - shared_address(raw));
  uint8_t* const after = base + P::stages * P::stage_bytes + (with_output ? subtile_bytes : 0);
  const uint32_t w_tile = start + P::stages * P::stage_bytes;
  uint8_t* const w_memory = base + P::stages * P::stage_bytes;
  Gates* const gates = reinterpret_cast<Gates*>(after);

  const int64_t segment = blockIdx.x / layout.heads;
  const int h = static_cast<int>(blockIdx.x % layout.heads);
  const Place place = place_of(layout, segment);
  if (place.size <= 0) return;
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const bool same = key_dim == value_dim && lin.y.data == lin.z.data && lin.y.token == lin.z.token &&
                    lin.y.head == lin.z.head && lin.y.batch == lin.z.batch && lin.y.group == lin.z.group;
  const int64_t x_base = with_output ? lin.x.at(place.batch, 0, h) : 0, y_base = lin.y.at(place.batch, 0, h),
                z_base = lin.z.at(place.batch, 0, h), o_base = with_output ? lin.o.at(place.batch, 0, h) : 0;

  const int chunks = (place.size + chunk - 1) / chunk;
  auto y_at = [&](int stage) { return start + stage * P::stage_bytes; };
  auto z_at = [&](int stage) { return same ? y_at(stage) : y_at(stage) + P::wide; };
  auto x_at = [&](int stage) { return y_at(stage) + P::wide + P::tall; };
  auto fetch = [&](int c) {
    if (c < chunks) {
      const int stage = c % P::stages, size = min(chunk, place.size - c * chunk);
      const int64_t token = place.first + c * chunk;
      if constexpr (with_output) fetch_tile<T, key_dim, P::threads>(x_at(stage), lin.x, x_base, token, size);
      fetch_tile<T, key_dim, P::threads>(y_at(stage), lin.y, y_base, token, size);
      if (!same) fetch_tile<T, value_dim, P::threads>(z_at(stage), lin.z, z_base, token, size);
    }
    copies_commit();
  };
  auto prepare = [&](int c) {
    if (gated && threadIdx.x < 32 && c < chunks)
      prepare_gates(gates[c % 2], lin.gate, place.batch, place.first + c * chunk, h,
                    min(chunk, place.size - c * chunk));
  };

  for (int c = 0; c < P::stages - 1; ++c) fetch(c);
  prepare(0);
  // Accumulators: row warp * 16 + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1).
  const int row = group * 64 + warp * 16 + lane / 4, pair = 2 * (lane % 4);
  float state[key_dim / 2];
  float* const memory = lin.states + ((segment * layout.heads + h) * value_dim) * key_dim;
#pragma unroll
  for (int i = 0; i < key_dim / 2; ++i) state[i] = 0;
  if constexpr (with_output) {
#pragma unroll
    for (int j = 0; j < key_dim / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 two = *reinterpret_cast<const float2*>(
            memory + static_cast<int64_t>(row + 8 * half) * key_dim + 8 * j + pair);
        state[4 * j + 2 * half] = two.x;
        state[4 * j + 2 * half + 1] = two.y;
      }
  }
  float fade = 1;

  for (int c = 0; c < chunks; ++c) {
    const int stage = c % P::stages, size = min(chunk, place.size - c * chunk);
    const uint32_t x_tile = x_at(stage), y_tile = y_at(stage), z_tile = z_at(stage);
    const Gates& gate = gates[c % 2];
    fetch(c + P::stages - 1);
    copies_wait<P::stages - 1>();
    publish_stores();
    __syncthreads();
    prepare(c + 1);
    float o[32];
    if constexpr (with_output) {
      float w[scores / 2];
      uint32_t left[key_dim / 16][4];
#pragma unroll
      for (int k = 0; k < key_dim / 16; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          left[k][i] = Pair<T>::pack(state[8 * k + 2 * i], state[8 * k + 2 * i + 1]);
      products_begin();
#pragma unroll
      for (int k = 0; k < key_dim / 16; ++k)
        multiply<T, scores, 0, 0>(w, along_columns(x_tile, 0, k), along_columns(y_tile, group * scores, k),
                                  k > 0);
      products_commit();
#pragma unroll
      for (int k = 0; k < key_dim / 16; ++k)
        multiply<T, 64, 0>(o, left[k], along_columns(x_tile, 0, k), k > 0);
      products_commit();
      products_wait<1>();
      pin(w);
#pragma unroll
      for (int j = 0; j < scores / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = warp * 16 + lane / 4 + 8 * half, s = group * scores + 8 * j + pair;
          float low = t >= s ? w[4 * j + 2 * half] : 0.f, high = t > s ? w[4 * j + 2 * half + 1] : 0.f;
          if constexpr (gated) {
            const float sum = gate.sum[t];
            const int zeros = gate.zeros[t];
            low *= t >= s && gate.zeros[s] == zeros ? exp2f(sum - gate.sum[s]) : 0.f;
            high *= t > s && gate.zeros[s + 1] == zeros ? exp2f(sum - gate.sum[s + 1]) : 0.f;
          }
          *reinterpret_cast<uint32_t*>(w_memory + tile_offset(t, s)) = Pair<T>::pack(low, high);
        }
      products_wait<0>();
      pin(o);
      if constexpr (gated) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 by = *reinterpret_cast<const float2*>(gate.from_start + 8 * j + pair);
          o[4 * j] *= by.x, o[4 * j + 1] *= by.y, o[4 * j + 2] *= by.x, o[4 * j + 3] *= by.y;
        }
      }
      publish_stores();
      __syncthreads();
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk / 16; ++k)
        multiply<T, 64, 1, 0>(o, along_rows(z_tile, group * 64, k), along_columns(w_tile, 0, k), true);
      products_commit();
    }
    if constexpr (gated) {
      uint32_t faded[chunk / 16][4];
#pragma unroll
      for (int k = 0; k < chunk / 16; ++k) {
        const int t = 16 * k + lane / 16 * 8 + lane % 8, column = group * 64 + warp * 16 + lane / 8 % 2 * 8;
        load_transposed(faded[k], z_tile + tile_offset(t, column));
        const float2 first = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + pair),
                     last = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + 8 + pair);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 z = Pair<T>::unpack(faded[k][i]), by = i < 2 ? first : last;
          faded[k][i] = Pair<T>::pack(z.x * by.x, z.y * by.y);
        }
      }
      const float whole = gate.from_start[chunk - 1];
      fade *= whole;
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk / 16; ++k)
        multiply<T, key_dim, 1>(state, faded[k], along_rows(y_tile, 0, k), true);
      products_commit();
      products_wait<0>();
    } else {
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk / 16; ++k)
        multiply<T, key_dim, 1, 1>(state, along_rows(z_tile, group * 64, k), along_rows(y_tile, 0, k), true);
      products_commit();
      products_wait<0>();
    }
    pin(state);
    if constexpr (with_output) {
      pin(o);
      // Through the memory of the x tile (or z, where that is the wider one) to whole rows.
      if constexpr (value_dim > key_dim) __syncthreads();
      const uint32_t out_tile = value_dim > key_dim ? z_tile : x_tile;
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const int t = 8 * (j + lane / 16) + lane % 8, column = group * 64 + warp * 16 + lane / 8 % 2 * 8;
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          packed[i] = Pair<T>::pack(lin.x_scale * o[4 * j + 2 * i], lin.x_scale * o[4 * j + 2 * i + 1]);
        store_transposed(out_tile + tile_offset(t, column), packed[0], packed[1], packed[2], packed[3]);
      }
      barrier(1 + group, 128);
#pragma unroll
      for (int i = threadIdx.x % 128; i < chunk * 8; i += 128) {
        const int t = i / 8, column = group * 64 + i % 8 * 8;
        if (t < size) {
          const int64_t to = o_base + (place.first + c * chunk + t) * lin.o.token + column;
          *reinterpret_cast<uint4*>(static_cast<T*>(lin.o.data) + to) =
              *reinterpret_cast<const uint4*>(base + (out_tile - start) + tile_offset(t, column));
        }
      }
    }
    __syncthreads();
  }
  if constexpr (!with_output) {
#pragma unroll
    for (int j = 0; j < key_dim / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(memory + static_cast<int64_t>(row + 8 * half) * key_dim + 8 * j + pair) =
            make_float2(lin.y_scale * state[4 * j + 2 * half], lin.y_scale * state[4 * j + 2 * half + 1]);
    if (threadIdx.x == 0) lin.fade[segment * layout.heads + h] = fade;
  }
#endif
}

template <typename T, int key_dim, int value_dim, bool with_output, bool gated>
cudaError_t launch_one(const Context& context, const Lin& lin) {
  using P = Plan<T, key_dim, value_dim, with_output>;
  const auto kernel = lin_chunks<T, key_dim, value_dim, with_output, gated>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::bytes);
  if (error != cudaSuccess) return error;
  const int64_t blocks = context.layout.segments * context.layout.heads;
  if (blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(blocks), P::threads, P::bytes, context.stream>>>(context.layout, lin);
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

// Rows that 16-byte copies can take.
bool takes(const View& view, Type type) {
  return view.type == type && view.dim == 1 && (view.token | view.head | view.batch) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
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
  if (!takes(lin.y, lin.y.type) || !takes(lin.z, lin.y.type)) return false;
  return !lin.x.data || (lin.y_scale == 1 && takes(lin.x, lin.y.type) && takes(lin.o, lin.y.type));
}

cudaError_t launch_wgmma_states(const Context& context, const Lin& lin) {
  return launch<false>(context, lin);
}
cudaError_t launch_wgmma_rows(const Context& context, const Lin& lin) { return launch<true>(context, lin); }

}  // namespace attest::cuda
