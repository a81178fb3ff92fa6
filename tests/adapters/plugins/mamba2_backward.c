/* Mamba-2's recurrence and its gradients through the plug-in door, in fp32; independent of the reverse tape.
 *   S_t = a_t S_(t-1) + k_t v_t^T,  o_t = scale q_t^T S_t,  a_t = exp(g_t)      (S [d, dv])
 *   R_t = scale q_t do_t^T + a_(t+1) R_(t+1), at the end dfinal_state.S:  dq_t = scale S_t do_t,  dk_t = R_t v_t,
 *   dv_t = R_t^T k_t,  dg_t = a_t <R_t, S_(t-1)>,  dinitial_state.S = a_1 R_1
 * The kernel `shifted` is wrong: R_t decays by the gate of t. `silent` forgets the gradients. */
#include <math.h>
#include <string.h>

#include "gpu_checks/adapters/attest_kernel.h"

static float* find(const attest_tensor* list, int32_t count, const char* name) {
  for (int32_t i = 0; i < count; ++i)
    if (!strcmp(list[i].name, name)) return list[i].tensor->data;
  return NULL;
}
static const DLTensor* input(const attest_call* call, const char* name) {
  for (int32_t i = 0; i < call->n_inputs; ++i)
    if (!strcmp(call->inputs[i].name, name)) return call->inputs[i].tensor;
  return NULL;
}

/* S_0 ... S_T and R. */
static attest_status workspace(const attest_call* call, size_t* bytes) {
  const DLTensor *k = input(call, "k"), *v = input(call, "v");
  *bytes = sizeof(float) * (size_t)((v->shape[1] + 2) * k->shape[3] * v->shape[3]);
  return ATTEST_OK;
}

static attest_status run(const attest_call* call, int shifted, int silent) {
  const attest_tensor *in = call->inputs, *out = call->outputs;
  const int32_t ins = call->n_inputs, outs = call->n_outputs;
  const int64_t *shape = input(call, "v")->shape, d = input(call, "k")->shape[3];
  const int64_t B = shape[0], T = shape[1], H = shape[2], dv = shape[3], size = d * dv;
  const float *q = find(in, ins, "q"), *k = find(in, ins, "k"), *v = find(in, ins, "v");
  const float *g = find(in, ins, "g"), *cotangent = find(in, ins, "do");
  const float *first = find(in, ins, "initial_state.S"), *dlast = find(in, ins, "dfinal_state.S");
  float *o = find(out, outs, "o"), *last = find(out, outs, "final_state.S");
  float *dq = find(out, outs, "dq"), *dk = find(out, outs, "dk"), *dv_ = find(out, outs, "dv");
  float *dg = find(out, outs, "dg"), *dfirst = find(out, outs, "dinitial_state.S");
  float scale = 1, *S = call->workspace, *R = S + (T + 1) * size;
  if (!g) return strcpy(call->message, "only log-gates"), ATTEST_UNSUPPORTED;
  for (int32_t i = 0; i < call->n_options; ++i)
    if (!strcmp(call->options[i].key, "scale"))
      scale = (float)call->options[i].value;
    else
      return strcpy(call->message, "only scale"), ATTEST_UNSUPPORTED;
  for (int64_t head = 0; head < B * H; ++head) {
    for (int64_t x = 0; x < size; ++x) S[x] = first ? first[head * size + x] : 0;
    for (int64_t t = 0; t < T; ++t) {
      const int64_t row = (head / H * T + t) * H + head % H;
      const float *before = S + t * size, a = expf(g[row]);
      float* after = S + (t + 1) * size;
      for (int64_t x = 0; x < size; ++x)
        after[x] = a * before[x] + k[row * d + x / dv] * v[row * dv + x % dv];
      memset(o + row * dv, 0, sizeof(float) * (size_t)dv);
      for (int64_t x = 0; x < size; ++x) o[row * dv + x % dv] += scale * q[row * d + x / dv] * after[x];
    }
    if (last) memcpy(last + head * size, S + T * size, sizeof(float) * (size_t)size);
    if (!cotangent || silent) continue;
    for (int64_t x = 0; x < size; ++x) R[x] = dlast ? dlast[head * size + x] : 0;
    for (int64_t t = T - 1; t >= 0; --t) {
      const int64_t row = (head / H * T + t) * H + head % H, next = row + H;
      const float *before = S + t * size, *after = before + size, a = expf(g[row]);
      const float fade = t == T - 1 ? 1 : expf(g[shifted ? row : next]);
      memset(dq + row * d, 0, sizeof(float) * (size_t)d);
      memset(dk + row * d, 0, sizeof(float) * (size_t)d);
      memset(dv_ + row * dv, 0, sizeof(float) * (size_t)dv);
      dg[row] = 0;
      for (int64_t x = 0; x < size; ++x) {
        const int64_t i = row * d + x / dv, c = row * dv + x % dv;
        R[x] = scale * q[i] * cotangent[c] + fade * R[x];
        dq[i] += scale * after[x] * cotangent[c];
        dk[i] += R[x] * v[c];
        dv_[c] += R[x] * k[i];
        dg[row] += a * R[x] * before[x];
      }
      if (t == 0 && dfirst)
        for (int64_t x = 0; x < size; ++x) dfirst[head * size + x] = a * R[x];
    }
    if (T == 0 && dfirst) memcpy(dfirst + head * size, R, sizeof(float) * (size_t)size);
  }
  return ATTEST_OK;
}
static attest_status right(const attest_call* call) { return run(call, 0, 0); }
static attest_status shifted(const attest_call* call) { return run(call, 1, 0); }
static attest_status silent(const attest_call* call) { return run(call, 0, 1); }

#define KERNEL(name)                                                                                         \
  {                                                                                                          \
#name, "mamba2", "masked", "stream", "input=fp32 output=fp32", "initial_state final_state backward", "", \
        "cpu", workspace, name                                                                               \
  }
static const attest_kernel kernels[] = {KERNEL(right), KERNEL(shifted), KERNEL(silent)};
const attest_kernel* attest_kernels(uint32_t abi, size_t size, int32_t* count) {
  *count = 3;
  return abi == ATTEST_ABI && size == sizeof(attest_kernel) ? kernels : NULL;
}
