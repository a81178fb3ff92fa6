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

template <int dim>
struct Tile {  // rows warp, warp + 8, ...; columns 4 lane (+ 128 for a second quarter: dim <= 128)
  static constexpr int per_row = dim / 4, rows_at_once = 256 / per_row, count = dim / rows_at_once;
  float4 x[count];
  __device__ static int row(int i) { return i * rows_at_once + threadIdx.x / per_row; }
  __device__ static int column() { return threadIdx.x % per_row * 4; }
  __device__ void read(const Moment& m, int64_t slot) {
#pragma unroll
    for (int i = 0; i < count; ++i)
      x[i] = m.data ? __ldcs(reinterpret_cast<const float4*>(static_cast<const float*>(m.data) +
                                                             (slot * dim + row(i)) * dim + column()))
                    : make_float4(0, 0, 0, 0);
  }
  // M <- fade M + left right^T, stored.
  __device__ void update(const Moment& m, int64_t slot, float fade, const float* left, const float* right) {
    if (!m.data) return;
    const float4 r = *reinterpret_cast<const float4*>(right + column());
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float l = left[row(i)];
      const float4 y = make_float4(fmaf(l, r.x, fade * x[i].x), fmaf(l, r.y, fade * x[i].y),
                                   fmaf(l, r.z, fade * x[i].z), fmaf(l, r.w, fade * x[i].w));
      __stcs(reinterpret_cast<float4*>(static_cast<float*>(m.data) + (slot * dim + row(i)) * dim + column()),
             y);
    }
  }
  // out = left^T M, by all threads; `partial` holds rows_at_once * dim floats.
  __device__ void from_left(const float* left, float* out, float* partial) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float l = left[row(i)];
      sum.x = fmaf(l, x[i].x, sum.x), sum.y = fmaf(l, x[i].y, sum.y), sum.z = fmaf(l, x[i].z, sum.z),
      sum.w = fmaf(l, x[i].w, sum.w);
    }
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
  // out = M right.
  __device__ void from_right(const float* right, float* out) const {
    const float4 r = *reinterpret_cast<const float4*>(right + column());
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float sum = fmaf(x[i].x, r.x, fmaf(x[i].y, r.y, fmaf(x[i].z, r.z, x[i].w * r.w)));
#pragma unroll
      for (int step = per_row / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (threadIdx.x % per_row == 0) out[row(i)] = sum;
    }
    __syncthreads();
  }
};

__device__ inline float dot(const float* a, const float* b, int dim) {  // every warp by itself
  float sum = 0;
  for (int i = threadIdx.x % 32; i < dim; i += 32) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <int dim>
__global__ void __launch_bounds__(256) decode(int heads, Step job) {
  using T = Tile<dim>;
  __shared__ __align__(16) float q[dim], k[dim], v[dim], x[dim], y[dim], z[dim], r[dim];
  __shared__ __align__(16) float partial[T::rows_at_once * dim];
  const int64_t slot = blockIdx.x, b = slot / heads;
  const int h = static_cast<int>(slot % heads);
  T first, second, third;
  first.read(job.initial[0], slot);
  if (job.kind != StepKind::first_order && job.kind != StepKind::delta) second.read(job.initial[1], slot);
  if (job.kind == StepKind::hla2 || job.kind == StepKind::hla3) third.read(job.initial[2], slot);
  for (int i = threadIdx.x; i < dim; i += 256) {
    q[i] = job.scale * job.q.read(b, 0, h, i);
    k[i] = job.k.read(b, 0, h, i);
    v[i] = job.v.read(b, 0, h, i);
  }
  __syncthreads();
  const float s = dot(q, k, dim), g = job.gate.alpha(b, 0, h);
  const int c = threadIdx.x;
  switch (job.kind) {
    case StepKind::first_order:
      first.from_left(q, x, partial);
      first.update(job.final[0], slot, g, k, v);
      if (c < dim) job.o.write(b, 0, h, c, fmaf(g, x[c], s * v[c]));
      break;
    case StepKind::delta: {
      const float beta = job.beta.read(b, 0, h, 0);
      first.from_left(q, x, partial);
      first.from_left(k, y, partial);
      if (c < dim) r[c] = beta * fmaf(-g, y[c], v[c]);
      __syncthreads();
      first.update(job.final[0], slot, g, k, r);
      if (c < dim) job.o.write(b, 0, h, c, fmaf(g, x[c], s * r[c]));
      break;
    }
    case StepKind::ahla:
      first.from_left(q, x, partial);
      second.from_left(q, y, partial);
      if (c < dim) r[c] = fmaf(g, x[c], s * v[c]);
      __syncthreads();
      first.update(job.final[0], slot, g, k, v);
      second.update(job.final[1], slot, g, k, r);
      if (c < dim) job.o.write(b, 0, h, c, fmaf(g, y[c], s * r[c]));
      break;
    case StepKind::hla2: {
      first.from_left(q, x, partial);   // q^T S
      second.from_left(x, y, partial);  // q^T S C
      second.from_left(k, r, partial);  // k^T C
      third.from_left(q, z, partial);   // q^T G
      const float own = fmaf(g, dot(x, q, dim), s * s);
      if (c < dim) {
        y[c] = fmaf(g * g, y[c] - z[c], own * v[c]);
        r[c] *= g;
      }
      if (job.ridge != 0) {
        second.from_left(q, z, partial);
        const float square = dot(q, q, dim);
        if (c < dim) y[c] = fmaf(job.ridge, fmaf(g, z[c], square * v[c]), y[c]);
      }
      __syncthreads();
      first.update(job.final[0], slot, g, k, k);
      second.update(job.final[1], slot, g, q, v);
      third.update(job.final[2], slot, g * g, k, r);
      if (c < dim) job.o.write(b, 0, h, c, y[c]);
      break;
    }
    case StepKind::hla3: {
      first.from_right(q, x);
      second.from_left(q, y, partial);
      third.from_left(q, z, partial);
      if (c < dim) {
        x[c] = fmaf(g, x[c], s * k[c]);
        r[c] = fmaf(g, y[c], s * v[c]);
      }
      __syncthreads();
      const float own = dot(q, x, dim);
      first.update(job.final[0], slot, g, k, k);
      second.update(job.final[1], slot, g, k, v);
      third.update(job.final[2], slot, g * g * g, x, r);
      if (c < dim) job.o.write(b, 0, h, c, fmaf(g * g * g, z[c], own * r[c]));
      break;
    }
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
    decode<64><<<static_cast<unsigned>(slots), 256, 0, context.stream>>>(context.layout.heads, job);
  else
    decode<128><<<static_cast<unsigned>(slots), 256, 0, context.stream>>>(context.layout.heads, job);
  return cudaGetLastError();
}

}  // namespace attest::cuda
