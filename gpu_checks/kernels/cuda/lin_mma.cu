// Lin on the matrix units of any architecture from sm_80, by mma.sync: the sums, roundings and registers of lin_wgmma.cu,
// whose header has the formulas, in an order that needs 99 KB of shared memory at most (what sm_86, 89 and 120 give a block).
// A stage is x, y, z of a chunk, one is computed while the next is copied. W takes the place of x when everybody has read it,
// O passes through the tile of z, each warp over the columns that it alone has read. P^T and Z^T are left operands in
// registers; of W^T what is not above the diagonal is read.
#include "gpu_checks/kernels/cuda/lin_walk.cuh"
#include "gpu_checks/kernels/cuda/mma.cuh"

namespace attest::cuda {
namespace {

template <int key_dim, int value_dim, bool with_output, bool gated>
struct Plan : LinTiles<key_dim, value_dim, with_output, gated, with_output ? 2 : 3, 2, !with_output> {
  static constexpr int gates_at = Plan::stages_end, bytes = 1024 + gates_at + Plan::gate_bytes;
  static_assert(bytes <= 99 * 1024);
};

template <typename T, int key_dim, int value_dim, bool gated>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, false, gated>::threads, 1)
    lin_states(const __grid_constant__ Layout layout, const __grid_constant__ Lins lins) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, false, gated>;
  using W = Walk<T, P>;
  extern __shared__ uint8_t shared[];
  const W walk(layout, lins, shared);
  if (walk.place.size <= 0) return;
  GateWalk<P::gate_slots> gates = walk.gates();
  gates.begin(1);
  for (int c = 0; c < P::stages - 1; ++c) walk.fetch(c);
  float state[key_dim / 2], fade = 1;
#pragma unroll
  for (int i = 0; i < key_dim / 2; ++i) state[i] = 0;
  for (int c = 0; c < walk.chunks; ++c) {
    copies_wait<P::stages - 2>();
    __syncthreads();
    walk.fetch(c + P::stages - 1);
    gates.make(c + 1);
    if constexpr (W::fades_keys) {
      fade_rows<T, key_dim, P::threads>(walk.keys(c), gates.at(c).to_end);
      __syncthreads();
    }
    uint32_t z[chunk / 16][4];
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k) {
      load_values(z[k], walk.z_tile(c), k);
      if constexpr (W::fades_values) fade_values<T>(z[k], gates.at(c), k);
    }
    if constexpr (gated) {
      const float whole = gates.at(c).from_start[chunk - 1];
      fade *= whole;
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
    }
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, key_dim, 1>(state, z[k], along_rows(walk.y_tile(c), 0, k), true);
  }
  store_state<key_dim>(walk.lin.states + walk.slot * value_dim * key_dim, state, walk.lin.y_scale);
  if (threadIdx.x == 0) walk.lin.fade[walk.slot] = fade;
#endif
}

template <typename T, int key_dim, int value_dim, bool gated, bool simple>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, true, gated>::threads, 1)
    lin_rows(const __grid_constant__ Layout layout, const __grid_constant__ Lins lins) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, true, gated>;
  using W = Walk<T, P>;
  constexpr int scores = 64 / P::groups;  // columns of W that four warps compute
  extern __shared__ uint8_t shared[];
  const W walk(layout, lins, shared);
  const Lin& lin = walk.lin;
  const bool exclusive = !simple && lin.exclusive;
  if (walk.place.size <= 0) return;
  const int group = Thread().group;
  RowsEnd<T, simple, W> end(walk, layout);
  PieceScores<scores, W> pieces(walk, layout, lins);
  const bool constant = lin.gate.kind == GateKind::constant;  // then every chunk has the same weights
  GateWalk<P::gate_slots> gates = walk.gates();
  gates.begin(1);
  walk.fetch(0);
  float state[key_dim / 2], weights[scores / 2];
  load_state<key_dim>(state, lin.states + walk.slot * value_dim * key_dim, simple ? 1 : 1 / lin.y_scale);
  for (int c = 0; c < walk.chunks; ++c) {
    const uint32_t x_tile = walk.x_tile(c), y_tile = walk.y_tile(c), z_tile = walk.z_tile(c), w_tile = x_tile;
    if constexpr (!simple) pieces.read(c);
    copies_wait<0>();
    __syncthreads();
    walk.fetch(c + 1);
    float w[scores / 2], o[32];
    uint32_t left[key_dim / 16][4], z[chunk / 16][4];
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k)
      multiply<T, scores, 0, 0>(w, along_columns(x_tile, 0, k), along_columns(y_tile, group * scores, k),
                                k > 0);
    pack_left<T>(left, state);
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(x_tile, 0, k), k > 0);
    if constexpr (gated) {
      gates.make(c + 1);
      if (c == 0 || !constant) weigh_scores<scores>(weights, gates.at(c), exclusive);
      fade_from_start(o, gates.at(c), exclusive);
    }
    if constexpr (!simple) pieces.join(w, c);
    if (!is<Mutant::scores_over_queries>) __syncthreads();
    store_scores<T, scores, gated>(w, walk.tiles.base + (w_tile - walk.tiles.start), weights, exclusive);
    if constexpr (W::fades_keys) fade_rows<T, key_dim, P::threads>(walk.keys(c), gates.at(c).to_end);
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k) load_values(z[k], z_tile, k);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, 64, 0>(o, z[k], along_columns(w_tile, 0, k), true, k + is<Mutant::diagonal_block_skipped>);
    if constexpr (gated) {
      const float whole = gates.at(c).from_start[chunk - 1];
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
    }
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k) {
      if constexpr (W::fades_values) fade_values<T>(z[k], gates.at(c), k);
      multiply<T, key_dim, 1>(state, z[k], along_rows(y_tile, 0, k), true);
    }
    end.leave(o, c, static_cast<int>(z_tile - walk.tiles.start));
  }
#endif
}

}  // namespace

cudaError_t launch_mma_states(const Context& context, const Lins& lins) {
  return launch_lins(context, lins, [&]<typename T, int key_dim, int value_dim, bool gated>() {
    using P = Plan<key_dim, value_dim, false, gated>;
    return LinKernel{lin_states<T, key_dim, value_dim, gated>, P::threads, P::bytes};
  });
}
cudaError_t launch_mma_rows(const Context& context, const Lins& lins) {
  const bool simple = is_simple(lins);
  return launch_lins(context, lins, [&]<typename T, int key_dim, int value_dim, bool gated>() {
    using P = Plan<key_dim, value_dim, true, gated>;
    return LinKernel{
        simple ? lin_rows<T, key_dim, value_dim, gated, true> : lin_rows<T, key_dim, value_dim, gated, false>,
        P::threads, P::bytes};
  });
}

}  // namespace attest::cuda
