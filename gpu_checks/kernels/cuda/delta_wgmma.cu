// The gated delta rule, plain and with levels, on Hopper's matrix units; chunks of 64, key and value dimension 64 or 128.
//   prepare (chunks in parallel): N = I + stril(beta K K^T o G), X = N^-1 (fp32: 16 x 16 blocks by substitution, then
//     joined twice), T = X beta, U = T V, W = T g K; with levels Q' = g Q - (P T g) K and O = ((P T) o Lambda) V besides.
//   walk (along the chunks of a segment, S^T in accumulators): R = U - S W^T, O = g Q S + P R, S <- G S + (g' R)^T K.
// Plain: a segment's own state and its transition (the same walk from S = I without U), a scan over segments, rows.
// Levels: for each j the blocks of 2^j chunks in pairs: the left one's state walks through the right one, read with
//   lambda^(j+7), and joins the right one's state for the next j. Rows are summed in fp32.
// Floor at T = 131072, H = 16, d = dv = 128: plain 2 c^2 d x 5 + 2 c d^2 x 3 products, 378 GFLOP, 0.50 ms; with levels
//   (1 + 3 x 5.5) 2 c d^2 + 8 c^2 d: 1.3 TFLOP, 1.8 ms; chain T / c chunks; input and output 0.50 ms.
#include "gpu_checks/kernels/cuda/gates.cuh"

namespace attest::cuda {
namespace {

constexpr int padded = 68;  // floats of a row of a 64 x 64 matrix

template <int dim, bool levels>
struct PreparePlan {
  static constexpr int tile = dim / 64 * subtile_bytes;
  static constexpr int k_at = 0, v_at = tile, q_at = 2 * tile, t_at = (levels ? 3 : 2) * tile,
                       t2_at = t_at + subtile_bytes, p_at = t2_at + subtile_bytes,
                       n_at = p_at + (levels ? subtile_bytes : 0), x_at = n_at + 64 * padded * 4,
                       y_at = x_at + 64 * padded * 4, gates_at = y_at + 32 * 36 * 4,
                       beta_at = gates_at + static_cast<int>(sizeof(Gates)), bytes = 1024 + beta_at + 64 * 4;
  // The products with P T and P T g take the place of n (two subtiles of 8 KB, rounded up to 1 KB).
};

// X[r0.., c0..] = -X[r0.., r0..] N[r0.., c0..] X[c0.., c0..] for blocks of `size`, all in shared memory, `threads` threads.
template <int size>
__device__ inline void join_blocks(const float* n, float* x, float* y, int pairs) {
  for (int i = threadIdx.x; i < pairs * size * size; i += 256) {
    const int pair = i / (size * size), r = i / size % size, c = i % size, first = pair * 2 * size,
              second = first + size;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < size; ++k)
      sum = fmaf(n[(second + r) * padded + first + k], x[(first + k) * padded + first + c], sum);
    y[(pair * size + r) * 36 + c] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < pairs * size * size; i += 256) {
    const int pair = i / (size * size), r = i / size % size, c = i % size, first = pair * 2 * size,
              second = first + size;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < size; ++k)
      sum = fmaf(x[(second + r) * padded + second + k], y[(pair * size + k) * 36 + c], sum);
    x[(second + r) * padded + first + c] = -sum;
  }
  __syncthreads();
}

template <typename T, int dim, bool levels>
__global__ void __launch_bounds__(256, 2)
    prepare_chunks(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = PreparePlan<dim, levels>;
  extern __shared__ uint8_t shared[];
  const uint32_t start = (shared_address(shared) + 1023) / 1024 * 1024;
  uint8_t* const base = shared + (start - shared_address(shared));
  Gates& gate = *reinterpret_cast<Gates*>(base + P::gates_at);
  float* const betas = reinterpret_cast<float*>(base + P::beta_at);
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
                 t_tile = start + P::t_at, t2_tile = start + P::t2_at, p_tile = start + P::p_at;
  fetch_tile<T, dim, 256>(k_tile, job.k, job.k.at(place.batch, 0, h), token, size);
  fetch_tile<T, dim, 256>(v_tile, job.v, job.v.at(place.batch, 0, h), token, size);
  if constexpr (levels) fetch_tile<T, dim, 256>(q_tile, job.q, job.q.at(place.batch, 0, h), token, size);
  copies_commit();
  if (threadIdx.x < 64)
    betas[threadIdx.x] = threadIdx.x < size ? job.beta.read(place.batch, token + threadIdx.x, h, 0) : 0.f;
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
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4,
            pair = 2 * (lane % 4);
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
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = warp * 16 + lane / 4 + i / 2 * 8, s = group * 32 + 8 * j + pair + i % 2;
      const bool live = t > s && gate.zeros[s] == gate.zeros[t];
      n[t * padded + s] = live ? betas[t] * exp2f(gate.sum[t] - gate.sum[s]) * w[4 * j + i] : 0.f;
      x[t * padded + s] = t == s ? 1.f : 0.f;
    }
  if constexpr (levels) {
    pin(p);
    store_scores<T, 32, true>(p, base + P::p_at, group, &gate);
  }
  __syncthreads();
  if (threadIdx.x < 64) {  // the inverses of the four 16 x 16 blocks of the diagonal, a column a thread
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
  join_blocks<32>(n, x, y, 1);
  for (int i = threadIdx.x; i < 64 * 32; i += 256) {
    const int t = i / 32, s = i % 32 * 2;
    const float low = x[t * padded + s] * betas[s], high = x[t * padded + s + 1] * betas[s + 1];
    *reinterpret_cast<uint32_t*>(base + P::t_at + tile_offset(t, s)) = Pair<T>::pack(low, high);
    *reinterpret_cast<uint32_t*>(base + P::t2_at + tile_offset(t, s)) =
        Pair<T>::pack(low * gate.from_start[s], high * gate.from_start[s + 1]);
  }
  publish_stores();
  __syncthreads();
  // The first warpgroup multiplies by V, the second by K.
  const uint32_t mine = group == 0 ? t_tile : t2_tile, rows_tile = group == 0 ? v_tile : k_tile;
  float wide[dim / 2];
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    multiply<T, dim, 0, 1>(wide, along_columns(mine, 0, k), along_rows(rows_tile, 0, k), k > 0);
  products_commit();
  products_wait<0>();
  pin(wide);
  const View& out = group == 0 ? job.u : job.w;
  const int64_t out_base = out.at(place.batch, token, h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = warp * 16 + lane / 4 + 8 * half;
    if (t < size)
#pragma unroll
      for (int j = 0; j < dim / 8; ++j)
        *reinterpret_cast<uint32_t*>(static_cast<T*>(out.data) + out_base + t * out.token + 8 * j + pair) =
            Pair<T>::pack(wide[4 * j + 2 * half], wide[4 * j + 2 * half + 1]);
  }
  if constexpr (levels) {
    float m[32];
    uint8_t* const m_memory = base + (P::n_at + 1023) / 1024 * 1024 + group * subtile_bytes;
    const uint32_t m_tile = start + (P::n_at + 1023) / 1024 * 1024 + group * subtile_bytes;
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply<T, 64, 0, 1>(m, along_columns(p_tile, 0, k), along_rows(mine, 0, k), k > 0);
    products_commit();
    products_wait<0>();
    pin(m);
    const int64_t position = token - (layout.bounds ? layout.bounds[place.sequence] : 0);
    static_cast<void>(position);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = warp * 16 + lane / 4 + 8 * half;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int s = 8 * j + pair;
        float low = m[4 * j + 2 * half], high = m[4 * j + 2 * half + 1];
        if (group == 0) {
          low = t >= s && t < size ? low * job.level_scales.read(place.batch, token + t, h, 32 - __clz(t ^ s))
                                   : 0.f;
          high = t > s && t < size
                     ? high * job.level_scales.read(place.batch, token + t, h, 32 - __clz(t ^ (s + 1)))
                     : 0.f;
        }
        *reinterpret_cast<uint32_t*>(m_memory + tile_offset(t, s)) = Pair<T>::pack(low, high);
      }
    }
    publish_stores();
    barrier(1 + group, 128);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply<T, dim, 0, 1>(wide, along_columns(m_tile, 0, k), along_rows(rows_tile, 0, k), k > 0);
    products_commit();
    products_wait<0>();
    pin(wide);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = warp * 16 + lane / 4 + 8 * half;
      if (t >= size) continue;
      if (group == 0) {
        float* const row = job.sums + ((place.batch * layout.tokens + token + t) * layout.heads + h) * dim;
#pragma unroll
        for (int j = 0; j < dim / 8; ++j)
          *reinterpret_cast<float2*>(row + 8 * j + pair) =
              make_float2(wide[4 * j + 2 * half], wide[4 * j + 2 * half + 1]);
      } else {
        T* const row = static_cast<T*>(job.q2.data) + job.q2.at(place.batch, token + t, h);
        const float by = gate.from_start[t];
#pragma unroll
        for (int j = 0; j < dim / 8; ++j) {
          const float2 q = Pair<T>::unpack(
              *reinterpret_cast<const uint32_t*>(base + P::q_at + tile_offset(t, 8 * j + pair)));
          *reinterpret_cast<uint32_t*>(row + 8 * j + pair) = Pair<T>::pack(
              fmaf(by, q.x, -wide[4 * j + 2 * half]), fmaf(by, q.y, -wide[4 * j + 2 * half + 1]));
        }
      }
    }
  }
#endif
}

enum class Mode { states, rows, level };

template <int dim, Mode mode>
struct WalkPlan {
  static constexpr int groups = dim / 64, threads = 128 * groups, stages = 3, tile = dim / 64 * subtile_bytes;
  static constexpr int tiles = mode == Mode::states ? 3 : 4, stage_bytes = tiles * tile;  // k, w, u, q
  static constexpr int p_at = stages * stage_bytes,
                       gates_at = p_at + (mode == Mode::rows ? 2 * subtile_bytes : 0);
  static constexpr int bytes = 1024 + gates_at + 3 * static_cast<int>(sizeof(Gates));
};

// states: blockIdx.x = (segment, head, kind); kind 0 the segment's state, 1 its transition, from the identity.
// rows: (segment, head), from the scanned states. level: (sequence, pair of blocks, head).
template <typename T, int dim, Mode mode>
__global__ void __launch_bounds__(WalkPlan<dim, mode>::threads, 1)
    walk_chunks(const __grid_constant__ Layout layout, const __grid_constant__ Delta job, int level) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = WalkPlan<dim, mode>;
  constexpr int scores = 64 / P::groups;
  extern __shared__ uint8_t shared[];
  const uint32_t start = (shared_address(shared) + 1023) / 1024 * 1024;
  uint8_t* const base = shared + (start - shared_address(shared));
  Gates* const gates = reinterpret_cast<Gates*>(base + P::gates_at);
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4,
            pair = 2 * (lane % 4);
  const int row = group * 64 + warp * 16 + lane / 4;
  constexpr int64_t state_size = int64_t{dim} * dim;

  Place place;
  int h, chunks, silent = 0;  // silent: first chunks without output
  bool inject = true;
  int64_t block = blockIdx.x, left_state = 0, joined = -1;
  if constexpr (mode == Mode::states) {
    inject = block % 2 == 0;
    block /= 2;
  }
  h = static_cast<int>(block % layout.heads);
  block /= layout.heads;
  if constexpr (mode == Mode::level) {
    const int64_t all = (layout.tokens + chunk - 1) / chunk, half = int64_t{1} << level;
    const int64_t pairs = (all - half + 2 * half - 1) / (2 * half), sequence = block / pairs,
                  which = block % pairs;
    const int64_t right = which * 2 * half + half;
    inject = level == 0;
    const int64_t first = inject ? right - half : right, last = min(all, right + half);
    place.sequence = static_cast<int>(sequence), place.batch = sequence, place.first = first * chunk;
    place.size = static_cast<int>(min(layout.tokens, last * chunk) - place.first);
    silent = inject ? 1 : 0;
    const int64_t blocks = (all + half - 1) / half;
    left_state = ((sequence * blocks + 2 * which) * layout.heads + h) * state_size;
    if (right + half <= all) {
      const int64_t above = (all + 2 * half - 1) / (2 * half);
      joined = ((sequence * above + which) * layout.heads + h) * state_size;
    }
  } else {
    place = place_of(layout, block);
  }
  if (place.size <= 0) return;
  chunks = (place.size + chunk - 1) / chunk;

  const View& query = mode == Mode::level ? job.q2 : job.q;
  const int64_t k_base = job.k.at(place.batch, 0, h), w_base = job.w.at(place.batch, 0, h),
                u_base = job.u.at(place.batch, 0, h),
                q_base = mode == Mode::states ? 0 : query.at(place.batch, 0, h);
  auto size_of = [&](int c) { return min(chunk, place.size - c * chunk); };
  auto tile_of = [&](int c, int which) { return start + c % P::stages * P::stage_bytes + which * P::tile; };
  auto fetch = [&](int c) {
    if (c < chunks) {
      const int64_t token = place.first + c * chunk;
      fetch_tile<T, dim, P::threads>(tile_of(c, 0), job.k, k_base, token, size_of(c));
      fetch_tile<T, dim, P::threads>(tile_of(c, 1), job.w, w_base, token, size_of(c));
      if (inject) fetch_tile<T, dim, P::threads>(tile_of(c, 2), job.u, u_base, token, size_of(c));
      if constexpr (mode != Mode::states)
        fetch_tile<T, dim, P::threads>(tile_of(c, 3), query, q_base, token, size_of(c));
    }
    copies_commit();
  };
  const bool maker = threadIdx.x / 32 == 3;
  float raw[2] = {1, 1};
  auto read_gates = [&](int c) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = c * chunk + 2 * lane + i; t < place.size)
        raw[i] = job.gate.raw(place.batch, place.first + t, h);
  };
  auto make_gates = [&](int c) {
    if (c >= chunks) return;
    prepare_gates(gates[c % 3], job.gate, raw, size_of(c));
    read_gates(c + 1);
  };
  if (maker) {
    read_gates(0);
    make_gates(0);
    make_gates(1);
  }
  fetch(0);
  fetch(1);
  float state[dim / 2], w[scores / 2];
  {
    const float* from = nullptr;
    if (mode == Mode::rows) from = job.states + (block * layout.heads + h) * state_size;
    if (mode == Mode::level && !inject) from = job.level_states[level] + left_state;
#pragma unroll
    for (int j = 0; j < dim / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row + i / 2 * 8, c = 8 * j + pair + i % 2;
        state[4 * j + i] = from ? from[r * dim + c] : mode == Mode::states && !inject && r == c ? 1.f : 0.f;
      }
  }
  auto start_scores = [&](int c) {
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
      multiply<T, scores, 0, 0>(w, along_columns(tile_of(c, 3), 0, k),
                                along_columns(tile_of(c, 0), group * scores, k), k > 0);
    products_commit();
  };
  auto p_at = [&](int c) { return P::p_at + c % 2 * subtile_bytes; };
  if constexpr (mode == Mode::rows) {
    copies_wait<0>();
    publish_stores();
    __syncthreads();
    products_begin();
    start_scores(0);
    products_wait<0>();
    pin(w);
    store_scores<T, scores, true>(w, base + p_at(0), group, &gates[0]);
  }
  for (int c = 0; c < chunks; ++c) {
    copies_wait<mode == Mode::rows ? 0 : 1>();
    publish_stores();
    __syncthreads();
    fetch(c + 2);
    const Gates& gate = gates[c % 3];
    const uint32_t k_tile = tile_of(c, 0), w_tile = tile_of(c, 1), u_tile = tile_of(c, 2),
                   q_tile = tile_of(c, 3);
    float removed[32], o[32];
    {
      uint32_t left[dim / 16][4];
#pragma unroll
      for (int k = 0; k < dim / 16; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          left[k][i] = Pair<T>::pack(state[8 * k + 2 * i], state[8 * k + 2 * i + 1]);
      products_begin();
#pragma unroll
      for (int k = 0; k < dim / 16; ++k)
        multiply<T, 64, 0>(removed, left[k], along_columns(w_tile, 0, k), k > 0);
      products_commit();
      if constexpr (mode != Mode::states) {
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(q_tile, 0, k), k > 0);
        products_commit();
      }
      if constexpr (mode == Mode::rows) start_scores(c + 1);  // past the end: of nothing, and not used
      if (maker) make_gates(c + 2);
      products_wait<mode == Mode::states ? 0 : mode == Mode::rows ? 2 : 1>();
      pin(removed);
    }
    // R = U - W S, as it is and faded to the end, both as left operands.
    uint32_t rest[4][4], faded[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t u[4] = {0, 0, 0, 0};
      if (inject)
        load_transposed(u, u_tile + tile_offset(16 * k + lane / 16 * 8 + lane % 8,
                                                group * 64 + warp * 16 + lane / 8 % 2 * 8));
      const float2 first = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + pair),
                   last = *reinterpret_cast<const float2*>(gate.to_end + 16 * k + 8 + pair);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 own = Pair<T>::unpack(u[i]), by = i < 2 ? first : last;
        const int at = 4 * (2 * k + i / 2) + 2 * (i % 2);
        const float low = own.x - removed[at], high = own.y - removed[at + 1];
        if constexpr (mode == Mode::rows) rest[k][i] = Pair<T>::pack(low, high);
        faded[k][i] = Pair<T>::pack(low * by.x, high * by.y);
      }
    }
    const float whole = gate.from_start[chunk - 1];
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) state[i] *= whole;
    if constexpr (mode == Mode::rows) {
      products_wait<1>();
      pin(o);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 by = *reinterpret_cast<const float2*>(gate.from_start + 8 * j + pair);
        o[4 * j] *= by.x, o[4 * j + 1] *= by.y, o[4 * j + 2] *= by.x, o[4 * j + 3] *= by.y;
      }
    }
    products_begin();
    if constexpr (mode == Mode::rows) {
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<T, 64, 0>(o, rest[k], along_columns(start + p_at(c), 0, k), true);
      products_commit();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply<T, dim, 1>(state, faded[k], along_rows(k_tile, 0, k), true);
    products_commit();
    if constexpr (mode == Mode::rows) {
      products_wait<2>();
      pin(w);
      if (c + 1 < chunks) store_scores<T, scores, true>(w, base + p_at(c + 1), group, &gates[(c + 1) % 3]);
      products_wait<1>();
      pin(o);
      // Through this warpgroup's half of the tile of u, which it alone has read.
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const int t = 8 * (j + lane / 16) + lane % 8, column = group * 64 + warp * 16 + lane / 8 % 2 * 8;
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          packed[i] = Pair<T>::pack(job.scale * o[4 * j + 2 * i], job.scale * o[4 * j + 2 * i + 1]);
        store_transposed(u_tile + tile_offset(t, column), packed[0], packed[1], packed[2], packed[3]);
      }
      barrier(1 + group, 128);
      const int64_t o_base = job.o.at(place.batch, 0, h);
#pragma unroll
      for (int i = threadIdx.x % 128; i < chunk * 8; i += 128) {
        const int t = i / 8, column = group * 64 + i % 8 * 8;
        if (t < size_of(c))
          *reinterpret_cast<uint4*>(static_cast<T*>(job.o.data) + o_base +
                                    (place.first + c * chunk + t) * job.o.token + column) =
              *reinterpret_cast<const uint4*>(base + (u_tile - start) + tile_offset(t, column));
      }
    }
    if constexpr (mode == Mode::level) {
      products_wait<1>();
      pin(o);
      if (c >= silent) {
        const int64_t token = place.first + c * chunk;
        const int64_t step = static_cast<int64_t>(layout.heads) * dim;
        float* const sums = job.sums + ((place.batch * layout.tokens + token) * layout.heads + h) * dim + row;
        const int size = size_of(c);
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {  // all loads of a quarter before its first store
          float before[4][2], scale[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int t = 8 * (2 * quarter + i / 2) + pair + i % 2;
            const bool inside = t < size;
            before[i][0] = inside ? __ldcg(sums + t * step) : 0.f;
            before[i][1] = inside ? __ldcg(sums + t * step + 8) : 0.f;
            scale[i] = inside ? job.level_scales.read(place.batch, token + t, h, level + 7) : 0.f;
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int j = 2 * quarter + i / 2, t = 8 * j + pair + i % 2;
            if (t >= size) continue;
            sums[t * step] = fmaf(scale[i], o[4 * j + i % 2], before[i][0]);
            sums[t * step + 8] = fmaf(scale[i], o[4 * j + 2 + i % 2], before[i][1]);
          }
        }
      }
    }
    products_wait<0>();
    pin(state);
  }
  if constexpr (mode == Mode::rows) return;
  float* to = nullptr;
  const float* other = nullptr;
  if (mode == Mode::states)
    to = (inject ? job.states : job.transitions) + (block * layout.heads + h) * state_size;
  if (mode == Mode::level && joined >= 0) {
    to = job.level_states[level + 1] + joined;
    if (!inject) other = job.level_states[level] + left_state + layout.heads * state_size;
  }
  if (!to) return;
#pragma unroll
  for (int j = 0; j < dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = (row + 8 * half) * dim + 8 * j + pair;
      float2 value = make_float2(state[4 * j + 2 * half], state[4 * j + 2 * half + 1]);
      if (other) value.x += other[at], value.y += other[at + 1];
      *reinterpret_cast<float2*>(to + at) = value;
    }
#endif
}

// S at the start of every segment: S <- Phi S + own. Rows of S^T are independent; a block takes 8 of them.
template <int dim>
__global__ void scan_transitions(Layout layout, Delta job) {
  constexpr int rows = 8;
  __shared__ float current[rows][dim];
  const int per_head = dim / rows, first_row = blockIdx.x % per_head * rows, k = threadIdx.x;
  const int64_t slot = blockIdx.x / per_head;
  const int sequence = static_cast<int>(slot / layout.heads), h = static_cast<int>(slot % layout.heads);
  auto state_index = [&](int r) { return (slot * dim + k) * dim + first_row + r; };  // of S (key, value)
  float own[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r)
    own[r] = job.initial.data ? load(job.initial.data, state_index(r), job.initial.type) : 0.f;
  const int64_t first = first_segment(layout, sequence), count = segment_count(layout, sequence);
  for (int64_t i = 0; i < count; ++i) {
    float* const states = job.states + ((first + i) * layout.heads + h) * dim * dim + first_row * dim + k;
    const float* const transition = job.transitions + ((first + i) * layout.heads + h) * dim * dim + k;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < rows; ++r) current[r][k] = own[r];
    __syncthreads();
    const bool needed = i + 1 < count || job.final.data;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      own[r] = needed ? states[r * dim] : 0.f;
      states[r * dim] = current[r][k];
    }
    if (!needed) break;
#pragma unroll 8
    for (int j = 0; j < dim; ++j) {
      const float phi = transition[j * dim];
#pragma unroll
      for (int r = 0; r < rows; ++r) own[r] = fmaf(current[r][j], phi, own[r]);
    }
  }
  if (job.final.data)
#pragma unroll
    for (int r = 0; r < rows; ++r) store(job.final.data, state_index(r), job.final.type, own[r]);
}

__global__ void round_rows(Layout layout, int64_t batch, Delta job, int dim) {
  const int64_t rows = batch * layout.tokens * layout.heads;
  for (int64_t i = blockIdx.x * int64_t{8} + threadIdx.y; i < rows; i += gridDim.x * int64_t{8}) {
    const int h = static_cast<int>(i % layout.heads);
    const int64_t t = i / layout.heads % layout.tokens, b = i / layout.heads / layout.tokens;
    for (int c = threadIdx.x; c < dim; c += 32) job.o.write(b, t, h, c, job.scale * job.sums[i * dim + c]);
  }
}

template <typename K>
cudaError_t raise(K kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <typename T, int dim>
cudaError_t launch_dim(const Context& context, const Delta& job) {
  const Layout& layout = context.layout;
  const cudaStream_t stream = context.stream;
  const int64_t segments = layout.segments * layout.heads, chunks = segments * (layout.segment / chunk);
  const int64_t heads = static_cast<int64_t>(layout.sequences) * layout.heads;
  cudaError_t error = cudaSuccess;
  auto failed = [&](cudaError_t e) { return (error = e) != cudaSuccess; };
  if (job.levels > 0) {
    if (segments == 0) return cudaSuccess;
    using P = PreparePlan<dim, true>;
    using W = WalkPlan<dim, Mode::level>;
    if (failed(raise(prepare_chunks<T, dim, true>, P::bytes)) ||
        failed(raise(walk_chunks<T, dim, Mode::level>, W::bytes)))
      return error;
    prepare_chunks<T, dim, true><<<grid_of(chunks), 256, P::bytes, stream>>>(layout, job);
    if (failed(cudaGetLastError())) return error;
    const int64_t all = (layout.tokens + chunk - 1) / chunk;
    for (int level = 0; (int64_t{1} << level) < all; ++level) {
      const int64_t half = int64_t{1} << level, pairs = (all - half + 2 * half - 1) / (2 * half);
      walk_chunks<T, dim, Mode::level>
          <<<grid_of(pairs * heads), W::threads, W::bytes, stream>>>(layout, job, level);
      if (failed(cudaGetLastError())) return error;
    }
    round_rows<<<132 * 16, dim3(32, 8), 0, stream>>>(layout, context.batch, job, dim);
    return cudaGetLastError();
  }
  using P = PreparePlan<dim, false>;
  using S = WalkPlan<dim, Mode::states>;
  using R = WalkPlan<dim, Mode::rows>;
  if (failed(raise(prepare_chunks<T, dim, false>, P::bytes)) ||
      failed(raise(walk_chunks<T, dim, Mode::states>, S::bytes)) ||
      failed(raise(walk_chunks<T, dim, Mode::rows>, R::bytes)))
    return error;
  if (segments > 0) {
    prepare_chunks<T, dim, false><<<grid_of(chunks), 256, P::bytes, stream>>>(layout, job);
    if (failed(cudaGetLastError())) return error;
    if (job.final.data || layout.bounds || layout.per_sequence > 1) {
      walk_chunks<T, dim, Mode::states>
          <<<grid_of(2 * segments), S::threads, S::bytes, stream>>>(layout, job, 0);
      if (failed(cudaGetLastError())) return error;
    }
  }
  if (heads == 0) return cudaSuccess;
  scan_transitions<dim><<<grid_of(heads * (dim / 8)), dim, 0, stream>>>(layout, job);
  if (failed(cudaGetLastError()) || segments == 0) return error;
  walk_chunks<T, dim, Mode::rows><<<grid_of(segments), R::threads, R::bytes, stream>>>(layout, job, 0);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_dims(const Context& context, const Delta& job) {
  if (job.dim == 64) return launch_dim<T, 64>(context, job);
#if !defined(ATTEST_CUDA_SMALL) || defined(ATTEST_CUDA_WIDE)
  if (job.dim == 128) return launch_dim<T, 128>(context, job);
#endif
  return cudaErrorInvalidValue;
}

}  // namespace

bool delta_supports(const Context& context, const Delta& job, Type type) {
  if (!context.hopper || (job.dim != 64 && job.dim != 128)) return false;
#ifdef ATTEST_CUDA_SMALL
  if (type != Type::bf16) return false;
#ifndef ATTEST_CUDA_WIDE
  if (job.dim != 64) return false;
#endif
#endif
  if (type != Type::bf16 && type != Type::f16) return false;
  return takes_whole_rows(job.q, type) && takes_whole_rows(job.k, type) && takes_whole_rows(job.v, type) &&
         takes_whole_rows(job.o, type);
}

cudaError_t launch_delta(const Context& context, const Delta& job) {
#ifndef ATTEST_CUDA_SMALL
  if (job.k.type == Type::f16) return launch_dims<__half>(context, job);
#endif
  return launch_dims<__nv_bfloat16>(context, job);
}

}  // namespace attest::cuda
