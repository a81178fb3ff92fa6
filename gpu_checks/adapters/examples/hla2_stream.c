/* A plug-in in C: second-order HLA, one token at a time, in fp32. Build and judge it:
 *   cc -O2 -shared -fPIC -I. gpu_checks/adapters/examples/hla2_stream.c -o hla2_stream.so
 *   attest check --plugin ./hla2_stream.so
 * S <- gamma S + k k^T,  F <- gamma^2 F + (S q) v^T,  o = q^T F   (S [d, d], F [d, dv]) */
#include <string.h>

#include "gpu_checks/adapters/attest_kernel.h"

static const DLTensor* find(const attest_tensor* list, int32_t count, const char* name) {
  for (int32_t i = 0; i < count; ++i)
    if (!strcmp(list[i].name, name)) return list[i].tensor;
  return NULL;
}

static attest_status workspace(const attest_call* call, size_t* bytes) {
  const int64_t d = find(call->inputs, call->n_inputs, "k")->shape[3];
  *bytes = sizeof(float) * (size_t)(d * (d + find(call->inputs, call->n_inputs, "v")->shape[3]));
  return ATTEST_OK;
}

static attest_status run(const attest_call* call) {
  const DLTensor *q = find(call->inputs, call->n_inputs, "q"), *k = find(call->inputs, call->n_inputs, "k");
  const DLTensor *v = find(call->inputs, call->n_inputs, "v"), *o = find(call->outputs, call->n_outputs, "o");
  const DLTensor* decay = find(call->inputs, call->n_inputs, "decay"); /* [H], or an option for all heads */
  const int64_t B = v->shape[0], T = v->shape[1], H = v->shape[2], d = k->shape[3], dv = v->shape[3];
  float scale = 1, all_heads = 1, *S = call->workspace, *F = S + d * d;
  for (int32_t i = 0; i < call->n_options; ++i)
    if (!strcmp(call->options[i].key, "scale"))
      scale = (float)call->options[i].value;
    else if (!strcmp(call->options[i].key, "decay"))
      all_heads = (float)call->options[i].value;
    else
      return strcpy(call->message, "only scale and decay"), ATTEST_UNSUPPORTED;
  for (int64_t head = 0; head < B * H; ++head) {
    const float gamma = decay ? ((const float*)decay->data)[head % H] : all_heads;
    memset(S, 0, sizeof(float) * (size_t)(d * (d + dv)));
    for (int64_t t = 0; t < T; ++t) {
      const int64_t row = (head / H * T + t) * H + head % H; /* contiguous: `strides` is not declared */
      const float *qt = (const float*)q->data + row * d, *kt = (const float*)k->data + row * d;
      const float* vt = (const float*)v->data + row * dv;
      float* ot = memset((float*)o->data + row * dv, 0, sizeof(float) * (size_t)dv);
      for (int64_t i = 0; i < d; ++i) {
        float sum = 0; /* row i of S q */
        for (int64_t j = 0; j < d; ++j) S[i * d + j] = gamma * S[i * d + j] + kt[i] * kt[j];
        for (int64_t j = 0; j < d; ++j) sum += S[i * d + j] * (scale * qt[j]);
        for (int64_t c = 0; c < dv; ++c) F[i * dv + c] = gamma * gamma * F[i * dv + c] + sum * vt[c];
        for (int64_t c = 0; c < dv; ++c) ot[c] += scale * qt[i] * F[i * dv + c];
      }
    }
  }
  return ATTEST_OK;
}

static const attest_kernel kernels[] = {{"example.hla2.stream", "hla2", "masked", "stream algebra=direct",
                                         "input=fp32 output=fp32", "deterministic", "", "cpu", workspace,
                                         run}};
const attest_kernel* attest_kernels(uint32_t abi, size_t size, int32_t* count) {
  *count = 1;
  return abi == ATTEST_ABI && size == sizeof(attest_kernel) ? kernels : NULL;
}
