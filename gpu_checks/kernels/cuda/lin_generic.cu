// Lin for any key and value dimension and any type, fp32 throughout: a lane owns a column, a warp 64 rows of the state.
// Also the scan over segments, and the table of segments of packed sequences.
#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {
namespace {

constexpr int rows_of_warp = 64;

// Where row `row` and column `column` of a moment lie, for sequence and head `slot`.
__device__ inline int64_t index_in(const Moment& m, const Lin& lin, int64_t slot, int row, int column) {
  const int rows = m.rows > 0 ? m.rows : lin.key_dim, columns = m.columns > 0 ? m.columns : lin.value_dim;
  const int width = is<Mutant::extents_swapped> ? lin.key_dim : columns;
  const int64_t in_matrix =
      m.transposed ? static_cast<int64_t>(column) * rows + row : static_cast<int64_t>(row) * width + column;
  return slot * rows * columns + in_matrix;
}
// Not inlined: 64 copies of it, in one kernel, took the compiler 48 s, of its 50.
__device__ __noinline__ float read_moment(const Moment& m, const Lin& lin, int64_t slot, int row,
                                          int column) {
  Moment read = m;
  if (is<Mutant::state_transposed> && lin.key_dim == lin.value_dim) read.transposed = !m.transposed;
  return m.data ? load(m.data, index_in(read, lin, slot, row, column), m.type) : 0.f;
}

template <bool with_output>
__global__ void __launch_bounds__(512)
    generic_lin(Layout layout, Lin lin, Moment initial, int batch_tokens, int column_blocks) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, thread = warp * 32 + lane,
            threads = warps * 32;
  const int columns = lin.value_dim, padded = warps * rows_of_warp;
  const int64_t job = (is<Mutant::index_block_16_bits> ? blockIdx.x & 0xffff : blockIdx.x) / column_blocks,
                segment = job / layout.heads;
  const int h = static_cast<int>(job % layout.heads),
            column = static_cast<int>(blockIdx.x % column_blocks) * 32 + lane;
  Place place = place_of(layout, segment);
  if (is<Mutant::segment_overlaps> && !with_output &&
      segment + 1 < first_segment(layout, place.sequence) + segment_count(layout, place.sequence))
    ++place.size;
  float* xs = shared;                      // (batch_tokens, padded)
  float* ys = xs + batch_tokens * padded;  // (batch_tokens, padded)
  float* zs = ys + batch_tokens * padded;  // (batch_tokens, 32)
  float* alphas = zs + batch_tokens * 32;  // (batch_tokens)
  float* partial = alphas + batch_tokens;  // (batch_tokens, warps, 32)
  float* state_memory = lin.states + ((segment * layout.heads + h) * columns + column) * lin.key_dim;

  float state[rows_of_warp];
#pragma unroll
  for (int i = 0; i < rows_of_warp; ++i) {
    const int row = warp * rows_of_warp + i;
    const bool inside = place.size > 0 && column < columns && row < lin.key_dim;  // nothing made other states
    if (with_output)
      state[i] = inside ? state_memory[row] : 0.f;
    else  // the first segment goes on from the initial state
      state[i] = inside && segment == first_segment(layout, place.sequence)
                     ? read_moment(initial, lin, static_cast<int64_t>(place.sequence) * layout.heads + h, row,
                                   column)
                     : 0.f;
  }
  float fade = 1;
  for (int begin = 0; begin < place.size; begin += batch_tokens) {
    const int size = min(batch_tokens, place.size - begin);
    __syncthreads();
    for (int i = thread; i < size * padded; i += threads) {
      const int t = i / padded, row = i % padded;
      const int64_t token = place.first + begin + t;
      const bool inside = row < lin.key_dim;
      if (with_output) xs[i] = inside ? lin.x_scale * lin.x.read(place.batch, token, h, row) : 0.f;
      ys[i] = inside ? lin.y_scale * lin.y.read(place.batch, token, h, row) : 0.f;
    }
    for (int i = thread; i < size * 32; i += threads) {
      const int64_t token = place.first + begin + i / 32;
      const int c = column - lane + i % 32;
      zs[i] = c < columns ? lin.z.read(place.batch, token, h, c) : 0.f;
    }
    for (int i = thread; i < size; i += threads)
      alphas[i] = lin.gate.alpha(place.batch, place.first + begin + i, h);
    __syncthreads();
    for (int t = 0; t < size; ++t) {
      const float z = zs[t * 32 + lane], alpha = alphas[t];
      const float4* x = reinterpret_cast<const float4*>(xs + t * padded + warp * rows_of_warp);
      const float4* y = reinterpret_cast<const float4*>(ys + t * padded + warp * rows_of_warp);
      float sum = 0;
      fade *= alpha;
#pragma unroll
      for (int i = 0; i < rows_of_warp / 4; ++i) {
        const float4 b = y[i];
        float4 a{};
        if (with_output) a = x[i];
        const float in[4] = {b.x, b.y, b.z, b.w}, out[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& s = state[4 * i + j];
          if (with_output && lin.exclusive) sum = fmaf(out[j], s, sum);
          s = fmaf(in[j], z, alpha * s);
          if (with_output && !lin.exclusive) sum = fmaf(out[j], s, sum);
        }
      }
      if (with_output) partial[(t * warps + warp) * 32 + lane] = sum;
    }
    if (!with_output) continue;
    __syncthreads();
    for (int i = thread; i < size * 32; i += threads) {
      const int c = column - lane + i % 32;
      const int64_t token = place.first + begin + i / 32;
      if (c >= columns) continue;
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += partial[(i / 32 * warps + w) * 32 + i % 32];
      if (is<Mutant::warp_counted_twice>)
        for (int w = 1; w < warps; ++w) sum += partial[i / 32 * warps * 32 + i % 32];
      if (lin.add.data) sum += lin.add_scale * lin.add.read(place.batch, token, h, c);
      if (lin.denominators.data) sum /= lin.denominators.read(place.batch, token, h, 0) + lin.epsilon;
      lin.o.write(place.batch, token, h, c, sum);
    }
  }
  if (with_output) return;
  if (column < columns && place.size > 0) {
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) {
      const int row = warp * rows_of_warp + i;
      if (row < lin.key_dim) state_memory[row] = state[i];
    }
  }
  if (place.size > 0 && thread == 0 && blockIdx.x % column_blocks == 0)
    lin.fade[segment * layout.heads + h] = fade;
}

// Before: states of segments from zero, or the first from the initial state (`begun`). After: at the start of each segment.
__global__ void scan_segments(Layout layout, Lin lin, Moment initial, Moment final, bool begun, int blocks) {
  const int keys = lin.state_keys();
  const int64_t size = static_cast<int64_t>(lin.state_columns()) * keys;
  const int64_t job = blockIdx.x / blocks,
                element = static_cast<int64_t>(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
  if (element >= size) return;
  const int sequence = static_cast<int>(job / layout.heads), h = static_cast<int>(job % layout.heads);
  const int column = static_cast<int>(element / keys), row = static_cast<int>(element % keys);
  const bool inside = row < lin.key_dim && column < lin.value_dim;  // the rest of a tile is zero
  const int64_t slot = static_cast<int64_t>(sequence) * layout.heads + h;
  float running =
      inside ? read_moment(initial, lin, is<Mutant::state_of_sequence_zero> ? h : slot, row, column) : 0.f;
  const int64_t first = first_segment(layout, sequence), count = segment_count(layout, sequence);
  float* at = lin.states + (first * layout.heads + h) * size + element;
  const int64_t stride = static_cast<int64_t>(layout.heads) * size;
  const bool more = final.data != nullptr;
  constexpr int batch = 8;  // loads in flight before the first is used
  for (int64_t base = 0; base < count; base += batch) {
    float own[batch], fade[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const bool needed = base + i < count && (more || base + i + 1 < count);
      own[i] = needed ? at[i * stride] : 0.f;
      fade[i] = needed ? lin.fade[(first + base + i) * layout.heads + h] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (base + i >= count) break;
      if (!is<Mutant::prefix_inclusive>) at[i * stride] = running;
      running = begun && base + i == 0 ? own[i] : fmaf(fade[i], running, own[i]);
    }
    at += batch * stride;
  }
  if (is<Mutant::packed_empty_unwritten> && count == 0) return;
  if (final.data && inside) store(final.data, index_in(final, lin, slot, row, column), final.type, running);
}

__global__ void count_segments(Layout layout, int* bases) {
  __shared__ int sums[1024];
  int base = 0;
  for (int begin = 0; begin <= layout.sequences; begin += blockDim.x) {
    const int n = begin + threadIdx.x;
    int own = 0;
    if (n < layout.sequences)
      own = static_cast<int>((layout.bounds[n + 1] - layout.bounds[n] + layout.segment - 1) / layout.segment);
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
      const int other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += other;
      __syncthreads();
    }
    if (n <= layout.sequences) bases[n] = base + sums[threadIdx.x] - own;
    base += sums[blockDim.x - 1];
    __syncthreads();
  }
}

template <bool with_output>
cudaError_t launch_generic(const Context& context, const Lin& lin, const Moment& initial) {
  const int warps = (lin.key_dim + rows_of_warp - 1) / rows_of_warp,
            batch_tokens = lin.key_dim <= 256 ? 16 : 4;
  const int column_blocks = (lin.value_dim + 31) / 32;
  const int64_t blocks = context.layout.segments * context.layout.heads * column_blocks;
  if (blocks == 0) return cudaSuccess;
  const size_t bytes = sizeof(float) * batch_tokens * (2 * warps * rows_of_warp + 32 + 1 + 32 * warps);
  generic_lin<with_output><<<grid_of(blocks), dim3(32, warps), bytes, context.stream>>>(
      context.layout, lin, initial, batch_tokens, column_blocks);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_generic_states(const Context& context, const Lin& lin, const Moment& initial) {
  return launch_generic<false>(context, lin, initial);
}
cudaError_t launch_generic_rows(const Context& context, const Lin& lin) {
  return launch_generic<true>(context, lin, Moment{});
}

cudaError_t launch_scan(const Context& context, const Lin& lin, const Moment& initial, const Moment& final,
                        bool begun) {
  const int64_t size = static_cast<int64_t>(lin.state_columns()) * lin.state_keys();
  const int threads = 128, blocks = static_cast<int>((size + threads - 1) / threads);
  const int64_t jobs = static_cast<int64_t>(context.layout.sequences) * context.layout.heads;
  if (jobs == 0) return cudaSuccess;
  scan_segments<<<grid_of(jobs * blocks), threads, 0, context.stream>>>(context.layout, lin, initial, final,
                                                                        begun, blocks);
  return cudaGetLastError();
}

cudaError_t launch_segment_bases(const Layout& layout, int* bases, cudaStream_t stream) {
  count_segments<<<1, 1024, 0, stream>>>(layout, bases);
  return cudaGetLastError();
}

}  // namespace attest::cuda
