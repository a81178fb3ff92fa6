// What the kernels of Lin on matrix units have in common (lin_wgmma.cu, lin_mma.cu): a block's walk along the chunks of its
// segment, and the launch.
#pragma once
#include "gpu_checks/kernels/cuda/gates.cuh"
#include "gpu_checks/kernels/cuda/launch.cuh"

namespace attest::cuda {

// The tiles of a block: stages of y, z and, with output, x; the gates of `slots` chunks behind them and what a kernel adds.
template <int key_dim, int value_dim, bool output, bool has_gates, int stage_count, int slots, bool one_tile>
struct LinTiles {
  static constexpr int keys = key_dim, values = value_dim, stages = stage_count, gate_slots = slots;
  static constexpr bool with_output = output, gated = has_gates;
  static constexpr bool one_tile_for_both = one_tile;  // where y and z are one tensor
  static constexpr int groups = value_dim / 64, threads = 128 * groups;
  static constexpr int wide = key_dim / 64 * subtile_bytes, tall = value_dim / 64 * subtile_bytes;
  static constexpr int stage_bytes = (with_output ? wide : 0) + wide + tall,
                       stages_end = stages * stage_bytes;
  static constexpr int gate_bytes = gated ? gate_slots * static_cast<int>(sizeof(Gates)) : 0;
};

// Which Lin and segment a block has, its copies into the stages by so many threads, its gates by a warp. P: LinTiles, and where
// the gates begin.
template <typename T, typename P, int copying = P::threads, int gate_warp = 3>
struct Walk {
  static constexpr int key_dim = P::keys, value_dim = P::values;
  static constexpr bool with_output = P::with_output, gated = P::gated;
  static constexpr bool fades_values = gated && !Pair<T>::half, fades_keys = gated && Pair<T>::half;
  const Lin& lin;
  int64_t slot;  // (segment, head)
  Place place;
  int h, chunks;
  bool same;  // y and z are one tensor, and one tile serves for both
  Tiles tiles;
  int64_t x_base, y_base, z_base;

  __device__ Walk(const Layout& layout, const Lins& lins, uint8_t* shared)
      : lin(lins.lin[blockIdx.x % lins.count]),
        slot(blockIdx.x / lins.count),
        place(place_of(layout, slot / layout.heads)),
        h(static_cast<int>(slot % layout.heads)),
        tiles(shared) {
    chunks = is<Mutant::tail_chunk_dropped> ? place.size / chunk : (place.size + chunk - 1) / chunk;
    same = P::one_tile_for_both && key_dim == value_dim && !fades_keys && lin.y.data == lin.z.data &&
           lin.y.token == lin.z.token && lin.y.head == lin.z.head && lin.y.batch == lin.z.batch &&
           lin.y.group == lin.z.group;
    x_base = with_output ? lin.x.at(place.batch, 0, h) : 0;
    y_base = lin.y.at(place.batch, 0, h);
    z_base = lin.z.at(place.batch, 0, h);
  }
  __device__ int size(int c) const { return min(chunk, place.size - c * chunk); }
  __device__ uint32_t y_tile(int c) const { return tiles.start + c % P::stages * P::stage_bytes; }
  __device__ uint32_t z_tile(int c) const { return same ? y_tile(c) : y_tile(c) + P::wide; }
  __device__ uint32_t x_tile(int c) const { return y_tile(c) + P::wide + P::tall; }
  __device__ void fetch(int c) const {
    if (c < chunks) {
      const int64_t token = place.first + c * chunk;
      if constexpr (with_output)
        fetch_tile<T, key_dim, copying>(x_tile(c), lin.x, x_base, token, size(c), lin.key_dim);
      fetch_tile<T, key_dim, copying>(y_tile(c), lin.y, y_base, token, size(c), lin.key_dim);
      if (!same) fetch_tile<T, value_dim, copying>(z_tile(c), lin.z, z_base, token, size(c), lin.value_dim);
    }
    copies_commit();
  }
  __device__ GateWalk<P::gate_slots> gates() const {
    Gates* const prepared = reinterpret_cast<Gates*>(tiles.base + P::gates_at);
    return {
        lin.gate, prepared, place.batch, place.first, h, place.size, gated && threadIdx.x / 32 == gate_warp};
  }
  __device__ uint8_t* keys(int c) const { return tiles.base + (y_tile(c) - tiles.start); }
  __device__ uint8_t* values(int c) const { return tiles.base + (z_tile(c) - tiles.start); }
};

// A kernel of Lin, its threads and its bytes of shared memory.
struct LinKernel {
  void (*kernel)(Layout, Lins);
  int threads, bytes;
};
// choose.template operator()<T, key_dim, value_dim, gated>(): the LinKernel.
template <typename Choose>
cudaError_t launch_lins(const Context& context, const Lins& lins, Choose choose) {
  const Layout& layout = context.layout;
  const Lin& lin = lins.lin[0];
  return with_type_and_dim(lin.y.type, lin.tile_keys, [&]<typename T, int key_dim>() {
    return with_type_and_dim(lin.y.type, lin.tile_values, [&]<typename, int value_dim>() {
      const LinKernel chosen = lin.gate.kind == GateKind::none
                                   ? choose.template operator()<T, key_dim, value_dim, false>()
                                   : choose.template operator()<T, key_dim, value_dim, true>();
      return Launches(context.stream)
          .run(chosen.kernel, layout.segments * layout.heads * lins.count, chosen.threads, chosen.bytes,
               layout, lins)
          .error;
    });
  });
}

}  // namespace attest::cuda
