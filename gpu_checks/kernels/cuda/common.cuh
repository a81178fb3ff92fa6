// What the CUDA kernels share: views of the caller's tensors, the layout of tokens in sequences and segments, gates.
//
// Form. Everything of first order, and HLA by composition, is one primitive, Lin (reference/operators/common):
//   o_t = sum_{s<=t} G(t,s) (x_t.y_s) z_s + G(t,start) x_t^T P,   P <- G(end,start) P + sum_s G(end,s) y_s z_s^T
//   hla2 = Lin_{g^2}(Q, A, V), A = Lin_g(Q, K, K); ahla = Lin(Q, K, Lin(Q, K, V)); hla3 = Lin_{g^3}(Q, A, Lin_g(Q, K, V));
//   unmasked hla2 = Lin_g(A, Q, V); printed = that less Lin_g(Q, K, B), B = Lin_g(K, Q, V) of the token before.
// A normalised call divides, in fp32, by the same Lins of ones, which are rows of one value column.
// The direct form F = S C - G is carried, which subtracts nothing; G of the state is made at the ends of a call.
// Phases: a sequence is cut into segments, as many as fill the device; (1) every segment's own state, from zero;
// (2) a scan over the segments, which takes the initial and leaves the final state; (3) rows, chunk by chunk along the
// segment with the state on chip. Intermediate rows (A, R) are stored once, in the input format.
//
// Floor at T = 131072, H = 16, d = dv = 128, bf16, chunk 64, at 750 TFLOP/s and 4.3 TB/s. A product of a chunk is
// 2 c^2 d or 2 c d^2 operations: lin 2+2, ahla 3+4, hla2 4+4, hla3 5+5 of them; tensors of 0.54 GB: q k v o.
//   lin 206 GFLOP 0.27 ms; ahla 0.50; hla2 0.55; hla3 0.78; input and output 0.50 ms; chain: T/c chunks of a segment.
// What this scheme does (tensors read or written, products): lin 6, 5; ahla 12, 11; hla2 10, 11; hla3 13, 15.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu_checks/mutants/cuda/cuda_mutants.hpp"

namespace attest::cuda {

enum class Type : int { f32, bf16, f16, f64 };
__host__ __device__ inline int bytes_of(Type type) {
  return type == Type::f32 ? 4 : type == Type::f64 ? 8 : 2;
}

__device__ inline float load(const void* data, int64_t i, Type type) {
  switch (type) {
    case Type::f32:
      return static_cast<const float*>(data)[i];
    case Type::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case Type::f16:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<float>(static_cast<const double*>(data)[i]);
  }
}
__device__ inline void store(void* data, int64_t i, Type type, float value) {
  switch (type) {
    case Type::f32:
      static_cast<float*>(data)[i] = value;
      break;
    case Type::bf16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      break;
    case Type::f16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      break;
    default:
      static_cast<double*>(data)[i] = value;
  }
}

// A tensor [B, T, H / group, D] in elements; null: absent.
struct View {
  void* data = nullptr;
  Type type = Type::f32;
  int group = 1;
  int64_t batch = 0, token = 0, head = 0, dim = 1;
  __host__ __device__ int64_t at(int64_t b, int64_t t, int h) const {
    const int own = is<Mutant::group_modulo> && group > 1 ? h % group : h / group;
    return b * batch + t * token + static_cast<int64_t>(own) * head;
  }
  __device__ float read(int64_t b, int64_t t, int h, int64_t i) const {
    return load(data, at(b, t, h) + i * dim, type);
  }
  __device__ void write(int64_t b, int64_t t, int h, int64_t i, float x) const {
    store(data, at(b, t, h) + i * dim, type, x);
  }
};

// Segments of `segment` tokens inside sequences. Not packed: `sequences` batch rows of `tokens` tokens each.
// Packed: one batch row, boundaries on the device; segment_base[n] counts the segments before sequence n.
struct Layout {
  int64_t tokens = 0;
  int sequences = 0, heads = 1;
  int segment = 64;                 // a multiple of the chunk
  int per_sequence = 1;             // segments of a sequence, when not packed
  int64_t segments = 1;             // segments of all sequences; packed: an upper bound
  const int64_t* bounds = nullptr;  // cu_seqlens
  const int* segment_base = nullptr;
};
struct Place {
  int64_t batch, first;  // first token
  int sequence, size;    // size 0: nothing here
};

__device__ inline Place place_of(const Layout& layout, int64_t segment) {
  if (!layout.bounds) {
    const int sequence = static_cast<int>(segment / layout.per_sequence);
    const int64_t first = segment % layout.per_sequence * layout.segment;
    const int64_t left = layout.tokens - first;
    return {sequence, first, sequence, static_cast<int>(left < layout.segment ? left : layout.segment)};
  }
  if (segment >= layout.segment_base[layout.sequences]) return {0, 0, 0, 0};
  int low = 0, high = layout.sequences;  // the last sequence that starts at or before this segment
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (layout.segment_base[middle] <= segment ? low : high) = middle;
  }
  const int64_t first = layout.bounds[low] + (segment - layout.segment_base[low]) * layout.segment;
  const int64_t left = layout.bounds[is<Mutant::packed_end_ignored> ? layout.sequences : low + 1] - first;
  return {0, first, low, static_cast<int>(left < layout.segment ? left : layout.segment)};
}
__device__ inline int64_t first_segment(const Layout& layout, int sequence) {
  return layout.bounds ? layout.segment_base[sequence] : static_cast<int64_t>(sequence) * layout.per_sequence;
}
__device__ inline int64_t segment_count(const Layout& layout, int sequence) {
  return layout.bounds ? layout.segment_base[sequence + 1] - layout.segment_base[sequence]
                       : layout.per_sequence;
}

// The gate of a token: 1, gamma^power of its head, exp(g) or alpha.
enum class GateKind : int { none, constant, log, linear };
struct Gate {
  GateKind kind = GateKind::none;
  int power = 1;
  float value = 1;  // constant, when the view is absent
  View view;        // [B, T, H]; constant: [H]
  __device__ float alpha(int64_t b, int64_t t, int h) const {
    switch (kind) {
      case GateKind::none:
        return 1;
      case GateKind::constant: {
        const float x = view.data ? load(view.data, h, view.type) : value;
        return power == 1 ? x : power == 2 ? x * x : x * x * x;
      }
      case GateKind::log:
        return expf(view.read(b, t, h, 0));
      default:
        return view.read(b, t, h, 0);
    }
  }
  // What a token's gate is made of, and its log2; below the exponent range of a float the gate is zero, -infinity.
  __device__ float raw(int64_t b, int64_t t, int h) const {
    if (kind == GateKind::none) return 1;
    if (is<Mutant::gate_of_head_zero>) h = 0;
    if (kind == GateKind::constant) return view.data ? load(view.data, h, view.type) : value;
    return view.read(b, t, h, 0);
  }
  __device__ float log2_of(float raw) const {
    const float x = kind == GateKind::log ? raw * 1.4426950408889634f : power * log2f(raw);
    return x < -150.f ? -INFINITY : x;
  }
};

// One Lin: o = (x_scale Lin(x, y_scale y, z) + add_scale add) / (denominators + epsilon).
struct Lin {
  View x, y, z, o;  // rows of x, y: key_dim; of z, o: value_dim; o of any type
  int key_dim = 0, value_dim = 0;
  int tile_keys = 0, tile_values = 0;  // the widths that matrix units work in, by zeros: 64 or 128
  bool of_ones = false;  // value_dim is 1; rows of z, and of o where it has z's type, are eight columns wide
  Gate gate;
  bool exclusive = false;  // read before the token's own gate and term
  float x_scale = 1, y_scale = 1;
  View add, denominators;  // or absent; denominators: one column
  float add_scale = 1, epsilon = 0;
  float* states = nullptr;  // (segment, head, value_dim, key_dim), column by column; of tiles on matrix units
  float* fade = nullptr;    // (segment, head): the product of the gates
  // A piece of the keys on matrix units: sums before it are added, sums for the next are left in place of rows, without the
  // scores inside chunks, which the last piece weighs, rounds and multiplies by Z when those of all keys are added.
  bool take_sums = false, leave_sums = false;
  float4* sums = nullptr;  // (segment, head, chunk, 8, thread)
  __host__ __device__ int state_keys() const { return tile_keys > 0 ? tile_keys : key_dim; }
  __host__ __device__ int state_columns() const { return tile_values > 0 ? tile_values : value_dim; }
};

// A state tensor [N, H, rows, columns] and its companion [N, H, rows], contiguous.
struct Moment {
  void* data = nullptr;
  void* companion = nullptr;
  Type type = Type::f32, companion_type = Type::f32;
  bool transposed = false;  // data is [columns, rows] of what Lin carries
  int rows = 0,
      columns =
          0;  // of the whole matrix, where data begins at the piece that a Lin takes; 0: those of the Lin
};

// Lins of the same gate, sizes, x and y, block beside block: what both read comes from memory once.
struct Lins {
  Lin lin[2];
  int count = 1;
  // Of pieces of keys: scores (segment, head, chunk, 16 x 64 float4 as threads have them), left by lin[0].
  float4* scores = nullptr;
};

// Tokens of a call, at most all of them, before its first position that is a multiple of `size`.
__device__ inline int64_t tokens_to_boundary(int64_t position, int size, int64_t tokens) {
  const int64_t head = (size - position % size) % size;
  return head < tokens ? head : tokens;
}

// What multiplies tiles: nothing, mma.sync (sm_80 on), or Hopper's wgmma, where there is code for it.
enum class MatrixUnits { none, mma, wgmma };

struct Context {
  Layout layout;
  int64_t batch = 1;
  cudaStream_t stream = nullptr;
  MatrixUnits units = MatrixUnits::none;
  int shared_bytes = 0;  // that a block may have
};

// The recurrences that Lin does not cover, token by token: scalar or delta transitions, with or without levels.
struct Recurrent {
  View q, k, v, o, beta, level_scales;         // o may have the extra column
  int key_dim = 0, value_dim = 0, levels = 0;  // levels 0: a plain state
  bool extra = false, delta = false;
  Gate gate;
  float scale = 1;
  Moment initial, final;  // [N, H, (levels,) key_dim, value_dim]
  int initial_levels = 0, final_levels = 0;
  const int64_t* initial_position = nullptr;
  int64_t* final_position = nullptr;
  float* memory = nullptr;  // (sequence, head, levels, key_dim, columns), levels only
  // Of a sequence's tokens all, those before the first whole chunk, or those after the last. The call begins at position
  // `start` (null: 0), which is initial_position for all but the last of these. No o: no rows.
  enum class Part { all, before_chunks, after_chunks } part = Part::all;
  const int64_t* start = nullptr;
};

// The scalar recurrence with levels from position 0, on matrix units, or a piece of it. Segments are groups of 512 tokens.
struct LogLinear {
  View q, k, v, o, level_scales;
  int key_dim = 0, value_dim = 0, levels = 0, final_levels = 0;
  Gate gate;
  float scale = 1;
  Moment final;  // [N, H, final_levels, key_dim, value_dim] of floats
  int64_t* final_position = nullptr;
  float* group_states = nullptr;  // (segment, head, value_dim, key_dim)
  void* slots = nullptr;          // (segment, 8, head, value_dim, key_dim) of the input type
  float *slot_fades = nullptr, *block_fades = nullptr;  // (segment, 8, head)
  // A piece of the keys: sums before it are added, sums for the next are left in place of rows, without the scores inside
  // chunks, which the last piece makes of all keys: its own and those in the columns before.
  bool take_sums = false, leave_sums = false;
  int keys_before = 0;
  float4* sums = nullptr;  // (chunk, head, 8, thread)
};

// The delta rules on matrix units; with levels from position 0 and not packed, but for launch_delta_wide.
struct Delta {
  View q, k, v, o, beta, level_scales;
  View w, u;                // rows between the passes, of the input type
  int dim = 0, levels = 0;  // key and value dimension; levels 0: a plain state
  bool delta_rule = true;   // launch_delta_wide alone does without, with levels
  Gate gate;
  float scale = 1;
  Moment initial, final;
  float *states = nullptr, *transitions = nullptr;  // (segment, head, dim, dim)
  // Levels: left operands (chunk, head, 64, dim) and (chunk, head, 64, 64), blocks by their last chunk
  // (chunk, head, {S, D}, dim, dim), all of the input type, and whole levels of blocks in fp32, in turn.
  void *queries = nullptr, *weights = nullptr, *slots = nullptr;
  float *slot_fades = nullptr, *nodes[2] = {}, *node_fades[2] = {};
  // Wanted where the state is: the blocks of the whole chunks, faded to their end (sequence, head, level, dim, dim).
  float* live = nullptr;
  int live_levels = 0;
  int64_t* live_position = nullptr;
  // launch_delta_wide, whose layout has a chunk for a segment: rows of keys faded to the end of their chunk, tiles of scores
  // (chunk, head, 64, 64), G(t, start) (chunk, head, 64), sums of rows with levels (chunk, head, 64 values, 8, thread).
  View faded_keys;
  void* scores = nullptr;
  float* from_start = nullptr;
  float4* sums = nullptr;
  // With levels, from any position: the call's own, and the state where its chunks begin (sequence, head, level, dim, dim).
  const int64_t* position = nullptr;
  const float* carried = nullptr;
};

// One token of every sequence; key and value dimension alike.
enum class StepKind { first_order, delta, ahla, hla2, hla3 };
struct Step {
  StepKind kind = StepKind::first_order;
  View q, k, v, o, beta;
  int dim = 0;
  Gate gate;
  float scale = 1, ridge = 0;
  Moment initial[3], final[3];
};

// Blocks of a launch; more than one takes becomes 0, which the launch refuses with an error.
inline unsigned grid_of(int64_t blocks) { return blocks <= 0x7fffffff ? static_cast<unsigned>(blocks) : 0; }

// Every launcher returns the error of its launch.
cudaError_t launch_segment_bases(const Layout& layout, int* bases, cudaStream_t stream);
cudaError_t launch_generic_states(const Context& context, const Lin& lin, const Moment& initial);
cudaError_t launch_generic_rows(const Context& context, const Lin& lin);
cudaError_t launch_scan(const Context& context, const Lin& lin, const Moment& initial, const Moment& final,
                        bool begun);
cudaError_t launch_recurrent(const Context& context, const Recurrent& job);
// out = S C - in for every sequence and head: G from F and F from G.
cudaError_t launch_cross(const Context& context, const Moment& s, const Moment& c, const Moment& in,
                         const Moment& out, int key_dim, int value_dim);
// A 1 and seven zeros.
cudaError_t launch_one(const View& row, cudaStream_t stream);
// o = sum / (denominator + epsilon), the denominator being the column after the last.
cudaError_t launch_divide(const Context& context, const View& sum, const View& o, int value_dim,
                          float epsilon);
// Between tensors of different width; what the source does not have becomes zero. Heads as they lie in memory.
cudaError_t launch_copy_rows(const View& from, const View& to, int64_t batch, int64_t tokens, int heads,
                             int from_columns, int to_columns, cudaStream_t stream);
cudaError_t launch_copy_matrices(const Moment& from, const Moment& to, int64_t count, int from_rows,
                                 int from_columns, int to_rows, int to_columns, cudaStream_t stream);
bool step_supports(const Step& job);
cudaError_t launch_step(const Context& context, const Step& job);
bool delta_supports(const Context& context, const Delta& job, Type type);
cudaError_t launch_delta(const Context& context, const Delta& job);
// Shared memory of its largest block.
int delta_levels_bytes(MatrixUnits units, Type type, int dim);
cudaError_t launch_delta_levels(const Context& context, const Delta& job);
bool delta_wide_supports(const Context& context, const Delta& job, Type type);
cudaError_t launch_delta_wide(const Context& context, const Delta& job);
bool log_linear_supports(const Context& context, const LogLinear& job, Type type);
cudaError_t launch_log_linear(const Context& context, const LogLinear& job);
// Of the current device.
MatrixUnits matrix_units();
// Dimensions that are multiples of 8, of keys and of values at most 128 at a time.
bool matrix_units_support(const Context& context, const Lin& lin);
cudaError_t launch_wgmma_states(const Context& context, const Lins& lins);
cudaError_t launch_wgmma_rows(const Context& context, const Lins& lins);
cudaError_t launch_mma_states(const Context& context, const Lins& lins);
cudaError_t launch_mma_rows(const Context& context, const Lins& lins);

}  // namespace attest::cuda
