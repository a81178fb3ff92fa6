/* The interface of a kernel under test, C99 (also C++ and CUDA). A shared library exports one function,
 *   const attest_kernel *attest_kernels(uint32_t abi, size_t sizeof_kernel, int32_t *count);
 * and is checked with `attest check --plugin ./libmine.so[:NAME-GLOB]`. It is loaded in a process of its own.
 * Tensors are DLPack's DLTensor (dlpack.h v0.6 and later); where <dlpack/dlpack.h> is wanted too, include it first.
 * Nothing of attest needs to be linked; this header is all of it. Examples: gpu_checks/adapters/examples. */
#ifndef ATTEST_KERNEL_H
#define ATTEST_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* dlpack.h guards itself with one of these, depending on its version. */
#if !defined(DLPACK_DLPACK_H_) && !defined(DLPACK_VERSION) && !defined(DLPACK_MAJOR_VERSION)
typedef struct {
  int32_t device_type; /* kDLCPU 1, kDLCUDA 2 */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* kDLInt 0, kDLFloat 2, kDLBfloat 4 */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void* data; /* 256-byte aligned for contiguous tensors, which all are unless `strides` is declared */
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;     /* in elements, never NULL; 0 in an expanded dimension */
  uint64_t byte_offset; /* of the first element from data; 0 unless `strides` is declared */
} DLTensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_ABI 1u

/* Results of a call. UNSUPPORTED: this problem is outside of what the kernel does (the case is not run).
 * INVALID: the kernel says that the call makes no sense; FAILED: it could not do its work. Both fail the case. */
enum { ATTEST_OK = 0, ATTEST_UNSUPPORTED = 1, ATTEST_INVALID = 2, ATTEST_FAILED = 3 };
typedef int32_t attest_status;

/* Inputs, row-major [B, T, H, D], a field only where the problem has it:
 *   q, k [B, T, H, d]  v [B, T, H, dv]           the contract's input format (tf32: as float32)
 *   g (log-gate, <= 0) or alpha (linear), beta   [B, T, H]    the contract's gate_sum format
 *   level_scales [B, T, H, L]  decay [H]         the contract's gate_sum format
 *   cu_seqlens [N + 1]                           int64; B = 1; only with `varlen`
 *   initial_state.X [N, H, d, d or dv] (log-linear [N, H, L, d, dv]), m, h, z ... [N, H, d]   the state format
 *   initial_state.position [N]                   int64
 *   do [B, T, H, dv] in the input format, dfinal_state.X in the state format: cotangents, only with `backward`, and then
 *                                                in some calls
 * q, k, v may carry fewer heads than H where `grouped` is declared: head h reads h / (H / heads carried).
 * Outputs: o [B, T, H, dv] in the output format; final_state.X, shaped as above, in the state format, where
 * `final_state` is declared; in a call with cotangents, for every input X of q, k, v, g or alpha, beta, level_scales and
 * initial_state.X also dX in the shape of X, summed over the heads that share it: dq, dk, dv in the output format,
 * dinitial_state.X in the state format, the others in the gate_sum format. A dfinal_state.X that is missing is zero.
 * Operators, fields and moments are those of `attest list`. */
typedef struct {
  const char* name;
  const DLTensor* tensor;
} attest_tensor;

/* Options that differ from the defaults: normalize (text "true"), epsilon, ridge, scale, decay. */
typedef struct {
  const char* key;
  const char* text; /* exact: "3/4" */
  double value;     /* the double next to it */
} attest_option;

typedef struct {
  const attest_tensor* inputs;
  int32_t n_inputs;
  const attest_tensor*
      outputs; /* allocated by the caller and poisoned; a name that is missing is not wanted */
  int32_t n_outputs;
  const attest_option* options;
  int32_t n_options;
  void*
      workspace; /* 256-byte aligned, on the device of the outputs, contents undefined; NULL when none was asked */
  size_t workspace_bytes;
  void* stream;  /* cudaStream_t: enqueue and return without synchronising; NULL on the host */
  char* message; /* for one line that says why, when the status is not ATTEST_OK */
  size_t message_bytes;
} attest_call;

/* What a kernel says about itself; texts are read once, when the library is loaded. */
typedef struct {
  const char* name;    /* [A-Za-z0-9._-]+, once in a library */
  const char* op;      /* "hla2" */
  const char* variant; /* NULL: "masked" */
  /* "direct", "stream algebra=direct", "scan", "chunk c=64 algebra=direct": the rounding bound is that of this form, which
   * stands for the products that reference/operators/OP.hpp writes down, rounded where it says so. A kernel that
   * associates them in another way (W W^T for W K) may exceed it at the size of its own rounding. */
  const char* form;
  /* "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 output=bf16"; unnamed: fp32. Every contract promises
   * that exp(0) is 1, and none that subnormal numbers may be flushed to zero. exp= is the error of a weight: exp2 of a
   * rounded g log2(e) adds |g| to it. */
  const char* contract;
  const char* features; /* of: varlen initial_state final_state strides grouped backward deterministic
                           batch_invariant nan_contained; NULL: none */
  /* Of d, dv, t, b, h and g (log-gates): "d=16..256 dv=64,128 t=0..1048576"; NULL or unnamed: unlimited. */
  const char* limits;
  const char* device; /* "cpu" (also NULL) or "cuda": where the tensors of a call lie */
  /* Bytes of workspace that the same call with data will need; data pointers are NULL here. NULL: none. */
  attest_status (*workspace)(const attest_call* call, size_t* bytes);
  attest_status (*run)(const attest_call* call);
} attest_kernel;

/* An array of *count kernels that lives as long as the library. NULL: this abi or sizeof_kernel is not the one that
 * the library was built with; *count then holds the abi that it has. */
__attribute__((visibility("default"))) const attest_kernel* attest_kernels(uint32_t abi, size_t sizeof_kernel,
                                                                           int32_t* count);

#ifdef __cplusplus
}
#endif
#endif
