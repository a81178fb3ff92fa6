// Lin on Hopper's matrix units: bf16 or fp16 rows, fp32 accumulation and carry, chunks of 64 tokens, tiles of 64 or 128.
// Transposed: a warpgroup owns 64 columns of z. State P^T (64, key_dim) stays in its accumulators, and is repacked from
// there as the left operand, so it never passes through memory:
//   W = (X Y^T o G) to shared memory; O^T = P^T X^T g + Z^T W^T; P^T <- G(end,start) P^T + Z^T (g' Y).
// fp16 fades Y, in place: a faded value may fall below its exponents and be gone from the state, a faded key as the form
// writes it is within the bound. bf16 has the exponents of fp32, so it fades Z, in registers on the way to the product.
// Rounded to the input format besides the inputs: P as operand, W, g' Y or g' Z (only with gates), O.
#include "gpu_checks/kernels/cuda/lin_walk.cuh"
#include "gpu_checks/kernels/cuda/wgmma.cuh"

namespace attest::cuda {
namespace {

// Where a multiprocessor has two blocks of states (`shared`), they hide each other's latencies; one alone fades a chunk ahead.
template <int key_dim, int value_dim, bool with_output, bool gated, bool shared = false>
struct Plan : LinTiles<key_dim, value_dim, with_output, gated, with_output || shared ? 3 : 5, 3, true> {
  static constexpr int w_at = Plan::stages_end, o_at = w_at + (with_output ? 2 * subtile_bytes : 0);
  static constexpr int gates_at = o_at + (with_output ? Plan::tall : 0);
  static constexpr int bytes = 1024 + gates_at + Plan::gate_bytes;
};

template <typename T, int key_dim, int value_dim, bool gated, bool shared>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, false, gated, shared>::threads, shared ? 2 : 1)
    lin_states(const __grid_constant__ Layout layout, const __grid_constant__ Lins lins) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, false, gated, shared>;
  using W = Walk<T, P>;
  constexpr int ahead = shared ? 0 : 1;
  extern __shared__ uint8_t memory[];
  const W walk(layout, lins, memory);
  const int chunks = walk.chunks;
  if (walk.place.size <= 0) return;
  const int group = shared_by_warp(Thread().group);
  GateWalk<3> gates = walk.gates();
  gates.begin(2);
  for (int c = 0; c < P::stages - 1 - ahead; ++c) walk.fetch(c);
  uint32_t faded[chunk / 16][4], next[chunk / 16][4];  // Z, of this chunk and the next
  auto fade_values = [&](uint32_t(&to)[chunk / 16][4], int c) {
    if constexpr (W::fades_values)
      if (c < chunks) load_faded<T>(to, walk.z_tile(c), gates.at(c));
  };
  auto fade_keys = [&](int c) {
    if constexpr (W::fades_keys)
      if (c < chunks) fade_rows<T, key_dim, P::threads>(walk.keys(c), gates.at(c).to_end);
  };
  if constexpr (gated && ahead) {
    copies_wait<P::stages - 3>();
    __syncthreads();
    fade_values(next, 0), fade_keys(0);
  }
  float state[key_dim / 2], fade = 1;
#pragma unroll
  for (int i = 0; i < key_dim / 2; ++i) state[i] = 0;
  for (int c = 0; c < chunks; ++c) {
    copies_wait<P::stages - 2 - 2 * ahead>();  // chunk c + ahead
    publish_stores();
    __syncthreads();
    walk.fetch(c + P::stages - 1 - ahead);
    const uint32_t z_tile = walk.z_tile(c), y_tile = walk.y_tile(c);
    if constexpr (!ahead) fade_values(faded, c);
    if constexpr (!ahead && W::fades_keys) {
      fade_keys(c);
      publish_stores();
      __syncthreads();
    }
    if constexpr (gated) {
      const float whole = gates.at(c).from_start[chunk - 1];
      fade *= whole;
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
    }
    if constexpr (ahead && W::fades_values)
#pragma unroll
      for (int k = 0; k < chunk / 16; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) faded[k][i] = next[k][i];
    products_begin();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k) {
      if constexpr (W::fades_values)
        multiply<T, key_dim, 1>(state, faded[k], along_rows(y_tile, 0, k), true);
      else
        multiply<T, key_dim, 1, 1>(state, along_rows(z_tile, group * 64, k), along_rows(y_tile, 0, k), true);
    }
    products_commit();
    gates.make(c + 2);
    if constexpr (ahead) fade_values(next, c + 1), fade_keys(c + 1);
    products_wait<0>();
    pin(state);
    if constexpr (W::fades_values) pin(faded);
    if (is<Mutant::state_bf16>)
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] = __bfloat162float(__float2bfloat16_rn(state[i]));
  }
  const int64_t left = is<Mutant::state_slot_shared> ? walk.slot & ~int64_t{1} : walk.slot;
  store_state<key_dim>(walk.lin.states + left * value_dim * key_dim, state, walk.lin.y_scale);
  if (threadIdx.x == 0) walk.lin.fade[walk.slot] = fade;
#endif
}

// The scores run a chunk ahead of the state, so that their way through shared memory overlaps with its products.
template <typename T, int key_dim, int value_dim, bool gated, bool simple>
__global__ void __launch_bounds__(Plan<key_dim, value_dim, true, gated>::threads, 1)
    lin_rows(const __grid_constant__ Layout layout, const __grid_constant__ Lins lins) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<key_dim, value_dim, true, gated>;
  using W = Walk<T, P>;
  constexpr int scores = 64 / P::groups;  // columns of W that a warpgroup computes
  extern __shared__ uint8_t shared[];
  const W walk(layout, lins, shared);
  const Lin& lin = walk.lin;
  const bool exclusive = !simple && lin.exclusive;
  const int chunks = walk.chunks;
  if (walk.place.size <= 0) return;
  const int group = shared_by_warp(Thread().group);
  RowsEnd<T, simple, W> end(walk, layout);
  PieceScores<scores, W> pieces(walk, layout, lins);
  GateWalk<3> gates = walk.gates();
  gates.begin(2);
  for (int c = 0; c < P::stages - 1; ++c) walk.fetch(c);
  float state[key_dim / 2], w[scores / 2], o[32];
  load_state<key_dim>(state, lin.states + walk.slot * value_dim * key_dim, simple ? 1 : 1 / lin.y_scale);
  auto w_at = [&](int c) { return P::w_at + c % 2 * subtile_bytes; };
  auto start_scores = [&](int c) {
#pragma unroll
    for (int k = 0; k < key_dim / 16 - (is<Mutant::last_columns_skipped> && key_dim == 128); ++k)
      multiply<T, scores, 0, 0>(w, along_columns(walk.x_tile(c), 0, k),
                                along_columns(walk.y_tile(c), group * scores, k), k > 0);
    products_commit();
  };
  const bool constant = lin.gate.kind == GateKind::constant;  // then every chunk has the same weights
  float weights[scores / 2];
  auto finish_scores =
      [&](int c) {  // and the keys whose scores they are: nobody else reads them before the barrier
        if constexpr (!simple) pieces.join(w, c);
        if constexpr (gated)
          if (c == 0 || !constant) weigh_scores<scores>(weights, gates.at(c), exclusive);
        store_scores<T, scores, gated>(w, walk.tiles.base + w_at(c), weights, exclusive);
        if constexpr (W::fades_keys)
          fade_rows<T, key_dim, 128, scores>(walk.keys(c), gates.at(c).to_end, group * scores);
      };
  if constexpr (!simple) pieces.read(0);
  copies_wait<0>();
  publish_stores();
  __syncthreads();
  products_begin();
  start_scores(0);
  products_wait<0>();
  pin(w);
  finish_scores(0);

  for (int c = 0; c < chunks; ++c) {
    const uint32_t x_tile = walk.x_tile(c), z_tile = walk.z_tile(c), y_tile = walk.y_tile(c);
    copies_wait<0>();  // chunk c + 1
    publish_stores();  // and W of chunk c
    __syncthreads();
    walk.fetch(c + P::stages - 1);
    if constexpr (!simple) pieces.read(c + 1);
    uint32_t left[key_dim / 16][4], faded[chunk / 16][4];
    pack_left<T>(left, state);
    products_begin();
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k) multiply<T, 64, 0>(o, left[k], along_columns(x_tile, 0, k), k > 0);
    products_commit();
    start_scores(c + 1);  // past the end: of nothing, and not used
    if constexpr (gated) {
      if constexpr (W::fades_values) load_faded<T>(faded, z_tile, gates.at(c));
      const float whole = gates.at(c).from_start[chunk - 1];
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) state[i] *= whole;
      products_wait<1>();
      pin(o);
      pin(left);
      fade_from_start(o, gates.at(c), exclusive);
      products_begin();
    }
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, 64, 1, 0>(o, along_rows(z_tile, group * 64, k),
                            along_columns(walk.tiles.start + w_at(c), 0, k), true);
    products_commit();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k) {
      if constexpr (W::fades_values)
        multiply<T, key_dim, 1>(state, faded[k], along_rows(y_tile, 0, k), true);
      else
        multiply<T, key_dim, 1, 1>(state, along_rows(z_tile, group * 64, k), along_rows(y_tile, 0, k), true);
    }
    products_commit();
    if constexpr (gated) gates.make(c + 2);
    products_wait<2>();
    pin(w);
    pin(left);
    if (c + 1 < chunks) finish_scores(c + 1);
    products_wait<1>();
    pin(o);
    end.leave(o, c, P::o_at);
    products_wait<0>();
    pin(state);
    if constexpr (W::fades_values) pin(faded);
  }
#endif
}

}  // namespace

// Segments fill the device with the blocks of one Lin.
cudaError_t launch_wgmma_states(const Context& context, const Lins& lins) {
  return launch_lins(context, lins, [&]<typename T, int key_dim, int value_dim, bool gated>() {
    using Alone = Plan<key_dim, value_dim, false, gated>;
    if constexpr (key_dim == 128 && value_dim == 128)
      if (lins.count == 2) {
        using Shared = Plan<key_dim, value_dim, false, gated, true>;
        return LinKernel{lin_states<T, key_dim, value_dim, gated, true>, Shared::threads, Shared::bytes};
      }
    return LinKernel{lin_states<T, key_dim, value_dim, gated, false>, Alone::threads, Alone::bytes};
  });
}
cudaError_t launch_wgmma_rows(const Context& context, const Lins& lins) {
  const bool simple = is_simple(lins);
  return launch_lins(context, lins, [&]<typename T, int key_dim, int value_dim, bool gated>() {
    using P = Plan<key_dim, value_dim, true, gated>;
    return LinKernel{
        simple ? lin_rows<T, key_dim, value_dim, gated, true> : lin_rows<T, key_dim, value_dim, gated, false>,
        P::threads, P::bytes};
  });
}

}  // namespace attest::cuda
