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

// Which Lin and segment a block has, its copies into the stages, its gates. P: LinTiles, and where the gates begin.
template <typename T, typename P>
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
        fetch_tile<T, key_dim, P::threads>(x_tile(c), lin.x, x_base, token, size(c), lin.key_dim);
      fetch_tile<T, key_dim, P::threads>(y_tile(c), lin.y, y_base, token, size(c), lin.key_dim);
      if (!same)
        fetch_tile<T, value_dim, P::threads>(z_tile(c), lin.z, z_base, token, size(c), lin.value_dim);
    }
    copies_commit();
  }
  __device__ GateWalk<P::gate_slots> gates() const {
    Gates* const prepared = reinterpret_cast<Gates*>(tiles.base + P::gates_at);
    return {lin.gate, prepared, place.batch, place.first, h, place.size, gated && threadIdx.x / 32 == 3};
  }
  __device__ uint8_t* keys(int c) const { return tiles.base + (y_tile(c) - tiles.start); }
};

// Whether nothing is scaled but rows, which leave as the products give them, in the input type; not in pieces of keys.
inline bool is_simple(const Lin& lin) {
  return !lin.exclusive && lin.y_scale == 1 && !lin.add.data && !lin.denominators.data &&
         lin.o.type == lin.y.type && !lin.take_sums && !lin.leave_sums;
}
inline bool is_simple(const Lins& lins) {
  return is_simple(lins.lin[0]) && (lins.count == 1 || is_simple(lins.lin[1]));
}

// The scores of a chunk where keys come in pieces: zero but in the last piece, which has their sum over all, in fp32.
template <int scores, typename W>
class PieceScores {
 public:
  __device__ PieceScores(const W& walk, const Layout& layout, const Lins& lins)
      : mine_(blockIdx.x % lins.count == 0),
        leaves_(walk.lin.leave_sums && !apart),
        takes_(walk.lin.take_sums && !apart && (mine_ || !leaves_)),
        chunks_(walk.chunks),
        sums_(lins.scores + walk.slot * (layout.segment / chunk) * each * threads + threadIdx.x) {}
  // Of chunk c, ahead of its use, where there are registers for it.
  __device__ void read(int c) {
    if (ahead && c < chunks_) load(c);
  }
  __device__ void join(float (&w)[scores / 2], int c) {
    if (!ahead) load(c);
    if (takes_)
#pragma unroll
      for (int i = 0; i < each; ++i)
        w[4 * i] += before_[i].x, w[4 * i + 1] += before_[i].y, w[4 * i + 2] += before_[i].z,
            w[4 * i + 3] += before_[i].w;
    if (!leaves_) return;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (mine_) at(c)[i * threads] = make_float4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
      w[4 * i] = w[4 * i + 1] = w[4 * i + 2] = w[4 * i + 3] = 0;
    }
  }

 private:
  static constexpr int each = scores / 8, threads = W::value_dim / 64 * 128;
  static constexpr bool ahead = scores < 64, apart = is<Mutant::scores_rounded_in_pieces>;
  __device__ float4* at(int c) const { return sums_ + int64_t{c} * each * threads; }
  __device__ void load(int c) {
    if (takes_)
#pragma unroll
      for (int i = 0; i < each; ++i) before_[i] = at(c)[i * threads];
  }
  const bool mine_, leaves_, takes_;
  const int chunks_;
  float4* const sums_;
  float4 before_[each];
};

// Where element i of a warpgroup's 64 columns of O, which it holds transposed, stands.
struct Cell {
  int t, column;
  __device__ explicit Cell(int i) {
    const Thread me;
    t = 8 * (i / 4) + me.pair + i % 2, column = me.group * 64 + me.row + i % 4 / 2 * 8;
  }
};
// o += scale rows, half of them loaded at a time.
template <typename N>
__device__ inline void add_rows(float (&o)[32], const View& rows, float scale, int64_t base, int size,
                                int value_dim) {
  const N* const from = static_cast<const N*>(rows.data) + base;
#pragma unroll
  for (int half = 0; half < 32; half += 16) {
    N more[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const Cell at(half + i);
      more[i] = at.t < size && at.column < value_dim ? from[at.t * rows.token + at.column] : N(0.f);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) o[half + i] += scale * static_cast<float>(more[i]);
  }
}

// The end of every chunk's rows: sums of other keys, what is added, division, and where they go.
template <typename T, bool simple, typename W>
class RowsEnd {
 public:
  __device__ RowsEnd(const W& walk, const Layout& layout)
      : walk_(walk), layout_(layout), o_base_(base(walk.lin.o)) {
    if constexpr (simple) return;
    add_base_ = base(walk.lin.add), denominators_base_ = base(walk.lin.denominators);
    read_denominators(0);
  }
  // Chunk c out of O^T; o_tile: where rows go through on their way.
  __device__ void leave(float (&o)[32], int c, int o_tile) {
    constexpr int threads = W::value_dim / 64 * 128;
    const Lin& lin = walk_.lin;
    float4* const sums = lin.sums + (walk_.slot * (layout_.segment / chunk) + c) * 8 * threads + threadIdx.x;
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
    if constexpr (simple)
      leave_rows<T>(o, lin.x_scale, walk_.tiles, o_tile, lin.o, o_base_ + c * chunk * lin.o.token,
                    walk_.size(c), lin.value_dim);
    else
      finish(o, c, o_tile, walk_.size(c));
  }

 private:
  __device__ int64_t base(const View& view) const {
    return view.at(walk_.place.batch, walk_.place.first, walk_.h);
  }
  __device__ void finish(float (&o)[32], int c, int o_tile, int size) {
    const Lin& lin = walk_.lin;
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] *= lin.x_scale;
    const int64_t add_from = add_base_ + c * chunk * lin.add.token;
    if (lin.add.data && lin.add.type == Type::f32)
      add_rows<float>(o, lin.add, lin.add_scale, add_from, size, lin.value_dim);
    else if (lin.add.data)
      add_rows<T>(o, lin.add, lin.add_scale, add_from, size, lin.value_dim);
    if (lin.denominators.data) divide(o, c);
    if (lin.o.type == Type::f32)
      leave_floats(o, c, size);
    else
      leave_rows<T>(o, 1, walk_.tiles, o_tile, lin.o, o_base_ + c * chunk * lin.o.token, size, lin.value_dim);
  }
  // Two tokens' denominators in each lane, a chunk ahead.
  __device__ void read_denominators(int c) {
    const Lin& lin = walk_.lin;
    if (!lin.denominators.data || c >= walk_.chunks) return;
    const float* const from = static_cast<const float*>(lin.denominators.data) + denominators_base_;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = c * chunk + 2 * (threadIdx.x % 32) + i; t < walk_.place.size)
        denominators_[i] = from[t * lin.denominators.token];
  }
  __device__ void divide(float (&o)[32], int c) {
    float inverse[2];
    bool small = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float by = denominators_[i] + walk_.lin.epsilon;
      const bool tiny = fabsf(by) < 0x1p-64f;  // its inverse may overflow where the quotient does not
      inverse[i] = 1 / (tiny ? by * 0x1p64f : by);
      small = small || tiny;
      denominators_[i] = tiny ? 0x1p64f : 1.f;
    }
    const bool any_small = __any_sync(~0u, small);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float by = __shfl_sync(~0u, inverse[i], 4 * j + lane % 4);
        o[4 * j + i] *= by, o[4 * j + 2 + i] *= by;
        if (!any_small) continue;
        const float more = __shfl_sync(~0u, denominators_[i], 4 * j + lane % 4);
        o[4 * j + i] *= more, o[4 * j + 2 + i] *= more;
      }
    read_denominators(c + 1);
  }
  __device__ void leave_floats(const float (&o)[32], int c, int size) const {
    const Lin& lin = walk_.lin;
    float* const to = static_cast<float*>(lin.o.data) + o_base_ + c * chunk * lin.o.token;
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (const Cell at(i); at.t < size && at.column < lin.value_dim)
        to[at.t * lin.o.token + at.column] = o[i];
  }

  const W& walk_;
  const Layout& layout_;
  const int64_t o_base_;
  int64_t add_base_ = 0, denominators_base_ = 0;
  float denominators_[2] = {1, 1};
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
