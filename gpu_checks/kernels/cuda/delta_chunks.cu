// The gated delta rule on matrix units; chunks of 64, key and value dimension 64 or 128.
//   prepare (chunks in parallel, delta_prepare.cuh): U and W of every chunk.
//   walk (along the chunks of a segment, S^T in accumulators): R = U - S W^T, O = g Q S + P R, S <- G S + R^T (g' K).
// A segment's own state and its transition (the same walk from S = I without U), a scan over segments, rows.
// Floor at T = 131072, H = 16, d = dv = 128: 2 c^2 d x 5 + 2 c d^2 x 3 products, 378 GFLOP, 0.50 ms; chain T / c chunks;
// input and output 0.50 ms.
#include <algorithm>

#include "gpu_checks/kernels/cuda/delta_prepare.cuh"

namespace attest::cuda {
namespace {

enum class Mode { states, rows };

// wgmma: the scores of rows are made a chunk ahead. mma.sync would gain nothing by it, and needs a stage less.
template <int dim, Mode mode, MatrixUnits units>
struct WalkPlan {
  static constexpr bool ahead = units == MatrixUnits::wgmma;
  static constexpr int groups = dim / 64, threads = 128 * groups,
                       stages = mode == Mode::rows && !ahead ? 2 : 3, tile = dim / 64 * subtile_bytes;
  static constexpr int tiles = mode == Mode::states ? 3 : 4, stage_bytes = tiles * tile;  // k, w, u, q
  static constexpr int p_at = stages * stage_bytes,
                       gates_at = p_at + (mode == Mode::rows ? (ahead ? 2 : 1) * subtile_bytes : 0);
  static constexpr int bytes = 1024 + gates_at + 3 * static_cast<int>(sizeof(Gates));
};

// states: blockIdx.x = (segment, head, kind); kind 0 the segment's state, 1 its transition, from the identity.
// rows: (segment, head), from the scanned states.
template <typename T, int dim, Mode mode, MatrixUnits units>
__global__ void __launch_bounds__(WalkPlan<dim, mode, units>::threads, 1)
    walk_chunks(const __grid_constant__ Layout layout, const __grid_constant__ Delta job) {
  if constexpr (units != units_here) return;
  using P = WalkPlan<dim, mode, units>;
  constexpr int scores = 64 / P::groups;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const uint32_t start = tiles.start;
  uint8_t* const base = tiles.base;
  const Thread me;
  const int group = me.group, row = group * 64 + me.row;
  constexpr int64_t state_size = int64_t{dim} * dim;

  bool inject = true;
  int64_t block = blockIdx.x;
  if constexpr (mode == Mode::states) {
    inject = block % 2 == 0;
    block /= 2;
  }
  const int h = static_cast<int>(block % layout.heads);
  block /= layout.heads;
  const Place place = place_of(layout, block);
  if (place.size <= 0) return;
  const int chunks = (place.size + chunk - 1) / chunk;

  const int64_t k_base = job.k.at(place.batch, 0, h), w_base = job.w.at(place.batch, 0, h),
                u_base = job.u.at(place.batch, 0, h),
                q_base = mode == Mode::states ? 0 : job.q.at(place.batch, 0, h);
  auto size_of = [&](int c) { return min(chunk, place.size - c * chunk); };
  auto tile_of = [&](int c, int which) { return start + c % P::stages * P::stage_bytes + which * P::tile; };
  auto fetch = [&](int c) {
    if (c < chunks) {
      const int64_t token = place.first + c * chunk;
      fetch_tile<T, dim, P::threads>(tile_of(c, 0), job.k, k_base, token, size_of(c));
      fetch_tile<T, dim, P::threads>(tile_of(c, 1), job.w, w_base, token, size_of(c));
      if (inject) fetch_tile<T, dim, P::threads>(tile_of(c, 2), job.u, u_base, token, size_of(c));
      if constexpr (mode != Mode::states)
        fetch_tile<T, dim, P::threads>(tile_of(c, 3), job.q, q_base, token, size_of(c));
    }
    copies_commit();
  };
  GateWalk<3> gates{job.gate,
                    reinterpret_cast<Gates*>(base + P::gates_at),
                    place.batch,
                    is<Mutant::packed_gates_from_zero> && layout.bounds ? 0 : place.first,
                    h,
                    place.size,
                    threadIdx.x / 32 == 3};
  gates.begin(2);
  for (int c = 0; c < P::stages - 1; ++c) fetch(c);
  float state[dim / 2], w[scores / 2];
  {
    const float* from = nullptr;
    if (mode == Mode::rows) from = job.states + (block * layout.heads + h) * state_size;
#pragma unroll
    for (int j = 0; j < dim / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row + i / 2 * 8, c = 8 * j + me.pair + i % 2;
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
  auto p_at = [&](int c) { return P::p_at + (P::ahead ? c % 2 : 0) * subtile_bytes; };
  if constexpr (mode == Mode::rows && P::ahead) {
    copies_wait<0>();
    publish_stores();
    __syncthreads();
    products_begin();
    start_scores(0);
    products_wait<0>();
    pin(w);
    store_scores<T, scores>(w, base + p_at(0), gates.at(0));
  }
  for (int c = 0; c < chunks; ++c) {
    copies_wait<mode == Mode::rows ? 0 : 1>();
    publish_stores();
    __syncthreads();
    fetch(c + P::stages - 1);
    const Gates& gate = gates.at(c);
    const uint32_t k_tile = tile_of(c, 0), w_tile = tile_of(c, 1), u_tile = tile_of(c, 2),
                   q_tile = tile_of(c, 3);
    float removed[32], o[32];
    {
      uint32_t left[dim / 16][4];
      pack_left<T>(left, state);
      products_begin();
#pragma unroll
      for (int k = 0; k < dim / 16; ++k)
        multiply<T, 64, 0>(removed, left[k], along_columns(w_tile, 0, k), k > 0);
      products_commit();
      if constexpr (mode == Mode::rows) {
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(q_tile, 0, k), k > 0);
        products_commit();
        start_scores(P::ahead ? c + 1 : c);  // past the end: of nothing, and not used
      }
      gates.make(c + 2);
      if constexpr (mode == Mode::rows && !P::ahead) {
        store_scores<T, scores>(w, base + p_at(c), gate);
        __syncthreads();
      }
      fade_rows<T, dim, P::threads>(base + (k_tile - start),
                                    gate.to_end);  // the scores have been made of them
      publish_stores();
      __syncthreads();
      products_wait<mode == Mode::states ? 0 : 2>();
      pin(removed);
    }
    uint32_t rest[4][4];  // R = U - W S
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t u[4] = {0, 0, 0, 0};
      if (inject)
        load_transposed(u, u_tile + tile_offset(16 * k + me.lane / 16 * 8 + me.lane % 8,
                                                group * 64 + me.warp * 16 + me.lane / 8 % 2 * 8));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 own = Pair<T>::unpack(u[i]);
        const int at = 4 * (2 * k + i / 2) + 2 * (i % 2);
        rest[k][i] = Pair<T>::pack(own.x - removed[at], own.y - removed[at + 1]);
      }
    }
    const float whole = gate.from_start[chunk - 1];
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) state[i] *= whole;
    if constexpr (mode == Mode::rows) {
      products_wait<1>();
      pin(o);
      fade_from_start(o, gate);
    }
    products_begin();
    if constexpr (mode == Mode::rows) {
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply<T, 64, 0>(o, rest[k], along_columns(start + p_at(c), 0, k), true);
      products_commit();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply<T, dim, 1>(state, rest[k], along_rows(k_tile, 0, k), true);
    products_commit();
    if constexpr (mode == Mode::rows) {
      products_wait<2>();
      pin(w);
      if (P::ahead && c + 1 < chunks) store_scores<T, scores>(w, base + p_at(c + 1), gates.at(c + 1));
      products_wait<1>();
      pin(o);
      // Through this warpgroup's half of the tile of u, which it alone has read.
      leave_rows<T>(o, job.scale, tiles, static_cast<int>(u_tile - start), job.o,
                    job.o.at(place.batch, place.first + c * chunk, h), size_of(c));
    }
    products_wait<0>();
    pin(state);
  }
  if constexpr (mode == Mode::rows) return;
  store_state<dim>((inject ? job.states : job.transitions) + (block * layout.heads + h) * state_size, state);
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

template <int dim, MatrixUnits units>
constexpr int widest = std::max({PreparePlan<dim, false>::bytes, WalkPlan<dim, Mode::states, units>::bytes,
                                 WalkPlan<dim, Mode::rows, units>::bytes});

template <typename T, int dim, MatrixUnits units>
cudaError_t launch_dim(const Context& context, const Delta& job) {
  // What sm_86, 89 and 120 give a block, and sm_80.
  static_assert(units == MatrixUnits::wgmma || widest<dim, units> <= (dim == 64 ? 99 : 163) * 1024);
  const Layout& layout = context.layout;
  const int64_t segments = layout.segments * layout.heads,
                heads = static_cast<int64_t>(layout.sequences) * layout.heads;
  using P = PreparePlan<dim, false>;
  using S = WalkPlan<dim, Mode::states, units>;
  using R = WalkPlan<dim, Mode::rows, units>;
  Launches launches(context.stream);
  launches.run(prepare_chunks<T, dim, false>, segments * (layout.segment / chunk), 256, P::bytes, layout,
               job);
  if (job.final.data || layout.bounds || layout.per_sequence > 1)
    launches.run(walk_chunks<T, dim, Mode::states, units>, 2 * segments, S::threads, S::bytes, layout, job);
  return launches.run(scan_transitions<dim>, heads * (dim / 8), dim, 0, layout, job)
      .run(walk_chunks<T, dim, Mode::rows, units>, segments, R::threads, R::bytes, layout, job)
      .error;
}

int delta_bytes(MatrixUnits units, Type type, int dim) {
  int bytes = 0;
  with_type_and_dim(type, dim, [&]<typename T, int d>() {
    bytes = units == MatrixUnits::wgmma ? widest<d, MatrixUnits::wgmma> : widest<d, MatrixUnits::mma>;
    return cudaSuccess;
  });
  return bytes;
}

}  // namespace

bool delta_supports(const Context& context, const Delta& job, Type type) {
  if (context.units == MatrixUnits::none || !built_for(type, job.dim)) return false;
  const auto bytes = job.levels > 0 ? delta_levels_bytes : delta_bytes;
  return bytes(context.units, type, job.dim) <= context.shared_bytes &&
         take_whole_rows({&job.q, &job.k, &job.v, &job.o}, type);
}

cudaError_t launch_delta(const Context& context, const Delta& job) {
  return with_type_and_dim(job.k.type, job.dim, [&]<typename T, int dim>() {
    return context.units == MatrixUnits::wgmma ? launch_dim<T, dim, MatrixUnits::wgmma>(context, job)
                                               : launch_dim<T, dim, MatrixUnits::mma>(context, job);
  });
}

}  // namespace attest::cuda
