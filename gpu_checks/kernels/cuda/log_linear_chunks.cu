// Log-linear Mamba-2 on matrix units, from position 0: chunks of 64 tokens, groups of 8 chunks, segments of groups.
// A Fenwick block of 2^j chunks that is read later ends at the chunk c whose number has j trailing ones: one slot a chunk.
//   (1) a group sweeps its chunks and leaves the state of each slot, bf16, and its whole state, fp32;
//   (2) the groups of a head are swept the same way, element by element;
//   (3) a chunk: W = (Q K^T o G o Lambda), O^T = V^T W^T + sum over the set bits b of its number of
//       (S_b^T Q^T) times lambda^(b+7) G(t, start) and the gates between block b and the chunk: those of the lower blocks.
// More than 128 keys or values: all of it for every 128 of both, but W, of all keys, with the last of them alone; rows are
// added over the keys in fp32.
// Floor at T = 131072, H = 16, d = dv = 128: products 2 c^2 d (2), 2 c d^2 (1 + 5.5 live blocks): 516 GFLOP, 0.69 ms at
// 750 TFLOP/s; q k v o 0.50 ms. The scheme moves besides: slots 1.1 GB out, 5.8 GB in, most of it from L2.
#include "gpu_checks/kernels/cuda/gates.cuh"
#include "gpu_checks/kernels/cuda/launch.cuh"
#include "gpu_checks/kernels/cuda/products.cuh"

namespace attest::cuda {
namespace {

constexpr int group_chunks = 8;

// A state P^T (value_dim, key_dim) in slot order: (slot, head, 64-row half, 64, key_dim), in the tiles' own layout.
template <typename T, int key_dim>
__device__ inline void store_slot(T* memory, const float (&state)[key_dim / 2]) {
  const Thread me;
  uint8_t* const half_tile = reinterpret_cast<uint8_t*>(memory + me.group * 64 * key_dim);
#pragma unroll
  for (int j = 0; j < key_dim / 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint32_t*>(half_tile + tile_offset(me.row + 8 * half, 8 * j + me.pair)) =
          Pair<T>::pack(state[4 * j + 2 * half], state[4 * j + 2 * half + 1]);
}

template <int key_dim, int value_dim>
struct SweepPlan {
  static constexpr int threads = 2 * value_dim, stages = 3;
  static constexpr int wide = key_dim / 64 * subtile_bytes, tall = value_dim / 64 * subtile_bytes;
  static constexpr int stage_bytes = wide + tall, gates_at = stages * stage_bytes;
  static constexpr int bytes = 1024 + gates_at + 2 * static_cast<int>(sizeof(Gates));
};

template <typename T, int key_dim, int value_dim>
__global__ void __launch_bounds__(SweepPlan<key_dim, value_dim>::threads, 1)
    sweep_groups(const __grid_constant__ Layout layout, const __grid_constant__ LogLinear job) {
  using P = SweepPlan<key_dim, value_dim>;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  const int64_t segment = blockIdx.x / layout.heads;
  const int h = static_cast<int>(blockIdx.x % layout.heads);
  const Place place = place_of(layout, segment);
  if (place.size <= 0) return;
  const int chunks = (place.size + chunk - 1) / chunk;
  const int64_t k_base = job.k.at(place.batch, 0, h), v_base = job.v.at(place.batch, 0, h);
  auto fetch = [&](int c) {
    if (c < chunks) {
      const uint32_t tile = tiles.start + c % P::stages * P::stage_bytes;
      const int size = min(chunk, place.size - c * chunk);
      fetch_tile<T, key_dim, P::threads>(tile, job.k, k_base, place.first + c * chunk, size);
      fetch_tile<T, value_dim, P::threads>(tile + P::wide, job.v, v_base, place.first + c * chunk, size);
    }
    copies_commit();
  };
  GateWalk<2> gates{job.gate,
                    reinterpret_cast<Gates*>(tiles.base + P::gates_at),
                    place.batch,
                    place.first,
                    h,
                    place.size,
                    threadIdx.x / 32 == 3};
  gates.begin(1);
  fetch(0);
  fetch(1);
  float run[key_dim / 2], pairs[key_dim / 2], quads[key_dim / 2];
#pragma unroll
  for (int i = 0; i < key_dim / 2; ++i) run[i] = pairs[i] = quads[i] = 0;
  float run_fade = 1, pairs_fade = 1, quads_fade = 1;
  const Thread me;
  for (int c = 0; c < chunks; ++c) {
    copies_wait<1>();
    publish_stores();
    __syncthreads();
    const uint32_t k_tile = tiles.start + c % P::stages * P::stage_bytes, v_tile = k_tile + P::wide;
    fade_rows<T, key_dim, P::threads>(tiles.base + (k_tile - tiles.start), gates.at(c).to_end);
    const float whole = gates.at(c).from_start[chunk - 1];
#pragma unroll
    for (int i = 0; i < key_dim / 2; ++i)
      run[i] *= whole, pairs[i] *= whole, quads[i] *= is<Mutant::level_idle_undecayed> ? 1.f : whole;
    run_fade *= whole;
    publish_stores();
    __syncthreads();
    products_begin();
#pragma unroll
    for (int k = 0; k < chunk / 16; ++k)
      multiply<T, key_dim, 1, 1>(run, along_rows(v_tile, me.group * 64, k), along_rows(k_tile, 0, k), true);
    products_commit();
    fetch(c + 2);
    gates.make(c + 1);
    products_wait<0>();
    pin(run);
    const int64_t slot = (segment * (layout.segment / chunk) + c) * layout.heads + h;
    const int at = c % group_chunks;
    if (at % 4 == 3) {  // pairs and this one are a block of four
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) run[i] += pairs[i], pairs[i] = 0;
      run_fade *= pairs_fade;
    }
    if (at == group_chunks - 1) {
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) run[i] += quads[i];
      run_fade *= quads_fade;
      store_state<key_dim>(
          job.group_states + (slot / layout.heads / group_chunks * layout.heads + h) * value_dim * key_dim,
          run);
    } else {
      store_slot<T, key_dim>(static_cast<T*>(job.slots) + slot * value_dim * key_dim, run);
    }
    if (threadIdx.x == 0) job.slot_fades[slot] = run_fade;
    if (at % 4 == 1) {
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) {
        pairs[i] = run[i];
        if (!is<Mutant::level_not_cleared>) run[i] = 0;
      }
      pairs_fade = run_fade, run_fade = 1;
    }
    if (at == 3) {
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) quads[i] = run[i], run[i] = 0;
      quads_fade = run_fade, run_fade = 1;
    }
    if (at == group_chunks - 1) {
#pragma unroll
      for (int i = 0; i < key_dim / 2; ++i) run[i] = pairs[i] = quads[i] = 0;
      run_fade = pairs_fade = quads_fade = 1;
    }
  }
}

// The groups of a sequence and head by binary counting; two elements of a state a thread.
template <typename T>
__global__ void sweep_heads(Layout layout, LogLinear job, int key_dim, int value_dim, int blocks) {
  constexpr int levels = 24;
  const int64_t job_index = blockIdx.x / blocks;
  const int sequence = static_cast<int>(job_index / layout.heads),
            h = static_cast<int>(job_index % layout.heads);
  const int element = (static_cast<int>(blockIdx.x % blocks) * blockDim.x + threadIdx.x) * 2;
  const int size = key_dim * value_dim;
  if (element >= size) return;
  const int row = element / key_dim, column = element % key_dim;  // of P^T
  const int offset = row / 64 * 64 * key_dim + tile_offset(row % 64, column) / 2;
  const int64_t first = first_segment(layout, sequence) * (layout.segment / (group_chunks * chunk));
  const int64_t tokens =
      layout.bounds ? layout.bounds[sequence + 1] - layout.bounds[sequence] : layout.tokens;
  const int64_t groups = tokens / (group_chunks * chunk);
  float2 stack[levels];
  float fades[levels];
#pragma unroll
  for (int b = 0; b < levels; ++b) stack[b] = make_float2(0, 0), fades[b] = 1;
  auto state_of = [&](int64_t g) {
    return *reinterpret_cast<const float2*>(job.group_states + ((first + g) * layout.heads + h) * size +
                                            element);
  };
  auto slot_of = [&](int64_t g) {
    return ((first + g) * group_chunks + group_chunks - 1) * layout.heads + h;
  };
  constexpr int ahead = 4;
  float2 next[ahead];
  float next_fade[ahead];
#pragma unroll
  for (int i = 0; i < ahead; ++i)
    if (i < groups) next[i] = state_of(i), next_fade[i] = job.slot_fades[slot_of(i)];
  for (int64_t base = 0; base < groups; base += ahead) {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int64_t g = base + i;
      if (g >= groups) break;
      float2 own = next[i];
      const float whole = next_fade[i];
      if (g + ahead < groups)
        next[i] = state_of(g + ahead), next_fade[i] = job.slot_fades[slot_of(g + ahead)];
      float fade = whole;
      bool merging = true;
#pragma unroll
      for (int b = 0; b < levels; ++b) {
        if (g >> b == 0 && !merging) break;
        if (g >> b & 1) {
          stack[b].x *= whole, stack[b].y *= whole;
          if (merging) own.x += stack[b].x, own.y += stack[b].y, fade *= fades[b];
        } else if (merging) {
          stack[b] = own, fades[b] = fade;
          merging = false;
        }
      }
      *reinterpret_cast<uint32_t*>(static_cast<T*>(job.slots) + slot_of(g) * size + offset) =
          Pair<T>::pack(own.x, own.y);
      // The sweep of the groups left the gates of this group alone; here are those of its whole block.
      if (element == 0) job.block_fades[slot_of(g)] = fade;
    }
  }
  // The blocks of whole groups of the final state, still without the tokens after them.
  if (!job.final.data) return;
  for (int level = 0; level < job.final_levels; ++level) {
    float2 value = make_float2(0, 0);
#pragma unroll
    for (int b = 0; b < levels; ++b)
      if (b + 10 == level && (groups >> b & 1)) value = stack[b];
    float* const out = static_cast<float*>(job.final.data) +
                       ((static_cast<int64_t>(sequence) * layout.heads + h) * job.final_levels + level) *
                           job.final.rows * job.final.columns;
    out[column * job.final.columns + row] = value.x;
    out[(column + 1) * job.final.columns + row] = value.y;
  }
}

// The rest of the final state: blocks inside the last group, and the gates of its tokens on the blocks before.
__global__ void finish_state(Layout layout, LogLinear job, int key_dim, int value_dim) {
  const int64_t slot = blockIdx.x / job.final_levels;
  const int level = static_cast<int>(blockIdx.x % job.final_levels);
  const int sequence = static_cast<int>(slot / layout.heads), h = static_cast<int>(slot % layout.heads);
  const int64_t begin = layout.bounds ? layout.bounds[sequence] : 0;
  const int64_t tokens = layout.bounds ? layout.bounds[sequence + 1] - begin : layout.tokens;
  const int64_t batch = layout.bounds ? 0 : sequence;
  if (threadIdx.x == 0 && level == 0 && h == 0 && job.final_position) job.final_position[sequence] = tokens;
  if (level == 0 || !(tokens >> (level - 1) & 1)) return;
  const int bit = level - 1, size = key_dim * value_dim;
  const int64_t tail = tokens / (group_chunks * chunk) * (group_chunks * chunk);
  const int64_t first = bit >= 9 ? tail : tokens >> (bit + 1) << (bit + 1),
                last = bit >= 9 ? tail : first + (1 << bit);
  float* const out = static_cast<float*>(job.final.data) +
                     (slot * job.final_levels + level) * job.final.rows * job.final.columns;
  float after = 1;
  for (int64_t t = last; t < tokens; ++t) after *= job.gate.alpha(batch, begin + t, h);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    float& element = out[i / value_dim * job.final.columns + i % value_dim];
    float sum = bit >= 9 ? element : 0.f;
    for (int64_t t = first; t < last; ++t)
      sum = fmaf(job.k.read(batch, begin + t, h, i / value_dim),
                 job.v.read(batch, begin + t, h, i % value_dim), job.gate.alpha(batch, begin + t, h) * sum);
    element = after * sum;
  }
}

template <int key_dim, int value_dim>
struct ReadPlan {
  static constexpr int groups = value_dim / 64, threads = 128 * groups;
  static constexpr int wide = key_dim / 64 * subtile_bytes, tall = value_dim / 64 * subtile_bytes;
  static constexpr int state = value_dim * key_dim * 2;
  // q | w | state 0 | state 1, whose place k and v take first | gates | level scales
  static constexpr int w_at = wide, first_at = w_at + subtile_bytes, second_at = first_at + state;
  static constexpr int second = state > wide + tall ? state : wide + tall;
  static constexpr int gates_at = second_at + second, scales_at = gates_at + sizeof(Gates);
  static int bytes(int levels) {
    return 1024 + scales_at + chunk * (levels | 1) * static_cast<int>(sizeof(float));
  }
};

template <typename T, int key_dim, int value_dim>
__global__ void __launch_bounds__(ReadPlan<key_dim, value_dim>::threads, value_dim == 128 ? 2 : 4)
    read_levels(const __grid_constant__ Layout layout, const __grid_constant__ LogLinear job) {
  using P = ReadPlan<key_dim, value_dim>;
  constexpr int scores = 64 / P::groups;
  extern __shared__ uint8_t shared[];
  const Tiles tiles(shared);
  Gates& gate = *reinterpret_cast<Gates*>(tiles.base + P::gates_at);
  float* const scales = reinterpret_cast<float*>(tiles.base + P::scales_at);
  const int stride = job.levels | 1;
  const int h = static_cast<int>(blockIdx.x % layout.heads);
  const int per_segment = layout.segment / chunk;
  const int64_t chunk_index = blockIdx.x / layout.heads, segment = chunk_index / per_segment;
  const int in_segment = static_cast<int>(chunk_index % per_segment);
  const Place place = place_of(layout, segment);
  const int size = min(chunk, place.size - in_segment * chunk);
  if (size <= 0) return;
  const int64_t first = first_segment(layout, place.sequence), token = place.first + in_segment * chunk;
  const int64_t number = (segment - first) * per_segment + in_segment;  // of the chunk in its sequence
  const uint32_t q_tile = tiles.start, k_tile = q_tile + P::second_at, v_tile = k_tile + P::wide,
                 w_tile = q_tile + P::w_at;
  const Thread me;
  float w[scores / 2], o[32];
  auto fetch_keys = [&](int back) {
    fetch_tile<T, key_dim, P::threads>(q_tile, job.q, job.q.at(place.batch, 0, h) - back, token, size);
    fetch_tile<T, key_dim, P::threads>(k_tile, job.k, job.k.at(place.batch, 0, h) - back, token, size);
  };
  auto add_scores = [&](bool begun) {
    products_begin();
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k)
      multiply<T, scores, 0, 0>(w, along_columns(q_tile, 0, k), along_columns(k_tile, me.group * scores, k),
                                begun || k > 0);
    products_commit();
    products_wait<0>();
    pin(w);
  };
  for (int back = job.keys_before; back > 0; back -= key_dim) {
    fetch_keys(back);
    copies_commit();
    copies_wait<0>();
    publish_stores();
    __syncthreads();
    add_scores(back < job.keys_before);
    __syncthreads();
  }
  fetch_keys(0);
  fetch_tile<T, value_dim, P::threads>(v_tile, job.v, job.v.at(place.batch, 0, h), token, size);
  copies_commit();

  auto block_slot = [&](int bit) {
    const int64_t last = (number >> (bit + 1) << (bit + 1)) + (int64_t{1} << bit) - 1;
    return (first * per_segment + last) * layout.heads + h;
  };
  // Set bits from the lowest up: `bits` are those whose state is still to be fetched.
  int64_t bits = number;
  auto fetch_state = [&](int which) {
    if (bits != 0) {
      const int bit = __ffsll(bits) - 1;
      bits &= bits - 1;
      const uint8_t* const from =
          static_cast<const uint8_t*>(job.slots) + block_slot(bit) * static_cast<int64_t>(P::state);
      const uint32_t to = tiles.start + (which % 2 ? P::second_at : P::first_at);
#pragma unroll
      for (int i = threadIdx.x * 16; i < P::state; i += P::threads * 16) copy_async(to + i, from + i, true);
    }
    copies_commit();
  };
  fetch_state(0);
  for (int i = threadIdx.x; i < size * job.levels; i += P::threads)
    scales[i / job.levels * stride + i % job.levels] =
        job.level_scales.read(place.batch, token + i / job.levels, h, i % job.levels);
  if (threadIdx.x < 32) {
    float raw[2] = {1, 1};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int t = 2 * threadIdx.x + i; t < size) raw[i] = job.gate.raw(place.batch, token + t, h);
    prepare_gates(gate, job.gate, raw, size);
  }
  copies_wait<1>();
  publish_stores();
  __syncthreads();
  add_scores(job.keys_before > 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = me.row + 8 * half, zeros = gate.zeros[t];
    const float sum = gate.sum[t];
#pragma unroll
    for (int j = 0; j < scores / 8; ++j) {
      const int s = me.group * scores + 8 * j + me.pair;
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool live = t >= s + i && t < size && gate.zeros[s + i] == zeros && !job.leave_sums;
        const float weight =
            live ? exp2f(sum - gate.sum[s + i]) * scales[t * stride + 32 - __clz(t ^ (s + i))] : 0.f;
        value[i] = live ? w[4 * j + 2 * half + i] * weight : 0.f;
      }
      *reinterpret_cast<uint32_t*>(tiles.base + P::w_at + tile_offset(t, s)) =
          Pair<T>::pack(value[0], value[1]);
    }
  }
  publish_stores();
  __syncthreads();
  products_begin();
#pragma unroll
  for (int k = 0; k < chunk / 16; ++k)
    multiply<T, 64, 1, 0>(o, along_rows(v_tile, me.group * 64, k), along_columns(w_tile, 0, k), k > 0);
  products_commit();
  products_wait<0>();
  pin(o);
  __syncthreads();  // k and v are done with
  fetch_state(1);

  float between = 1;  // the gates from the end of the block to the start of the chunk
  int which = 0;
  for (int64_t left = number; (is<Mutant::level_top_unread> ? left & (left - 1) : left) != 0;
       left &= left - 1, ++which) {
    const int bit = __ffsll(left) - 1;
    copies_wait<1>();
    publish_stores();
    __syncthreads();
    const uint32_t tile =
        tiles.start + (which % 2 ? P::second_at : P::first_at) + me.group * 64 * key_dim * 2;
    float part[32];
    products_begin();
#pragma unroll
    for (int k = 0; k < key_dim / 16; ++k)
      multiply<T, 64, 0, 0>(part, along_columns(tile, 0, k), along_columns(q_tile, 0, k), k > 0);
    products_commit();
    const float fade = between;
    const int64_t slot = block_slot(bit);
    between *= bit < 3 ? job.slot_fades[slot] : job.block_fades[slot];
    products_wait<0>();
    pin(part);
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t = 8 * j + me.pair + i;
        const float by =
            t < size ? fade * gate.from_start[t] * scales[t * stride + bit + 7 - is<Mutant::level_one_low>]
                     : 0.f;
        o[4 * j + i] = fmaf(by, part[4 * j + i], o[4 * j + i]);
        o[4 * j + 2 + i] = fmaf(by, part[4 * j + 2 + i], o[4 * j + 2 + i]);
      }
    __syncthreads();
    fetch_state(which);
  }
  float4* const sums = job.sums + int64_t{blockIdx.x} * 8 * P::threads + threadIdx.x;
  if (job.take_sums)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 before = sums[i * P::threads];
      o[4 * i] += before.x, o[4 * i + 1] += before.y, o[4 * i + 2] += before.z, o[4 * i + 3] += before.w;
    }
  if (job.leave_sums) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      sums[i * P::threads] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    return;
  }
  __syncthreads();
  // O^T through the tile of q to whole rows; where it is too narrow, through the states.
  const int out_at = value_dim > key_dim ? P::first_at : 0;
  leave_rows<T>(o, job.scale, tiles, out_at, job.o, job.o.at(place.batch, token, h),
                size - (is<Mutant::tail_last_row_unwritten> && size < chunk));
}

template <typename T, int key_dim, int value_dim>
cudaError_t launch_one(const Context& context, const LogLinear& job) {
  const Layout& layout = context.layout;
  using Sweep = SweepPlan<key_dim, value_dim>;
  using Read = ReadPlan<key_dim, value_dim>;
  const int64_t segments = layout.segments * layout.heads,
                heads = static_cast<int64_t>(layout.sequences) * layout.heads;
  const int blocks = key_dim * value_dim / 2 / 128;
  Launches launches(context.stream);
  launches.run(sweep_groups<T, key_dim, value_dim>, segments, Sweep::threads, Sweep::bytes, layout, job)
      .run(sweep_heads<T>, heads * blocks, 128, 0, layout, job, key_dim, value_dim, blocks);
  if (job.final.data)
    launches.run(finish_state, heads * job.final_levels, 256, 0, layout, job, key_dim, value_dim);
  return launches
      .run(read_levels<T, key_dim, value_dim>, segments * (layout.segment / chunk), Read::threads,
           Read::bytes(job.levels), layout, job)
      .error;
}

}  // namespace

bool log_linear_supports(const Context& context, const LogLinear& job, Type type) {
  const int levels = context.units == MatrixUnits::wgmma ? 40 : 35;  // whose scales 99 KB have room for
  return context.units != MatrixUnits::none && job.key_dim == job.value_dim && built_for(type, job.key_dim) &&
         job.levels <= levels && (!job.final.data || job.final.type == Type::f32) &&
         take_whole_rows({&job.q, &job.k, &job.v, &job.o}, type);
}

cudaError_t launch_log_linear(const Context& context, const LogLinear& job) {
  return with_type_and_dim(job.k.type, job.key_dim,
                           [&]<typename T, int dim>() { return launch_one<T, dim, dim>(context, job); });
}

}  // namespace attest::cuda
