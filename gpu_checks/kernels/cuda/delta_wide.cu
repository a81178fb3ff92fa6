// The delta rules on matrix units of any architecture from sm_80, in 99 KB of shared memory (what sm_86, 89 and 120 give a
// block): key and value dimension 128 or 256, chunks of 64, packed, and with levels from any position.
//   prepare (delta_wide_prepare.cuh, chunks in parallel): W, U, K', P.
//   walk (sequence, head, 64 values), S^T in the accumulators of one warpgroup:
//     R = U - W S, O = g Q S + P R, S <- g(end) S + R^T K'.
// With levels every pair of sibling blocks of 2^b chunks has a walk: from nothing along the left block, then on with U = 0
// along the right one, which reads lambda^(b+7) O. A launch a level, O summed in fp32 from level to level.
// Without the delta rule (the log-linear operators from any position) W and R are left out: S <- g(end) S + V^T K'.
// Operands pass through a ring of six pieces of 16 KB: (W, Q) 64 keys at a time, (U, P), K' 128 keys at a time.
// Floor at T = 131072, H = 16, d = 256: products 2 c^2 d x 5 + 2 c d^2 x 3, 1.17 TFLOP, 1.56 ms at 750 TFLOP/s; q k v o 1.0 ms.
// Measured 9.8 ms: 4 H blocks, each a chain of T / c chunks. Segments (delta_chunks.cu) would walk three times as much.
#include <algorithm>

#include "gpu_checks/kernels/cuda/delta_wide_prepare.cuh"

namespace attest::cuda {
namespace {

template <int dim>
struct WalkPlan {
  static constexpr int blocks = dim / 64, pieces = blocks + 1 + blocks / 2;  // of a chunk
  static constexpr int slots = 6, ahead = slots - 1, gate_slots = 4;
  static constexpr int piece = 2 * subtile_bytes, gates_at = slots * piece,
                       scales_at = gates_at + gate_slots * chunk * 4, bytes = 1024 + scales_at + chunk * 4;
  static_assert(bytes <= 99 * 1024);
};

// Chunks [first, last) of a stretch: up to `own` they are put into the state, from there on (plain: all of them) read.
struct Walk {
  int sequence;
  int64_t first, own, last;
  bool live;  // its block is one of the final state
};

// Pairs of blocks of 2^bit chunks before those of a sequence; at least as many as it can have.
__device__ inline int64_t pairs_before(const Layout& layout, int sequence, int bit) {
  return layout.bounds ? (int64_t{layout.segment_base[sequence]} >> (bit + 1)) + 2 * int64_t{sequence}
                       : sequence * ((int64_t{layout.per_sequence} >> (bit + 1)) + 2);
}
[[maybe_unused]] inline int64_t all_pairs(const Layout& layout, int bit) {
  return layout.bounds ? (layout.segments >> (bit + 1)) + 2 * int64_t{layout.sequences}
                       : layout.sequences * ((int64_t{layout.per_sequence} >> (bit + 1)) + 2);
}
// Chunks are counted from position 0 for the partition, from the stretch for the walk.
[[maybe_unused]] __device__ inline Walk walk_of_pair(const Layout& layout, const Delta& job, int64_t index,
                                                     int bit) {
  int low = 0, high = layout.sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (pairs_before(layout, middle, bit) <= index ? low : high) = middle;
  }
  const Stretch all = stretch_of(layout, job, low);
  const int64_t pair = (all.before >> (bit + 1)) + index - pairs_before(layout, low, bit),
                left = (pair << (bit + 1)) - all.before, right = left + (int64_t{1} << bit),
                end = right + (int64_t{1} << bit);
  const bool live = job.live && right <= all.whole() && all.whole() < end;
  return {low, max(left, int64_t{0}), right, min(end, all.chunks()), live};
}

// Element (key, value) of a sequence's and head's matrix `level`.
template <int dim>
__device__ inline int64_t state_index(int64_t slot, int levels, int level, int key, int value) {
  return ((slot * levels + level) * dim + key) * dim + value;
}

// Columns of O^T times G(t, start).
[[maybe_unused]] __device__ inline void fade_columns(float (&o)[32], const float* from_start) {
  const Thread me;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 by = *reinterpret_cast<const float2*>(from_start + 8 * j + me.pair);
    o[4 * j] *= by.x, o[4 * j + 1] *= by.y, o[4 * j + 2] *= by.x, o[4 * j + 3] *= by.y;
  }
}

// Sums of rows, a warpgroup's O^T that they grow by, and the level scales of its columns.
[[maybe_unused]] __device__ inline void add_to_sums(const float (&o)[32], float4* sums, const float* scales,
                                                    int size) {
  const int pair = Thread().pair;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float first = 8 * i + pair < size ? scales[8 * i + pair] : 0.f,
                second = 8 * i + pair + 1 < size ? scales[8 * i + pair + 1] : 0.f;
    float4 sum = sums[i * 128];
    sum.x = fmaf(first, o[4 * i], sum.x), sum.y = fmaf(second, o[4 * i + 1], sum.y);
    sum.z = fmaf(first, o[4 * i + 2], sum.z), sum.w = fmaf(second, o[4 * i + 3], sum.w);
    sums[i * 128] = sum;
  }
}

template <typename T, int dim, bool levels, bool delta>
__global__ void __launch_bounds__(128, 2)
    walk_values(const __grid_constant__ Layout layout, const __grid_constant__ Delta job, int bit) {
  using P = WalkPlan<dim>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  float *const gates = reinterpret_cast<float*>(tiles.base + P::gates_at), *const scales =
                                                                               reinterpret_cast<float*>(
                                                                                   tiles.base + P::scales_at);
  const Thread me;
  const int block = static_cast<int>(blockIdx.x % P::blocks),
            h = static_cast<int>(blockIdx.x / P::blocks % layout.heads);
  const int64_t index = blockIdx.x / P::blocks / layout.heads;
  Walk walk;
  if constexpr (levels)
    walk = walk_of_pair(layout, job, index, bit);
  else
    walk.sequence = static_cast<int>(index);
  const Stretch all = stretch_of(layout, job, walk.sequence);
  if constexpr (levels) {
    if (walk.last <= max(walk.own, walk.first) && !walk.live) return;  // nobody reads it
  } else {
    walk.first = 0, walk.own = walk.last = all.chunks(), walk.live = false;
  }
  const int64_t slot = int64_t{walk.sequence} * layout.heads + h;

  auto number_of = [&](int64_t c) { return (all.number + c) * layout.heads + h; };
  auto size_of = [&](int64_t c) { return static_cast<int>(min(int64_t{chunk}, all.tokens - c * chunk)); };
  auto fetch_columns = [&](uint32_t tile, const View& view, int64_t c, int column) {
    fetch_tile<T, 64, 128>(tile, view, view.at(all.batch, 0, h) + column, all.begin + c * chunk, size_of(c));
  };
  auto fetch = [&](int64_t c, int piece, int ring) {
    if (c < walk.last) {
      const bool inject = !levels || c < walk.own,
                 reading = !levels || c >= walk.own + is<Mutant::right_block_begins_late>;
      const uint32_t one = tiles.start + ring * P::piece, two = one + subtile_bytes;
      if (piece < P::blocks) {
        if (delta) fetch_columns(one, job.w, c, 64 * piece);
        if (reading) fetch_columns(two, job.q, c, 64 * piece);
        if (piece == 0 && threadIdx.x < chunk / 4)
          copy_async(shared_address(gates + c % P::gate_slots * chunk + 4 * threadIdx.x),
                     job.from_start + number_of(c) * chunk + 4 * threadIdx.x, true);
      } else if (piece == P::blocks) {
        if (inject) fetch_columns(one, job.u, c, 64 * block);
        if (delta && reading) {
          const uint8_t* const p = static_cast<const uint8_t*>(job.scores) + number_of(c) * subtile_bytes;
#pragma unroll
          for (int i = threadIdx.x * 16; i < subtile_bytes; i += 128 * 16) copy_async(two + i, p + i, true);
        }
      } else if (delta || inject) {
        fetch_columns(one, job.faded_keys, c, 128 * (piece - P::blocks - 1));
        fetch_columns(two, job.faded_keys, c, 128 * (piece - P::blocks - 1) + 64);
      }
    }
    copies_commit();
  };
  int ring = 0;  // of the next piece
#pragma unroll
  for (int i = 0; i < P::ahead; ++i) fetch(walk.first + i / P::pieces, i % P::pieces, i);
  // Waits for a piece and begins the copy of a later one over the piece before, which every warp is through with.
  auto next = [&](int64_t c, int piece) {
    copies_wait<P::ahead - 1>();
    publish_stores();
    __syncthreads();
    fetch(c + (piece + P::ahead) / P::pieces, (piece + P::ahead) % P::pieces,
          ring == 0 ? P::slots - 1 : ring - 1);
    const int at = ring * P::piece;
    ring = ring + 1 == P::slots ? 0 : ring + 1;
    return at;
  };

  float state[dim / 128][64];
  auto each = [&](auto action) {  // (element, its key, its value)
#pragma unroll
    for (int j = 0; j < dim / 128; ++j)
#pragma unroll
      for (int i = 0; i < 64; ++i)
        action(state[j][i], 128 * j + 8 * (i / 4) + me.pair + i % 2, 64 * block + me.row + i / 2 % 2 * 8);
  };
  each([](float& s, int, int) { s = 0; });
  if constexpr (levels) {
    // A walk that began in an earlier call: the block that it has put in, or so far its smaller blocks.
    if (job.carried && walk.own - (int64_t{1} << bit) < 0) {
      int64_t bits = walk.own <= 0 ? int64_t{1} << bit : all.before & ((int64_t{1} << bit) - 1);
      for (; bits != 0; bits &= bits - 1) {
        const int level = __ffsll(bits) - 1 + chunk_levels;
        each([&](float& s, int key, int value) {
          s += job.carried[state_index<dim>(slot, job.live_levels, level, key, value)];
        });
      }
    }
  } else if (job.initial.data) {
    each([&](float& s, int key, int value) {
      s = load(job.initial.data, state_index<dim>(slot, 1, 0, key, value), job.initial.type);
    });
  }
  auto leave_live = [&] {
    each([&](float& s, int key, int value) {
      job.live[state_index<dim>(slot, job.live_levels, bit + chunk_levels, key, value)] = s;
    });
  };

  for (int64_t c = walk.first; c < walk.last; ++c) {
    const bool inject = !levels || c < walk.own,
               reading = !levels || c >= walk.own + is<Mutant::right_block_begins_late>;
    const int size = size_of(c);
    const float* const from_start = gates + c % P::gate_slots * chunk;
    if constexpr (levels) {
      if (walk.live && c == all.whole()) leave_live();
      if (reading && threadIdx.x < size)  // read when every warp has passed a barrier of this chunk
        scales[threadIdx.x] =
            bit + chunk_levels < job.levels
                ? job.level_scales.read(all.batch, all.begin + c * chunk + threadIdx.x, h, bit + chunk_levels)
                : 0.f;
    }
    float removed[32], o[32];
#pragma unroll
    for (int piece = 0; piece < P::blocks; ++piece) {
      const uint32_t w_tile = tiles.start + next(c, piece), q_tile = w_tile + subtile_bytes;
      uint32_t left[4][4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const two = state[piece / 2] + piece % 2 * 32 + 8 * k + 2 * i;
          left[k][i] = Pair<T>::pack(two[0], two[1]);
        }
      if constexpr (delta) {
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply<T, 64, 0>(removed, left[k], along_columns(w_tile, 0, k), piece > 0 || k > 0);
        products_commit();
      }
      if (reading) {
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply<T, 64, 0>(o, left[k], along_columns(q_tile, 0, k), piece > 0 || k > 0);
        products_commit();
      }
      products_wait<0>();
      pin(left);
      if constexpr (delta) pin(removed);
      if (reading) pin(o);
    }
    const int u_at = next(c, P::blocks);
    uint32_t rest[4][4];  // R = U - W S
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t u[4] = {0, 0, 0, 0};
      if (inject) load_values(u, tiles.start + u_at, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 own = Pair<T>::unpack(u[i]);
        const int at = 4 * (2 * k + i / 2) + 2 * (i % 2);
        rest[k][i] = delta ? Pair<T>::pack(own.x - removed[at], own.y - removed[at + 1]) : u[i];
      }
    }
    if (reading) {
      fade_columns(o, from_start);
      if constexpr (delta) {
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply<T, 64, 0>(o, rest[k], along_columns(tiles.start + u_at + subtile_bytes, 0, k), true);
        products_commit();
        products_wait<0>();
        pin(rest);
        pin(o);
      }
      if constexpr (levels)
        add_to_sums(o, job.sums + (number_of(c) * P::blocks + block) * 8 * 128 + threadIdx.x, scales, size);
      else  // through the tile of u, of which each warp has read the columns that it writes
        leave_rows<T>(o, job.scale, tiles, u_at, job.o,
                      job.o.at(all.batch, all.begin + c * chunk, h) + 64 * block, size);
    }
    const float whole = from_start[chunk - 1];
    each([&](float& s, int, int) { s *= whole; });
#pragma unroll
    for (int j = 0; j < dim / 128; ++j) {
      const uint32_t k_tile = tiles.start + next(c, P::blocks + 1 + j);
      if (!delta && !inject) continue;
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<T, 128, 1>(state[j], rest[k], along_rows(k_tile, 0, k), true);
      products_commit();
      products_wait<0>();
      pin(rest);
      pin(state[j]);
    }
  }
  copies_wait<0>();
  if constexpr (levels) {
    if (walk.live && walk.last <= all.whole()) leave_live();
  } else if (job.final.data) {
    each([&](float& s, int key, int value) {
      store(job.final.data, state_index<dim>(slot, 1, 0, key, value), job.final.type, s);
    });
  }
}

// (chunk, head, 64 values): the rows of O out of their sums.
template <typename T, int dim>
__global__ void __launch_bounds__(128)
    leave_sums(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const int block = static_cast<int>(blockIdx.x % (dim / 64)),
            h = static_cast<int>(blockIdx.x / (dim / 64) % layout.heads);
  const ChunkPlace here = chunk_place(layout, job, blockIdx.x / (dim / 64) / layout.heads);
  if (here.size <= 0) return;
  const float4* const sums = job.sums + int64_t{blockIdx.x} * 8 * 128 + threadIdx.x;
  float o[32];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 four = sums[i * 128];
    o[4 * i] = four.x, o[4 * i + 1] = four.y, o[4 * i + 2] = four.z, o[4 * i + 3] = four.w;
  }
  leave_rows<T>(o, job.scale, tiles, 0, job.o, job.o.at(here.batch, here.token, h) + 64 * block, here.size);
}

// The position after the whole chunks of every sequence.
[[maybe_unused]] __global__ void leave_positions(Layout layout, Delta job) {
  for (int n = threadIdx.x; n < layout.sequences; n += blockDim.x) {
    const Stretch all = stretch_of(layout, job, n);
    job.live_position[n] = (job.position ? job.position[n] : 0) + all.head + all.whole() * chunk;
  }
}

#if defined(ATTEST_CUDA_SMALL) && !defined(ATTEST_CUDA_WIDE)
constexpr bool built = false;
#else
constexpr bool built = true;
#endif
bool built_wide(Type type, int dim) { return built && dim % 2 == 0 && built_for(type, dim / 2); }
template <typename Action>
cudaError_t with_wide(Type type, int dim, Action action) {
  if (!built_wide(type, dim)) return cudaErrorInvalidValue;
  return with_type_and_dim(type, dim / 2, [&]<typename T, int half>() {
    if constexpr (built) return action.template operator()<T, 2 * half>();
    return cudaErrorInvalidValue;
  });
}

template <typename T, int dim>
cudaError_t launch_plain(const Context& context, const Delta& job) {
  const Layout& layout = context.layout;
  using Prepare = WidePreparePlan<dim, false>;
  using Walks = WalkPlan<dim>;
  return Launches(context.stream)
      .run(prepare_wide<T, dim, false, true>, layout.segments * layout.heads, 256, Prepare::bytes, layout,
           job)
      .run(walk_values<T, dim, false, true>, int64_t{layout.sequences} * layout.heads * Walks::blocks, 128,
           Walks::bytes, layout, job, 0)
      .error;
}
template <typename T, int dim, bool delta>
cudaError_t launch_levels(const Context& context, const Delta& job) {
  const Layout& layout = context.layout;
  using Prepare = WidePreparePlan<dim, true>;
  using Walks = WalkPlan<dim>;
  Launches launches(context.stream);
  launches.run(prepare_wide<T, dim, true, delta>, layout.segments * layout.heads, 256, Prepare::bytes, layout,
               job);
  const int blocks_of_chunks = std::max(job.levels, job.live_levels) - chunk_levels;
  for (int bit = 0; bit < blocks_of_chunks; ++bit)
    launches.run(walk_values<T, dim, true, delta>, all_pairs(layout, bit) * layout.heads * Walks::blocks, 128,
                 Walks::bytes, layout, job, bit);
  if (job.live) launches.run(leave_positions, 1, 1024, 0, layout, job);
  return launches
      .run(leave_sums<T, dim>, layout.segments * layout.heads * Walks::blocks, 128, 1024 + subtile_bytes,
           layout, job)
      .error;
}

}  // namespace

bool delta_wide_supports(const Context& context, const Delta& job, Type type) {
  return context.units != MatrixUnits::none && built_wide(type, job.dim) &&
         take_whole_rows({&job.q, &job.k, &job.v, &job.o}, type);
}

cudaError_t launch_delta_wide(const Context& context, const Delta& job) {
  if (context.layout.sequences == 0) return cudaSuccess;
  return with_wide(job.k.type, job.dim, [&]<typename T, int dim>() {
    return job.levels == 0  ? launch_plain<T, dim>(context, job)
           : job.delta_rule ? launch_levels<T, dim, true>(context, job)
                            : launch_levels<T, dim, false>(context, job);
  });
}

}  // namespace attest::cuda
