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

// A warpgroup's 64 columns of O, which it holds transposed: action(value, token of the chunk, column) of those that exist.
template <typename Action>
__device__ inline void each_of_rows(float (&o)[32], int size, int value_dim, Action action) {
  const Thread me;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int t = 8 * (i / 4) + me.pair + i % 2, column = me.group * 64 + me.row + i % 4 / 2 * 8;
    if (t < size && column < value_dim) action(o[i], t, column);
  }
}
template <typename N>
__device__ inline void add_rows(float (&o)[32], const View& rows, float scale, int64_t base, int size,
                                int value_dim) {
  const N* const from = static_cast<const N*>(rows.data) + base;
  each_of_rows(o, size, value_dim, [&](float& value, int t, int column) {
    value += scale * static_cast<float>(from[t * rows.token + column * rows.dim]);
  });
}

// Whether rows leave as the products give them, in the input type.
inline bool is_simple(const Lin& lin) {
  return !lin.exclusive && !lin.add.data && !lin.denominators.data && lin.o.type == lin.y.type;
}
inline bool is_simple(const Lins& lins) {
  return is_simple(lins.lin[0]) && (lins.count == 1 || is_simple(lins.lin[1]));
}

// The rows of chunk c out of O^T: with the sums of other keys, what is added, divided, and left; o_tile: where rows go through.
template <typename T, bool simple, typename W>
__device__ inline void end_rows(float (&o)[32], const W& walk, const Layout& layout, int c, int o_tile) {
  constexpr int threads = W::value_dim / 64 * 128;
  const Lin& lin = walk.lin;
  const int64_t first = walk.place.first + c * chunk;
  const int size = walk.size(c);
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] *= lin.x_scale * lin.y_scale;
  float4* const sums = lin.sums + (walk.slot * (layout.segment / chunk) + c) * 8 * threads + threadIdx.x;
  if (lin.take_sums && !is<Mutant::sums_not_added>)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 before = sums[i * threads];
      o[4 * i] += before.x, o[4 * i + 1] += before.y, o[4 * i + 2] += before.z, o[4 * i + 3] += before.w;
    }
  if (lin.leave_sums) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sums[i * threads] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    return;
  }
  if constexpr (simple) {
    leave_rows<T>(o, 1, walk.tiles, o_tile, lin.o, lin.o.at(walk.place.batch, first, walk.h), size,
                  lin.value_dim);
    return;
  }
  const auto at = [&](const View& view) { return view.at(walk.place.batch, first, walk.h); };
  if (lin.add.data && lin.add.type == Type::f32)
    add_rows<float>(o, lin.add, lin.add_scale, at(lin.add), size, lin.value_dim);
  else if (lin.add.data)
    add_rows<T>(o, lin.add, lin.add_scale, at(lin.add), size, lin.value_dim);
  if (lin.denominators.data) {
    const float* const by = static_cast<const float*>(lin.denominators.data) + at(lin.denominators);
    each_of_rows(o, size, lin.value_dim,
                 [&](float& value, int t, int) { value /= by[t * lin.denominators.token] + lin.epsilon; });
  }
  if (lin.o.type == Type::f32) {
    float* const to = static_cast<float*>(lin.o.data) + at(lin.o);
    each_of_rows(o, size, lin.value_dim,
                 [&](float value, int t, int column) { to[t * lin.o.token + column] = value; });
  } else
    leave_rows<T>(o, 1, walk.tiles, o_tile, lin.o, at(lin.o), size, lin.value_dim);
}

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
