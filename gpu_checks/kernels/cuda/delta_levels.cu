// The log-linear gated delta rule on matrix units, from position 0: chunks of 64 tokens, dimension 64 or 128.
// A block of 2^j chunks has a state S and a transition g I + D, blocks join as a monoid, and a query walks back:
//   S_AB = g_B S_A + D_B S_A + S_B, D_AB = g_B D_A + g_A D_B + D_B D_A;  O += lambda^(b+7) Q S_b, Q <- g_b Q + Q D_b
// over the set bits b of a chunk's number from the lowest up (log_linear_chunks.cu: the blocks and their slots). So nothing
// walks along the sequence: (1) prepare (delta_prepare.cuh), (2) eight chunks at a time by their ranks of 64,
// (3) pairs of blocks, a launch a level, (4) rows. S, D and Q are carried in fp32 and rounded as operands alone.
// Floor at T = 131072, H = 16, d = dv = 128, in products of 2 c d^2 a chunk: prepare 2.8, (2) 5.6, (3) 0.5, (4) 0.5 + 2 x 5.5:
// 20 of them, 1.4 TFLOP, 1.9 ms at 750 TFLOP/s; walking every live state instead takes 3 x 5.5 + 1 and prepare, as many.
// Bytes: q k v o u w Q' M 4.8 GB, slots 2.1 GB written, fp32 blocks 1.6 GB: 2.0 ms at 4.3 TB/s; slots read 6 GB, from L2.
#include <algorithm>

#include "gpu_checks/kernels/cuda/delta_prepare.cuh"

namespace attest::cuda {
namespace {

constexpr int group_chunks = 8;  // of one block of (2)
constexpr int group_level = 3;

template <int dim>
struct Sizes {
  static constexpr int threads = 2 * dim, tile = dim / 64 * subtile_bytes, matrix = dim * dim * 2;
  static constexpr int stages = 3, gates_at = stages * 3 * tile;  // k, w, u
  static constexpr int walk_bytes = 1024 + gates_at + stages * static_cast<int>(sizeof(Gates));
  static constexpr int join_bytes = 1024 + matrix;
};
template <int dim, MatrixUnits units>
struct ReadPlan {
  static constexpr int stages = units == MatrixUnits::wgmma ? 3 : 2, matrix = Sizes<dim>::matrix,
                       v_at = stages * 2 * matrix, bytes = 1024 + v_at + 2 * Sizes<dim>::tile;
};

// Where a thread's accumulators of a (dim, dim) matrix begin: all warps below each other.
__device__ inline int row_of_state() { return static_cast<int>(threadIdx.x) / 32 * 16 + Thread().lane / 4; }

// A (dim, dim) matrix of a slot, 64-column subtiles of dim rows: read along its columns or its rows.
template <int dim>
__device__ inline int matrix_offset(int row, int column) {
  return column / 64 * (dim * 128) + row * 128 + ((column % 64 / 8) ^ (row & 7)) * 16 + column % 8 * 2;
}
template <typename T, int dim>
__device__ inline void store_matrix(uint8_t* matrix, const float (&d)[dim / 2], float diagonal = 0) {
  const int row = row_of_state(), pair = Thread().pair;
#pragma unroll
  for (int j = 0; j < dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half, c = 8 * j + pair;
      *reinterpret_cast<uint32_t*>(matrix + matrix_offset<dim>(r, c)) =
          Pair<T>::pack(d[4 * j + 2 * half] - (r == c ? diagonal : 0.f),
                        d[4 * j + 2 * half + 1] - (r == c + 1 ? diagonal : 0.f));
    }
}

// Block `index` of a level as floats, thread by thread: (block, head, {S^T, D^T}, step, thread, 4).
template <int dim>
__device__ inline float4* node_of(float* nodes, int64_t index, int heads, int h, int kind) {
  return reinterpret_cast<float4*>(nodes) + ((index * heads + h) * 2 + kind) * (dim * dim / 4) + threadIdx.x;
}
template <int dim>
__device__ inline void store_node(float4* node, const float (&d)[dim / 2], float diagonal = 0) {
  const int row = row_of_state(), pair = Thread().pair;
#pragma unroll
  for (int j = 0; j < dim / 8; ++j) {
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four[i] = d[4 * j + i] - (row + i / 2 * 8 == 8 * j + pair + i % 2 ? diagonal : 0.f);
    node[j * 2 * dim] = make_float4(four[0], four[1], four[2], four[3]);
  }
}
template <int dim>
__device__ inline void load_node(float (&d)[dim / 2], const float4* node) {
#pragma unroll
  for (int j = 0; j < dim / 8; ++j) {
    const float4 four = node[j * 2 * dim];
    d[4 * j] = four.x, d[4 * j + 1] = four.y, d[4 * j + 2] = four.z, d[4 * j + 3] = four.w;
  }
}

// The slot of the block that ends with this chunk.
template <int dim>
__device__ inline uint8_t* slot_matrix(const Delta& job, int64_t slot, int kind) {
  return static_cast<uint8_t*>(job.slots) + (slot * 2 + kind) * Sizes<dim>::matrix;
}

// S^T or the transition's transpose through one chunk, whose keys are faded: R = U - S W^T, S <- G S + R^T (g' K).
template <typename T, int dim>
__device__ inline void advance(float (&state)[dim / 2], uint32_t tiles, bool inject, float whole) {
  const int lane = threadIdx.x % 32;
  const uint32_t k_tile = tiles, w_tile = tiles + Sizes<dim>::tile, u_tile = w_tile + Sizes<dim>::tile;
  uint32_t left[dim / 16][4];
  pack_left<T>(left, state);
  float removed[32];
  products_begin();
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) multiply<T, 64, 0>(removed, left[k], along_columns(w_tile, 0, k), k > 0);
  products_commit();
#pragma unroll
  for (int i = 0; i < dim / 2; ++i) state[i] *= whole;
  products_wait<0>();
  pin(removed);
  uint32_t rest[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t u[4] = {0, 0, 0, 0};
    if (inject)
      load_transposed(u, u_tile + tile_offset(16 * k + lane / 16 * 8 + lane % 8,
                                              static_cast<int>(threadIdx.x) / 32 * 16 + lane / 8 % 2 * 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 own = Pair<T>::unpack(u[i]);
      const int at = 4 * (2 * k + i / 2) + 2 * (i % 2);
      rest[k][i] = Pair<T>::pack(own.x - removed[at], own.y - removed[at + 1]);
    }
  }
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply<T, dim, 1>(state, rest[k], along_rows(k_tile, 0, k), true);
  products_commit();
  products_wait<0>();
  pin(state);
}

// (group of 8 chunks, head, {S, transition}): the blocks that begin in the group, along its whole chunks. `all` holds every
// chunk so far, `part` the chunks since 2, 4 or 6.
template <typename T, int dim>
__global__ void __launch_bounds__(Sizes<dim>::threads, 1)
    walk_groups(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  using P = Sizes<dim>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  const int kind = static_cast<int>(blockIdx.x % 2);
  const int h = static_cast<int>(blockIdx.x / 2 % layout.heads);
  const int64_t per_sequence = (layout.tokens + chunk - 1) / chunk, whole = layout.tokens / chunk,
                groups = (whole + group_chunks - 1) / group_chunks,
                sequence = blockIdx.x / 2 / layout.heads / groups,
                group = blockIdx.x / 2 / layout.heads % groups, first = group * group_chunks;
  const int chunks = static_cast<int>(min(int64_t{group_chunks}, whole - first));
  const int64_t k_base = job.k.at(sequence, 0, h), w_base = job.w.at(sequence, 0, h),
                u_base = job.u.at(sequence, 0, h);
  auto tiles_of = [&](int c) { return start + c % P::stages * 3 * P::tile; };
  auto fetch = [&](int c) {
    if (c < chunks) {
      const int64_t token = (first + c) * chunk;
      fetch_tile<T, dim, P::threads>(tiles_of(c), job.k, k_base, token, chunk);
      fetch_tile<T, dim, P::threads>(tiles_of(c) + P::tile, job.w, w_base, token, chunk);
      if (kind == 0) fetch_tile<T, dim, P::threads>(tiles_of(c) + 2 * P::tile, job.u, u_base, token, chunk);
    }
    copies_commit();
  };
  GateWalk<P::stages> gates{job.gate,
                            reinterpret_cast<Gates*>(base + P::gates_at),
                            sequence,
                            first * chunk,
                            h,
                            chunks * chunk,
                            threadIdx.x / 32 == 3};
  gates.begin(1);
  fetch(0);
  fetch(1);
  const int row = row_of_state(), pair = Thread().pair;
  float all[dim / 2], part[dim / 2], all_fade = 1, part_fade = 1;
  auto begin = [&](float(&state)[dim / 2]) {
#pragma unroll
    for (int i = 0; i < dim / 2; ++i)
      state[i] = kind == 1 && row + i % 4 / 2 * 8 == 8 * (i / 4) + pair + i % 2 ? 1.f : 0.f;
  };
  auto leave = [&](int c, const float(&state)[dim / 2], float fade) {
    const int64_t slot = (sequence * per_sequence + first + c) * layout.heads + h;
    store_matrix<T, dim>(slot_matrix<dim>(job, slot, kind), state, kind == 1 ? fade : 0.f);
    if (kind == 0 && threadIdx.x == 0) job.slot_fades[slot] = fade;
  };
  begin(all);
  for (int c = 0; c < chunks; ++c) {
    copies_wait<1>();
    publish_stores();
    __syncthreads();
    fetch(c + 2);
    const Gates& gate = gates.at(c);
    const float fade = gate.from_start[chunk - 1];
    fade_rows<T, dim, P::threads>(base + (tiles_of(c) - start), gate.to_end);
    publish_stores();
    __syncthreads();
    advance<T, dim>(all, tiles_of(c), kind == 0, fade);
    all_fade *= fade;
    if (c == 0 || c == 1 || c == 3) leave(c, all, all_fade);
    if (c == 2 || c >= 4) {
      if (c != 5) begin(part), part_fade = 1;
      if (c < 7) {
        advance<T, dim>(part, tiles_of(c), kind == 0, fade);
        part_fade *= fade;
        leave(c, part, part_fade);
      }
    }
    gates.make(c + 1);
  }
  if (chunks < group_chunks) return;
  if (group % 2 == 0) leave(group_chunks - 1, all, all_fade);
  const int64_t blocks = whole / group_chunks, index = sequence * blocks + group;
  store_node<dim>(node_of<dim>(job.nodes[group_level % 2], index, layout.heads, h, kind), all,
                  kind == 1 ? all_fade : 0.f);
  if (kind == 0 && threadIdx.x == 0) job.node_fades[group_level % 2][index * layout.heads + h] = all_fade;
}

// (live block after the whole chunks, sequence, head): its state, walked from its start to the end of the last whole chunk.
template <typename T, int dim>
__global__ void __launch_bounds__(Sizes<dim>::threads, 1)
    walk_live(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  using P = Sizes<dim>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  Gates& gate = *reinterpret_cast<Gates*>(base + P::gates_at);
  const int64_t whole = layout.tokens / chunk;
  const int h = static_cast<int>(blockIdx.x % layout.heads),
            sequence = static_cast<int>(blockIdx.x / layout.heads % layout.sequences);
  int64_t bits = whole;
  for (int64_t skip = blockIdx.x / layout.heads / layout.sequences; skip > 0; --skip) bits &= bits - 1;
  const int bit = __ffsll(bits) - 1;
  const int64_t begin = whole >> (bit + 1) << (bit + 1), own_end = begin + (int64_t{1} << bit);
  float state[dim / 2];
#pragma unroll
  for (int i = 0; i < dim / 2; ++i) state[i] = 0;
  for (int64_t c = begin; c < whole; ++c) {
    const View* const views[3] = {&job.k, &job.w, &job.u};
#pragma unroll
    for (int i = 0; i < 3; ++i)
      fetch_tile<T, dim, P::threads>(start + i * P::tile, *views[i], views[i]->at(sequence, 0, h), c * chunk,
                                     chunk);
    copies_commit();
    GateWalk<1>{job.gate, &gate, sequence, c * chunk, h, chunk, threadIdx.x < 32}.begin(1);
    copies_wait<0>();
    __syncthreads();
    fade_rows<T, dim, P::threads>(base, gate.to_end);
    publish_stores();
    __syncthreads();
    advance<T, dim>(state, start, c < own_end, gate.from_start[chunk - 1]);
    __syncthreads();
  }
  const int row = row_of_state(), pair = Thread().pair;
  float* const out =
      job.live +
      ((static_cast<int64_t>(sequence) * layout.heads + h) * job.live_levels + bit + 7) * dim * dim;
#pragma unroll
  for (int i = 0; i < dim / 2; ++i) out[(8 * (i / 4) + pair + i % 2) * dim + row + i % 4 / 2 * 8] = state[i];
  if (threadIdx.x == 0 && h == 0) job.live_position[sequence] = whole * chunk;
}

// (pair of blocks of 2^level chunks, head, {S, D}): the block of both.
template <typename T, int dim>
__global__ void __launch_bounds__(Sizes<dim>::threads)
    join_pairs(const __grid_constant__ Layout layout, const __grid_constant__ Delta job, int level) {
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  const int kind = static_cast<int>(blockIdx.x % 2);
  const int h = static_cast<int>(blockIdx.x / 2 % layout.heads);
  const int64_t whole = layout.tokens / chunk, below = whole >> level, pairs = below / 2,
                sequence = blockIdx.x / 2 / layout.heads / pairs, p = blockIdx.x / 2 / layout.heads % pairs;
  const int64_t left_index = sequence * below + 2 * p, right_index = left_index + 1;
  float* const from = job.nodes[level % 2];
  const float* const fades = job.node_fades[level % 2];
  const float left_fade = fades[left_index * layout.heads + h],
              right_fade = fades[right_index * layout.heads + h];
  float state[dim / 2], other[dim / 2];
  load_node<dim>(other, node_of<dim>(from, right_index, layout.heads, h, 1));
  load_node<dim>(state, node_of<dim>(from, left_index, layout.heads, h, kind));
  store_matrix<T, dim>(base, other);
  if (kind == 0) load_node<dim>(other, node_of<dim>(from, right_index, layout.heads, h, 0));
  uint32_t left[dim / 16][4];
  pack_left<T>(left, state);
  const float by = kind == 0 ? 1.f : left_fade;
#pragma unroll
  for (int i = 0; i < dim / 2; ++i)
    state[i] = fmaf(is<Mutant::join_fades_swapped> ? left_fade : right_fade, state[i], by * other[i]);
  publish_stores();
  __syncthreads();
  products_begin();
#pragma unroll
  for (int k = 0; k < dim / 16; ++k)
    multiply<T, dim, 1>(state, left[k], along_rows(start, 0, k, dim * 128), true);
  products_commit();
  products_wait<0>();
  pin(state);
  const float fade = left_fade * right_fade;
  const int64_t above = below / 2, index = sequence * above + p;
  store_node<dim>(node_of<dim>(job.nodes[(level + 1) % 2], index, layout.heads, h, kind), state);
  const bool owner = kind == 0 && threadIdx.x == 0;
  if (owner) job.node_fades[(level + 1) % 2][index * layout.heads + h] = fade;
  if (p % 2 != 0) return;
  const int64_t per_sequence = (layout.tokens + chunk - 1) / chunk, last = ((p + 1) << (level + 1)) - 1,
                slot = (sequence * per_sequence + last) * layout.heads + h;
  store_matrix<T, dim>(slot_matrix<dim>(job, slot, kind), state);
  if (owner) job.slot_fades[slot] = fade;
}

// (pair of chunks, head), a warpgroup a chunk: the blocks before them, read with the chunk's walking query. The two have the
// same blocks but for the first, which is the even chunk itself and read by the odd one.
template <typename T, int dim, MatrixUnits units>
__global__ void __launch_bounds__(256, 1)
    read_blocks(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  if constexpr (units != units_here) return;
  using P = ReadPlan<dim, units>;
  constexpr int tile = Sizes<dim>::tile;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  const int h = static_cast<int>(blockIdx.x % layout.heads), group = threadIdx.x / 128,
            warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int64_t per_sequence = (layout.tokens + chunk - 1) / chunk, pairs = (per_sequence + 1) / 2,
                sequence = blockIdx.x / layout.heads / pairs, even = blockIdx.x / layout.heads % pairs * 2;
  const bool both = even + 1 < per_sequence, mine = group == 0 || both;
  const int64_t number = mine ? even + group : even, token = number * chunk,
                place = (sequence * per_sequence + number) * layout.heads + h;
  const int size = static_cast<int>(min(int64_t{chunk}, layout.tokens - token));
  const uint32_t v_tile = start + P::v_at + group * tile;
  const int64_t v_base = job.v.at(sequence, token, h);
  constexpr int pieces = dim / 8;
#pragma unroll
  for (int i = threadIdx.x % 128; i < chunk * pieces; i += 128) {
    const int row = i / pieces, column = i % pieces * 8;
    copy_async(v_tile + tile_offset(row, column),
               static_cast<const T*>(job.v.data) + v_base + row * job.v.token + column, row < size);
  }
  // Steps: the odd chunk's own block, then the set bits of the even number.
  auto slot_of = [&](int64_t bits) {  // of the lowest bit
    const int bit = __ffsll(bits) - 1;
    const int64_t last = (even >> (bit + 1) << (bit + 1)) + (int64_t{1} << bit) - 1;
    return (sequence * per_sequence + last) * layout.heads + h;
  };
  int64_t fetching = even | (both ? 1 : 0);
  int fetched = 0;
  auto fetch = [&]() {
    if (fetching != 0) {
      const uint8_t* const from = slot_matrix<dim>(job, slot_of(fetching), 0);
      const uint32_t to = start + fetched % P::stages * 2 * P::matrix;
#pragma unroll
      for (int i = threadIdx.x * 16; i < 2 * P::matrix; i += 256 * 16) copy_async(to + i, from + i, true);
      fetching &= fetching - 1;
    }
    ++fetched;
    copies_commit();
  };
  for (int i = 0; i < P::stages - 1; ++i) fetch();  // the first with v
  float q[dim / 2], o[dim / 2];
  {
    uint32_t left[dim / 16][4];
    load_left<dim>(left, job.queries, place);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = Pair<T>::unpack(left[k][i]);
        q[8 * k + 2 * i] = two.x, q[8 * k + 2 * i + 1] = two.y;
      }
  }
  uint32_t weights[4][4];
  load_left<64>(weights, job.weights, place);
  const int t = warp * 16 + lane / 4;
  const bool inside[2] = {t < size, t + 8 < size};
  int step = 0;
  copies_wait<P::stages - 2>();
  publish_stores();
  __syncthreads();
  products_begin();
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply<T, dim, 1>(o, weights[k], along_rows(v_tile, 0, k), k > 0);
  products_commit();
  products_wait<0>();
  pin(o);
  for (int64_t left_bits = even | (both ? 1 : 0); left_bits != 0; left_bits &= left_bits - 1, ++step) {
    const int bit = __ffsll(left_bits) - 1;
    if (step > 0) {
      copies_wait<P::stages - 2>();
      publish_stores();
      __syncthreads();
    }
    fetch();
    if (bit == 0 && group == 0) continue;
    const uint32_t s_matrix = start + step % P::stages * 2 * P::matrix, d_matrix = s_matrix + P::matrix;
    float scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scale[half] = inside[half] ? job.level_scales.read(sequence, token + t + 8 * half, h, bit + 7) : 0.f;
    const float fade = job.slot_fades[slot_of(left_bits)];
    uint32_t left[dim / 16][4];
    pack_left<T>(left, q);
    float part[dim / 2];
    products_begin();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
      multiply<T, dim, 0>(part, left[k], along_columns(s_matrix, 0, k, dim * 128), k > 0);
    products_commit();
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) q[i] *= fade;
    products_begin();
#pragma unroll
    for (int k = 0; k < (is<Mutant::query_stands_still> ? 0 : dim / 16); ++k)
      multiply<T, dim, 0>(q, left[k], along_columns(d_matrix, 0, k, dim * 128), true);
    products_commit();
    products_wait<1>();
    pin(part);
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) o[i] = fmaf(scale[i / 2 % 2], part[i], o[i]);
    products_wait<0>();
    pin(q);
  }
  if (!mine) return;
  if (is<Mutant::second_row_half_unwritten> && group == 1 && size < chunk) return;
#pragma unroll
  for (int i = 0; i < dim / 2; ++i) o[i] *= job.scale;
  // Through the tile of v, which this warpgroup alone reads, and all of it has read.
  barrier(1 + group, 128);
  store_rows<T, dim>(o, base + P::v_at + group * tile, job.o, job.o.at(sequence, token, h), size, 1 + group);
}

template <int dim, MatrixUnits units>
constexpr int widest = std::max({PreparePlan<dim, true>::bytes, Sizes<dim>::walk_bytes,
                                 Sizes<dim>::join_bytes, ReadPlan<dim, units>::bytes});

template <typename T, int dim, MatrixUnits units>
cudaError_t launch_dim(const Context& context, const Delta& job) {
  // What sm_86, 89 and 120 give a block, and sm_80.
  static_assert(units == MatrixUnits::wgmma || widest<dim, units> <= (dim == 64 ? 99 : 163) * 1024);
  const Layout& layout = context.layout;
  using P = PreparePlan<dim, true>;
  using S = Sizes<dim>;
  const int64_t heads = static_cast<int64_t>(layout.sequences) * layout.heads;
  const int64_t chunks = (layout.tokens + chunk - 1) / chunk, whole = layout.tokens / chunk,
                groups = chunks > 1 ? (whole + group_chunks - 1) / group_chunks : 0;
  Launches launches(context.stream);
  launches
      .run(prepare_chunks<T, dim, true>, layout.segments * (layout.segment / chunk) * layout.heads, 256,
           P::bytes, layout, job)
      .run(walk_groups<T, dim>, groups * heads * 2, S::threads, S::walk_bytes, layout, job);
  if (job.live) {
    const int live = __builtin_popcountll(static_cast<unsigned long long>(whole));
    launches.run(walk_live<T, dim>, live * heads, S::threads, S::walk_bytes, layout, job);
  }
  for (int level = group_level; whole >> (level + 1) > 0; ++level)
    launches.run(join_pairs<T, dim>, (whole >> (level + 1)) * heads * 2, S::threads, S::join_bytes, layout,
                 job, level);
  using R = ReadPlan<dim, units>;
  return launches.run(read_blocks<T, dim, units>, (chunks + 1) / 2 * heads, 256, R::bytes, layout, job).error;
}

}  // namespace

int delta_levels_bytes(MatrixUnits units, Type type, int dim) {
  int bytes = 0;
  with_type_and_dim(type, dim, [&]<typename T, int d>() {
    bytes = units == MatrixUnits::wgmma ? widest<d, MatrixUnits::wgmma> : widest<d, MatrixUnits::mma>;
    return cudaSuccess;
  });
  return bytes;
}

cudaError_t launch_delta_levels(const Context& context, const Delta& job) {
  return with_type_and_dim(job.k.type, job.dim, [&]<typename T, int dim>() {
    return context.units == MatrixUnits::wgmma ? launch_dim<T, dim, MatrixUnits::wgmma>(context, job)
                                               : launch_dim<T, dim, MatrixUnits::mma>(context, job);
  });
}

}  // namespace attest::cuda
