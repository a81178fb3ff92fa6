// The decode step: one token, states in, states out, each read once and written once; a block for a sequence and head.
// Old states on the right, s = q.k:
//   first order  o = a q^T S + s v                        S <- a S + k v^T
//   delta        r = b (v - a k^T S), o = a q^T S + s r   S <- a S + k r^T
//   ahla         r = g q^T P + s v, o = g q^T E + s r     P <- g P + k v^T, E <- g E + k r^T
//   hla2         x = q^T S, o = g^2 (x^T C - q^T G) + (g x.q + s^2) v + ridge (g q^T C + q.q v)
//                S <- g S + k k^T, C <- g C + q v^T, G <- g^2 G + g k (k^T C)^T
//   hla3         a = g S q + s k, r = g q^T P + s v, o = g^3 q^T F + (q.a) r;  F <- g^3 F + a r^T
// Floor: bytes of the states, twice, at the rate of a copy.
#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {
namespace {

// Passes over a (dim, dim) state: a thread takes 4 columns of every rows_at_once-th row, a few loads in flight.
template <int dim>
struct Pass {
  static constexpr int per_row = dim / 4, rows_at_once = 256 / per_row, count = dim / rows_at_once,
                       flight = count < 8 ? count : 8;
  const Moment &from, &to;
  int64_t slot;
  float* partial;  // rows_at_once * dim floats

  __device__ static int row(int i) { return i * rows_at_once + threadIdx.x / per_row; }
  __device__ static int column() { return threadIdx.x % per_row * 4; }
  __device__ float4 read(int i) const {
    if (!from.data) return make_float4(0, 0, 0, 0);
    return __ldcs(reinterpret_cast<const float4*>(static_cast<const float*>(from.data) +
                                                  (slot * dim + row(i)) * dim + column()));
  }
  __device__ void write(int i, float4 x, float fade, float left, float4 right) const {
    if (!to.data) return;
    const float4 y = make_float4(fmaf(left, right.x, fade * x.x), fmaf(left, right.y, fade * x.y),
                                 fmaf(left, right.z, fade * x.z), fmaf(left, right.w, fade * x.w));
    __stcs(reinterpret_cast<float4*>(static_cast<float*>(to.data) + (slot * dim + row(i)) * dim + column()),
           y);
  }
  __device__ static void add(float4& sum, float by, const float4& x) {
    sum.x = fmaf(by, x.x, sum.x), sum.y = fmaf(by, x.y, sum.y), sum.z = fmaf(by, x.z, sum.z),
    sum.w = fmaf(by, x.w, sum.w);
  }
  // Sums over the rows, by all threads.
  __device__ void collect(float4 sum, float* out) const {
    __syncthreads();
    *reinterpret_cast<float4*>(partial + threadIdx.x / per_row * dim + column()) = sum;
    __syncthreads();
    for (int c = threadIdx.x; c < dim; c += 256) {
      float total = 0;
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) total += partial[r * dim + c];
      out[c] = total;
    }
    __syncthreads();
  }
  // outs[i] = lefts[i]^T M for `products` of them, rows_out = M rights (or none), M <- fade M + left right^T.
  template <int products>
  __device__ void run(const float* const (&lefts)[products], float* const (&outs)[products], float fade,
                      const float* left, const float* right, const float* by = nullptr,
                      float* rows_out = nullptr) const {
    float4 sums[products] = {};
    const float4 r = *reinterpret_cast<const float4*>(right + column());
#pragma unroll
    for (int begin = 0; begin < count; begin += flight) {
      float4 x[flight];
#pragma unroll
      for (int i = 0; i < flight; ++i) x[i] = read(begin + i);
#pragma unroll
      for (int i = 0; i < flight; ++i) {
        const int at = row(begin + i);
#pragma unroll
        for (int p = 0; p < products; ++p) add(sums[p], lefts[p][at], x[i]);
        if (rows_out) {
          const float4 b = *reinterpret_cast<const float4*>(by + column());
          float sum = fmaf(x[i].x, b.x, fmaf(x[i].y, b.y, fmaf(x[i].z, b.z, x[i].w * b.w)));
#pragma unroll
          for (int step = per_row / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
          if (threadIdx.x % per_row == 0) rows_out[at] = sum;
        }
        write(begin + i, x[i], fade, left[at], r);
      }
    }
#pragma unroll
    for (int p = 0; p < products; ++p) collect(sums[p], outs[p]);
  }
};

__device__ inline float dot(const float* a, const float* b, int dim) {  // every warp by itself
  float sum = 0;
  for (int i = threadIdx.x % 32; i < dim; i += 32) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <int dim, StepKind kind>
__global__ void __launch_bounds__(256) decode(int heads, const __grid_constant__ Step job) {
  using P = Pass<dim>;
  __shared__ __align__(16) float q[dim], k[dim], v[dim], x[dim], y[dim], z[dim], r[dim];
  __shared__ __align__(16) float partial[P::rows_at_once * dim];
  const int64_t slot = blockIdx.x, b = slot / heads;
  const int h = static_cast<int>(slot % heads), c = threadIdx.x;
  const P first{job.initial[0], job.final[0], slot, partial},
      second{job.initial[1], job.final[1], slot, partial}, third{job.initial[2], job.final[2], slot, partial};
  for (int i = threadIdx.x; i < dim; i += 256) {
    q[i] = job.scale * job.q.read(b, 0, h, i);
    k[i] = job.k.read(b, 0, h, i);
    v[i] = job.v.read(b, 0, h, i);
  }
  __syncthreads();
  const float s = dot(q, k, dim), g = job.gate.alpha(b, 0, h);
  if constexpr (kind == StepKind::first_order) {
    first.template run<1>({q}, {x}, g, k, v);
    if (c < dim) job.o.write(b, 0, h, c, fmaf(g, x[c], s * v[c]));
  }
  if constexpr (kind == StepKind::delta) {  // the state waits in registers for k^T S
    float4 held[P::count], sums[2] = {};
#pragma unroll
    for (int i = 0; i < P::count; ++i) held[i] = first.read(i);
#pragma unroll
    for (int i = 0; i < P::count; ++i)
      P::add(sums[0], q[P::row(i)], held[i]), P::add(sums[1], k[P::row(i)], held[i]);
    first.collect(sums[0], x);
    first.collect(sums[1], y);
    if (c < dim) r[c] = job.beta.read(b, 0, h, 0) * fmaf(-g, y[c], v[c]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < P::count; ++i)
      first.write(i, held[i], g, k[P::row(i)], *reinterpret_cast<const float4*>(r + P::column()));
    if (c < dim) job.o.write(b, 0, h, c, fmaf(g, x[c], s * r[c]));
  }
  if constexpr (kind == StepKind::ahla) {
    first.template run<1>({q}, {x}, g, k, v);
    if (c < dim) r[c] = fmaf(g, x[c], s * v[c]);
    __syncthreads();
    second.template run<1>({q}, {y}, g, k, r);
    if (c < dim) job.o.write(b, 0, h, c, fmaf(g, y[c], s * r[c]));
  }
  if constexpr (kind == StepKind::hla2) {
    first.template run<1>({q}, {x}, g, k, k);               // x = q^T S
    second.template run<3>({x, k, q}, {y, r, z}, g, q, v);  // x^T C, k^T C, q^T C
    const float own = fmaf(g, dot(x, q, dim), s * s), square = dot(q, q, dim);
    float rest = 0;
    if (c < dim) {
      rest = fmaf(g * g, y[c], own * v[c]) + job.ridge * fmaf(g, z[c], square * v[c]);
      r[c] *= g;
    }
    __syncthreads();
    third.template run<1>({q}, {z}, is<Mutant::step_decay_low> ? g : g * g, k, r);
    if (c < dim) job.o.write(b, 0, h, c, fmaf(-g * g, z[c], rest));
  }
  if constexpr (kind == StepKind::hla3) {
    first.template run<1>({q}, {z}, g, k, k, q, x);  // x = S q
    second.template run<1>({q}, {y}, g, k, v);
    if (c < dim) {
      x[c] = fmaf(g, x[c], s * k[c]);
      r[c] = fmaf(g, y[c], s * v[c]);
    }
    __syncthreads();
    const float own = dot(q, x, dim);
    third.template run<1>({q}, {z}, g * g * g, x, r);
    if (c < dim) job.o.write(b, 0, h, c, fmaf(g * g * g, z[c], own * r[c]));
  }
}

template <int dim>
void launch_kind(unsigned slots, const Context& context, const Step& job) {
  const int heads = context.layout.heads;
  switch (job.kind) {
    case StepKind::first_order:
      decode<dim, StepKind::first_order><<<slots, 256, 0, context.stream>>>(heads, job);
      break;
    case StepKind::delta:
      decode<dim, StepKind::delta><<<slots, 256, 0, context.stream>>>(heads, job);
      break;
    case StepKind::ahla:
      decode<dim, StepKind::ahla><<<slots, 256, 0, context.stream>>>(heads, job);
      break;
    case StepKind::hla2:
      decode<dim, StepKind::hla2><<<slots, 256, 0, context.stream>>>(heads, job);
      break;
    case StepKind::hla3:
      decode<dim, StepKind::hla3><<<slots, 256, 0, context.stream>>>(heads, job);
      break;
  }
}

}  // namespace

bool step_supports(const Step& job) {
  if (job.dim != 64 && job.dim != 128) return false;
  for (int i = 0; i < 3; ++i)
    for (const Moment* m : {&job.initial[i], &job.final[i]})
      if (m->companion ||
          (m->data && (m->type != Type::f32 || reinterpret_cast<uintptr_t>(m->data) % 16 != 0)))
        return false;
  return true;
}

cudaError_t launch_step(const Context& context, const Step& job) {
  const int64_t slots = static_cast<int64_t>(context.layout.sequences) * context.layout.heads;
  if (slots == 0) return cudaSuccess;
  if (job.dim == 64)
    launch_kind<64>(grid_of(slots), context, job);
  else
    launch_kind<128>(grid_of(slots), context, job);
  return cudaGetLastError();
}

}  // namespace attest::cuda
