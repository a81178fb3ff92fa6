// The rows of a Lin of 128 x 128, bit by bit those of lin_wgmma.cu, by warpgroups with roles: two do nothing but multiply, each
// for 64 columns of z; the other two, the tender, do the rest. One copies into the stages and makes gates, one takes finished
// rows to memory, both fade the operand of the state (fp16: Y, else Z) into a tile of its own. They meet once a chunk; then
//   the tender has x, y of the next chunk and the faded tile of this one in place, the others W of this and O of the last.
// Where it pays and by how much: reports/baseline/cuda_h200.md.
#include "gpu_checks/kernels/cuda/lin_walk.cuh"
#include "gpu_checks/kernels/cuda/wgmma.cuh"

namespace attest::cuda {
namespace {

constexpr int dim = 128;
enum Threads : int { warpgroup = 128, tending = 256 };
template <bool gated>
struct Plan : LinTiles<dim, dim, true, gated, 3, 3, true> {
  static constexpr int multiplying = Plan::threads, everybody = multiplying + tending;
  static constexpr int w_at = Plan::stages_end, o_at = w_at + 2 * subtile_bytes;
  static constexpr int faded_at = o_at + Plan::tall, gates_at = faded_at + (gated ? 2 * Plan::wide : 0);
  static constexpr int bytes = 1024 + gates_at + Plan::gate_bytes;
  __device__ static int faded(int c) { return faded_at + c % 2 * Plan::wide; }
};
enum Barrier : int { together = 1, rows_gone };  // the second one for each warpgroup that multiplies

// The tender's part; one of its warpgroups copies into the stages, the other leaves rows.
template <typename T, typename P, typename W>
__device__ inline void tend(const W& walk, bool copies) {
  const Lin& lin = walk.lin;
  const int64_t o_base = lin.o.at(walk.place.batch, walk.place.first, walk.h);
  GateWalk<3> gates = walk.gates();
  const auto fade = [&](int c) {
    if constexpr (P::gated)
      fade_rows<T, dim, tending>(walk.tiles.base + P::faded(c), W::fades_keys ? walk.keys(c) : walk.values(c),
                                 gates.at(c).to_end);
  };
  const auto leave = [&](int c) {
    tile_to_rows<T, dim>(walk.tiles.base + P::o_at, lin.o, o_base + int64_t{c} * chunk * lin.o.token,
                         walk.size(c), 0, lin.value_dim);
  };
  gates.begin(2);
  if (copies)
    for (int c = 0; c < P::stages - 1; ++c) walk.fetch(c);
  copies_wait<0>();
  publish_stores();
  barrier_of_roles(together, P::everybody);
  fade(0);
  for (int c = 0; c < walk.chunks; ++c) {
    copies_wait<0>();  // chunk c + 1
    publish_stores();
    barrier_of_roles(together, P::everybody);
    if (copies)
      walk.fetch(c + P::stages - 1);
    else if (c > 0)
      leave(c - 1);
    if (!copies && !is<Mutant::rows_not_awaited>)
      for (int group = 0; group < P::groups; ++group) arrive(rows_gone + group, 2 * warpgroup);
    gates.make(c + 2);
    if (c + 1 < walk.chunks) fade(c + 1);
  }
  barrier_of_roles(together, P::everybody);
  if (!copies) leave(walk.chunks - 1);
}

// The scores run a chunk ahead of the state, so that their way through shared memory overlaps with its products.
template <typename T, typename P, typename W>
__device__ inline void multiply_rows(const W& walk, int group) {
  constexpr int scores = 64 / P::groups;  // columns of W that a warpgroup computes
  const Lin& lin = walk.lin;
  const int chunks = walk.chunks;
  const float x_scale = lin.x_scale;
  const GateWalk<3> gates = walk.gates();
  float state[dim / 2], w[scores / 2], o[32];
  load_state<dim>(state, lin.states + walk.slot * dim * dim);
  const auto w_at = [&](int c) { return P::w_at + c % 2 * subtile_bytes; };
  const auto start_scores = [&](int c) {
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
      multiply<T, scores, 0, 0>(w, along_columns(walk.x_tile(c), 0, k),
                                along_columns(walk.y_tile(c), group * scores, k), k > 0);
    products_commit();
  };
  // Then every chunk has the same gates, but for those past the end.
  const bool constant = lin.gate.kind == GateKind::constant;
  float weights[scores / 2], from_start[16], whole = 1;
  const auto read_gates = [&](int c) {
    weigh_scores<scores>(weights, gates.at(c));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(gates.at(c).from_start + 8 * j + Thread().pair);
      from_start[2 * j] = two.x, from_start[2 * j + 1] = two.y;
    }
    whole = gates.at(c).from_start[chunk - 1];
  };
  const auto finish_scores = [&](int c) {
    if constexpr (P::gated)
      if (c == 0 || !constant) read_gates(c);
    store_scores<T, scores, P::gated>(w, walk.tiles.base + w_at(c), weights);
  };
  barrier_of_roles(together, P::everybody);
  products_begin();
  start_scores(0);
  products_wait<0>();
  pin(w);
  finish_scores(0);

  for (int c = 0; c < chunks; ++c) {
    const uint32_t x_tile = walk.x_tile(c), z_tile = walk.z_tile(c), faded = walk.tiles.start + P::faded(c),
                   y_of_state = W::fades_keys ? faded : walk.y_tile(c),
                   z_of_state = W::fades_values ? faded : z_tile;
    publish_stores();  // W of chunk c
    barrier_of_roles(together, P::everybody);
    uint32_t left[dim / 16][4];
    pack_left<T>(left, state);
    products_begin();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(x_tile, 0, k), k > 0);
    products_commit();
    start_scores(c + 1);  // past the end: of nothing, and not used
    if constexpr (P::gated) {
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) state[i] *= whole;
      pin(state);  // here, where products run
      products_wait<1>();
      pin(o);
      pin(left);
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i] *= from_start[i / 4 * 2 + i % 2];
      products_begin();
    }
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, 64, 1, 0>(o, along_rows(z_tile, group * 64, k),
                            along_columns(walk.tiles.start + w_at(c), 0, k), true);
    products_commit();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, dim, 1, 1>(state, along_rows(z_of_state, group * 64, k), along_rows(y_of_state, 0, k),
                             true);
    products_commit();
    products_wait<2>();
    pin(w);
    pin(left);
    if (c + 1 < chunks) finish_scores(c + 1);
    products_wait<1>();
    pin(o);
    if (!is<Mutant::rows_not_awaited>) barrier(rows_gone + group, 2 * warpgroup);
    store_rows<T>(o, x_scale, walk.tiles.start + P::o_at);
    products_wait<0>();
    pin(state);
  }
  barrier_of_roles(together, P::everybody);
}

template <typename T, bool gated>
__global__ void __launch_bounds__(Plan<gated>::everybody, 1)
    lin_rows_tended(const __grid_constant__ Layout layout, const __grid_constant__ Lins lins) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<gated>;
  using W = Walk<T, P, warpgroup, P::multiplying / 32>;
  extern __shared__ uint8_t shared[];
  const W walk(layout, lins, shared);
  if (walk.place.size <= 0) return;
  const int group = shared_by_warp(Thread().group);
  if (group >= P::groups) {
    registers_down<64>();  // of 128 each
    tend<T, P>(walk, group == P::groups);
  } else {
    registers_up<192>();
    multiply_rows<T, P>(walk, group);
  }
#endif
}

}  // namespace

bool tended_rows_pay(const Lins& lins) {
  for (int i = 0; i < lins.count; ++i) {
    const Lin& lin = lins.lin[i];
    if (lin.tile_keys != dim || lin.tile_values != dim || !is_simple(lin)) return false;
  }
  return lins.count == 2 || lins.lin[0].gate.kind != GateKind::none;
}
cudaError_t launch_tended_rows(const Context& context, const Lins& lins) {
  return launch_lins(context, lins, [&]<typename T, int key_dim, int value_dim, bool gated>() {
    if constexpr (key_dim == dim && value_dim == dim)
      return LinKernel{lin_rows_tended<T, gated>, Plan<gated>::everybody, Plan<gated>::bytes};
    return LinKernel{};  // not asked for
  });
}

}  // namespace attest::cuda
