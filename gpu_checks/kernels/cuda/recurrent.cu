// The recurrences token by token, fp32: S_t = alpha_t (I - beta_t k k^T) S_{t-1} + beta_t k v^T or its scalar kind,
//   with levels: every live block of the Fenwick cover takes the transition, and o reads block b with lambda^(b+1).
// A lane owns a column, a warp 64 rows; sums over the rows pass through shared memory. Slow, any dimension.
#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {
namespace {

constexpr int rows_of_warp = 64;

struct Sums {
  float k, q;  // k^T S and q^T S of this lane's column
};

__device__ inline Sums over_rows(float2* partial, Sums own) {
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
  if (warps == 1) return own;
  __syncthreads();
  partial[warp * 32 + lane] = make_float2(own.k, own.q);
  __syncthreads();
  Sums sum{0, 0};
  for (int w = 0; w < warps; ++w) sum.k += partial[w * 32 + lane].x, sum.q += partial[w * 32 + lane].y;
  return sum;
}

template <bool delta>
__global__ void __launch_bounds__(512) recurrent(Layout layout, Recurrent job, int column_blocks) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, thread = warp * 32 + lane,
            threads = warps * 32;
  const int padded = warps * rows_of_warp, columns = job.value_dim + job.extra;
  float *q = shared, *k = q + padded;
  float2* partial = reinterpret_cast<float2*>(k + padded);
  float* qk = reinterpret_cast<float*>(partial + warps * 32);
  const int64_t slot = blockIdx.x / column_blocks;
  const int sequence = static_cast<int>(slot / layout.heads), h = static_cast<int>(slot % layout.heads);
  const int column = static_cast<int>(blockIdx.x % column_blocks) * 32 + lane,
            first_row = warp * rows_of_warp;
  const bool owner = column < columns, is_extra = column == job.value_dim;
  const int64_t batch = layout.bounds ? 0 : sequence;
  int64_t begin = layout.bounds ? layout.bounds[sequence] : 0;
  int64_t tokens = layout.bounds ? layout.bounds[sequence + 1] - begin : layout.tokens;
  if (job.part != Recurrent::Part::all) {
    constexpr int chunk = 64;
    const int64_t head = tokens_to_boundary(job.start ? job.start[sequence] : 0, chunk, tokens),
                  whole = head + (tokens - head) / chunk * chunk;
    const bool before = job.part == Recurrent::Part::before_chunks;
    tokens = before ? head : tokens - whole;
    if (!before) begin += whole;
  }
  const bool with_levels = job.levels > 0;

  // Element (level, row) of this lane's column of a state.
  auto state_index = [&](int levels, int level, int row) {
    const int64_t matrix = slot * levels + level;
    return is_extra ? matrix * job.key_dim + row : (matrix * job.key_dim + row) * job.value_dim + column;
  };
  auto initial = [&](int level, int row) -> float {
    void* data = is_extra ? job.initial.companion : job.initial.data;
    if (!data || !owner || row >= job.key_dim) return 0;
    return load(data, state_index(with_levels ? job.initial_levels : 1, level, row),
                is_extra ? job.initial.companion_type : job.initial.type);
  };
  auto leave = [&](int level, int row, float value) {
    void* data = is_extra ? job.final.companion : job.final.data;
    if (data && owner && row < job.key_dim)
      store(data, state_index(with_levels ? job.final_levels : 1, level, row),
            is_extra ? job.final.companion_type : job.final.type, value);
  };
  float* const memory = job.memory + slot * job.levels * job.key_dim * columns + column;
  auto cell = [&](int bit, int row) -> float& {
    return memory[(static_cast<int64_t>(bit) * job.key_dim + row) * columns];
  };
  int64_t position = with_levels && job.initial_position ? job.initial_position[sequence] : 0;
  if (is<Mutant::position_not_carried>) position = 0;
  float state[rows_of_warp];
#pragma unroll
  for (int i = 0; i < rows_of_warp; ++i) state[i] = with_levels ? 0.f : initial(0, first_row + i);
  if (with_levels && owner)
    for (int bit = 0; bit + 1 < job.initial_levels && bit < job.levels; ++bit)
      if (position >> bit & 1)
        for (int i = 0; i < rows_of_warp && first_row + i < job.key_dim; ++i)
          cell(bit, first_row + i) = initial(bit + 1, first_row + i);

  for (int64_t t = 0; t < tokens; ++t, ++position) {
    const int64_t token = begin + t;
    __syncthreads();
    for (int i = thread; i < padded; i += threads) {
      q[i] = i < job.key_dim ? job.scale * job.q.read(batch, token, h, i) : 0.f;
      k[i] = i < job.key_dim ? job.k.read(batch, token, h, i) : 0.f;
    }
    __syncthreads();
    if (warp == 0) {
      float sum = 0;
      for (int i = lane; i < padded; i += 32) sum = fmaf(q[i], k[i], sum);
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane == 0) *qk = sum;
    }
    __syncthreads();
    const float alpha = job.gate.alpha(batch, token, h), score = *qk;
    const float beta = delta ? job.beta.read(batch, token, h, 0) : 1.f;
    float v = 0;
    if (owner) v = is_extra ? 1.f : job.v.read(batch, token, h, column);
    // Transition of the rows in `state`; returns q^T of the new state, without the injected term.
    auto step = [&]() {
      Sums own{0, 0};
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) {
        if (delta) own.k = fmaf(k[first_row + i], state[i], own.k);
        own.q = fmaf(q[first_row + i], state[i], own.q);
      }
      const Sums sum = over_rows(partial, own);
      const float removed = delta ? beta * alpha * sum.k : 0.f;
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) state[i] = fmaf(-removed, k[first_row + i], alpha * state[i]);
      return fmaf(-removed, score, alpha * sum.q);
    };
    float o = 0;
    if (!with_levels) {
      o = fmaf(beta * score, v, step());
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) state[i] = fmaf(beta * k[first_row + i], v, state[i]);
    } else {
      o = job.level_scales.read(batch, token, h, 0) * (beta * score * v);
      for (int bit = 0; bit < job.levels; ++bit) {
        if (!(position >> bit & 1)) continue;
#pragma unroll
        for (int i = 0; i < rows_of_warp; ++i)
          state[i] = owner && first_row + i < job.key_dim ? cell(bit, first_row + i) : 0.f;
        o = fmaf(job.level_scales.read(batch, token, h, bit + 1), step(), o);
        if (owner)
#pragma unroll
          for (int i = 0; i < rows_of_warp; ++i)
            if (first_row + i < job.key_dim) cell(bit, first_row + i) = state[i];
      }
      // The token becomes a block of size 1 and takes in its siblings.
#pragma unroll
      for (int i = 0; i < rows_of_warp; ++i) state[i] = beta * k[first_row + i] * v;
      int bit = 0;
      for (; position >> bit & 1; ++bit)
        if (owner)
#pragma unroll
          for (int i = 0; i < rows_of_warp; ++i)
            if (first_row + i < job.key_dim) state[i] += cell(bit, first_row + i);
      if (owner && bit < job.levels)
#pragma unroll
        for (int i = 0; i < rows_of_warp; ++i)
          if (first_row + i < job.key_dim) cell(bit, first_row + i) = state[i];
    }
    if (owner && warp == 0 && job.o.data) job.o.write(batch, token, h, column, o);
  }
  if (!with_levels) {
#pragma unroll
    for (int i = 0; i < rows_of_warp; ++i) leave(0, first_row + i, state[i]);
    return;
  }
  for (int level = 0; level < job.final_levels; ++level)
    for (int i = 0; i < rows_of_warp && first_row + i < job.key_dim; ++i) {
      const bool live = level > 0 && level <= job.levels && (position >> (level - 1) & 1);
      leave(level, first_row + i, live && owner ? cell(level - 1, first_row + i) : 0.f);
    }
  if (job.final_position && thread == 0 && blockIdx.x % column_blocks == 0 && h == 0)
    job.final_position[sequence] = position;
}

__global__ void cross(int heads, Moment s, Moment c, Moment in, Moment out, int key_dim, int value_dim,
                      bool companion, int64_t total) {
  const int columns = companion ? 1 : value_dim;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t matrix = i / (static_cast<int64_t>(key_dim) * columns), row = i / columns % key_dim,
                  column = i % columns;
    auto at = [&](const Moment& m, int64_t j) -> double {
      const void* data = companion ? m.companion : m.data;
      return data ? load(data, (matrix * key_dim + j) * columns + column,
                         companion ? m.companion_type : m.type)
                  : 0.f;
    };
    double sum = 0;
    if (s.data && !is<Mutant::cross_dropped>)
      for (int j = 0; j < key_dim; ++j)
        sum = fma(double(load(s.data, (matrix * key_dim + row) * key_dim + j, s.type)), at(c, j), sum);
    store(companion ? out.companion : out.data, i, companion ? out.companion_type : out.type,
          static_cast<float>(sum - at(in, row)));
  }
}

__global__ void divide(Layout layout, int64_t batch, View sum, View o, int value_dim, float epsilon) {
  const int64_t rows = batch * layout.tokens * layout.heads;
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const int h = static_cast<int>(i % layout.heads);
    const int64_t t = i / layout.heads % layout.tokens, b = i / layout.heads / layout.tokens;
    const float denominator = sum.read(b, t, h, value_dim) + epsilon;
    for (int c = threadIdx.x; c < value_dim; c += blockDim.x)
      o.write(b, t, h, c, sum.read(b, t, h, c) / denominator);
  }
}

}  // namespace

cudaError_t launch_recurrent(const Context& context, const Recurrent& job) {
  const int warps = (job.key_dim + rows_of_warp - 1) / rows_of_warp;
  const int column_blocks = (job.value_dim + job.extra + 31) / 32;
  const int64_t blocks =
      static_cast<int64_t>(context.layout.sequences) * context.layout.heads * column_blocks;
  if (blocks == 0) return cudaSuccess;
  const size_t bytes = sizeof(float) * (2 * warps * rows_of_warp + 64 * warps + 1);
  const auto kernel = job.delta ? recurrent<true> : recurrent<false>;
  kernel<<<grid_of(blocks), dim3(32, warps), bytes, context.stream>>>(context.layout, job, column_blocks);
  return cudaGetLastError();
}

cudaError_t launch_cross(const Context& context, const Moment& s, const Moment& c, const Moment& in,
                         const Moment& out, int key_dim, int value_dim) {
  for (const bool companion : {false, true}) {
    if (!(companion ? out.companion : out.data)) continue;
    const int64_t total = static_cast<int64_t>(context.layout.sequences) * context.layout.heads * key_dim *
                          (companion ? 1 : value_dim);
    if (total == 0) continue;
    const int64_t blocks = (total + 127) / 128;
    cross<<<grid_of(blocks < 65536 ? blocks : 65536), 128, 0, context.stream>>>(
        context.layout.heads, s, c, in, out, key_dim, value_dim, companion, total);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_divide(const Context& context, const View& sum, const View& o, int value_dim,
                          float epsilon) {
  const int64_t rows = context.batch * context.layout.tokens * context.layout.heads;
  if (rows == 0) return cudaSuccess;
  divide<<<grid_of(rows < 1048576 ? rows : 1048576), 128, 0, context.stream>>>(context.layout, context.batch,
                                                                               sum, o, value_dim, epsilon);
  return cudaGetLastError();
}

}  // namespace attest::cuda
