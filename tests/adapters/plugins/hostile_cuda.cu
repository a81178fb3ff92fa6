// Kernels on the GPU that do what no kernel may, beside two that are right. Linear attention, fp32, stream.
#include <cuda_runtime.h>

#include <cstring>

#include "gpu_checks/adapters/attest_kernel.h"

namespace {

enum Mischief {
  none,
  drops_last_token,
  writes_after_end,
  writes_to_input,
  far_write,
  null_pointer,
  never_ends,
  traps
};

__global__ void linear(const float* q, const float* k, float* v, float* o, int T, int H, int d,
                       Mischief mischief) {
  const int b = blockIdx.x / H, h = blockIdx.x % H, c = threadIdx.x, dv = blockDim.x;
  float S[64] = {};
  for (int t = 0; t < T; ++t) {
    const int row = (b * T + t) * H + h;
    float sum = 0;
    for (int i = 0; i < d; ++i) {
      if (mischief != drops_last_token || t < T - 1) S[i] += k[row * d + i] * v[row * dv + c];
      sum += q[row * d + i] * S[i];
    }
    o[row * dv + c] = sum;
  }
  if (blockIdx.x > 0 || c > 0) return;
  if (mischief == writes_after_end) o[gridDim.x * T * dv + 2] = 0;
  if (mischief == writes_to_input) v[0] = 0;
  if (mischief == far_write) o[int64_t{1} << 40] = 0;
  if (mischief == null_pointer) *static_cast<volatile float*>(nullptr) = 0;
  if (mischief == traps) __trap();
  while (mischief == never_ends && atomicAdd(o, 0.0f) < 1e30f) __nanosleep(1000);
}

float* data_of(const attest_tensor* list, int32_t count, const char* name, int64_t* shape) {
  for (int32_t i = 0; i < count; ++i)
    if (!strcmp(list[i].name, name)) {
      memcpy(shape, list[i].tensor->shape, 4 * sizeof(int64_t));
      return static_cast<float*>(list[i].tensor->data);
    }
  return nullptr;
}

attest_status launch(const attest_call* call, Mischief mischief, int more_threads) {
  int64_t ks[4], vs[4];
  const float* q = data_of(call->inputs, call->n_inputs, "q", ks);
  const float* k = data_of(call->inputs, call->n_inputs, "k", ks);
  float* v = data_of(call->inputs, call->n_inputs, "v", vs);
  float* o = data_of(call->outputs, call->n_outputs, "o", vs);
  linear<<<unsigned(vs[0] * vs[2]), unsigned(vs[3]) + more_threads, 0,
           static_cast<cudaStream_t>(call->stream)>>>(q, k, v, o, int(vs[1]), int(vs[2]), int(ks[3]),
                                                      mischief);
  return ATTEST_OK;
}

template <Mischief mischief>
attest_status run(const attest_call* call) {
  return launch(call, mischief, 0);
}
attest_status launches_wrongly(const attest_call* call) { return launch(call, none, 4096); }
attest_status synchronises(const attest_call* call) {
  launch(call, none, 0);
  return cudaStreamSynchronize(static_cast<cudaStream_t>(call->stream)) == cudaSuccess ? ATTEST_OK
                                                                                       : ATTEST_FAILED;
}
attest_status touches_from_the_host(const attest_call* call) {
  int64_t shape[4];
  *static_cast<volatile float*>(data_of(call->outputs, call->n_outputs, "o", shape)) = 0;
  return ATTEST_OK;
}

constexpr attest_kernel kernel(const char* name, attest_status (*function)(const attest_call*)) {
  return {name, "linear",           "masked", "stream", "input=fp32 output=fp32",
          "",   "d=1..64 dv=1..64", "cuda",   nullptr,  function};
}
const attest_kernel kernels[] = {
    kernel("correct", run<none>),
    kernel("drops_last_token", run<drops_last_token>),
    kernel("writes_after_end", run<writes_after_end>),
    kernel("writes_to_input", run<writes_to_input>),
    kernel("far_write", run<far_write>),
    kernel("null_pointer", run<null_pointer>),
    kernel("traps", run<traps>),
    kernel("never_ends", run<never_ends>),
    kernel("launches_wrongly", launches_wrongly),
    kernel("touches_from_the_host", touches_from_the_host),
    kernel("synchronises", synchronises),
    kernel("correct_again", run<none>),
};

}  // namespace

extern "C" const attest_kernel* attest_kernels(uint32_t abi, size_t size, int32_t* count) {
  *count = sizeof kernels / sizeof kernels[0];
  return abi == ATTEST_ABI && size == sizeof(attest_kernel) ? kernels : nullptr;
}
