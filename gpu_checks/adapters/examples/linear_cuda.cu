// A plug-in in CUDA: linear attention, one block for a head and one thread for a column, in fp32. Build and judge it:
//   nvcc -O3 -shared -Xcompiler -fPIC -I. gpu_checks/adapters/examples/linear_cuda.cu -o linear_cuda.so
//   attest check --plugin ./linear_cuda.so
// S <- S + k v^T,  o = q^T S. The call's tensors lie on the GPU; work is enqueued on its stream, nothing waits here.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "gpu_checks/adapters/attest_kernel.h"

__global__ void linear(const float* q, const float* k, const float* v, float* o, int64_t T, int64_t H, int d,
                       float scale) {
  const int64_t b = blockIdx.x / H, h = blockIdx.x % H;
  const int c = threadIdx.x, dv = blockDim.x;
  float S[128];
  for (int i = 0; i < d; ++i) S[i] = 0;
  for (int64_t t = 0; t < T; ++t) {
    const int64_t row = (b * T + t) * H + h;
    float sum = 0;
    for (int i = 0; i < d; ++i) {
      S[i] += k[row * d + i] * v[row * dv + c];
      sum += scale * q[row * d + i] * S[i];
    }
    o[row * dv + c] = sum;
  }
}

static const DLTensor* find(const attest_tensor* list, int32_t count, const char* name) {
  for (int32_t i = 0; i < count; ++i)
    if (!strcmp(list[i].name, name)) return list[i].tensor;
  return nullptr;
}

static attest_status run(const attest_call* call) {
  float scale = 1;
  for (int32_t i = 0; i < call->n_options; ++i)
    if (!strcmp(call->options[i].key, "scale"))
      scale = float(call->options[i].value);
    else
      return snprintf(call->message, call->message_bytes, "only scale"), ATTEST_UNSUPPORTED;
  const DLTensor *k = find(call->inputs, call->n_inputs, "k"), *v = find(call->inputs, call->n_inputs, "v");
  const auto data = [](const DLTensor* x) { return static_cast<float*>(x->data); };
  const int64_t B = v->shape[0], T = v->shape[1], H = v->shape[2];
  if (B * T * H == 0) return ATTEST_OK;
  linear<<<unsigned(B * H), unsigned(v->shape[3]), 0, cudaStream_t(call->stream)>>>(
      data(find(call->inputs, call->n_inputs, "q")), data(k), data(v),
      data(find(call->outputs, call->n_outputs, "o")), T, H, int(k->shape[3]), scale);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return ATTEST_OK;
  return snprintf(call->message, call->message_bytes, "%s", cudaGetErrorString(error)), ATTEST_FAILED;
}

static const attest_kernel kernels[] = {{"example.linear.cuda", "linear", "masked", "stream",
                                         "input=fp32 output=fp32", "deterministic", "d=1..128 dv=1..1024",
                                         "cuda", nullptr, run}};
extern "C" const attest_kernel* attest_kernels(uint32_t abi, size_t size, int32_t* count) {
  *count = 1;
  return abi == ATTEST_ABI && size == sizeof(attest_kernel) ? kernels : nullptr;
}
