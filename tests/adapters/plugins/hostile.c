/* Kernels that do what no kernel may, each in its own way, beside two that are right. Linear attention, fp32, stream.
 * The environment variable ATTEST_NONSENSE makes the announcement nonsense in the way that it names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_checks/adapters/attest_kernel.h"

static const DLTensor* find(const attest_tensor* list, int32_t count, const char* name) {
  for (int32_t i = 0; i < count; ++i)
    if (strcmp(list[i].name, name) == 0) return list[i].tensor;
  return NULL;
}

/* Element [b, t, h, 0], by the strides. */
static float* at(const DLTensor* x, int64_t b, int64_t t, int64_t h) {
  return (float*)((char*)x->data + x->byte_offset) + b * x->strides[0] + t * x->strides[1] +
         h * x->strides[2];
}

/* o_t = sum_{s<=t} (q_t.k_s) v_s, all but the last `missing` tokens of the sum and of the rows. */
static attest_status compute(const attest_call* call, int64_t missing_terms, int64_t missing_rows) {
  const DLTensor *q = find(call->inputs, call->n_inputs, "q"), *k = find(call->inputs, call->n_inputs, "k");
  const DLTensor *v = find(call->inputs, call->n_inputs, "v"), *o = find(call->outputs, call->n_outputs, "o");
  const int64_t T = v->shape[1], d = k->shape[3], dv = v->shape[3];
  for (int64_t b = 0; b < v->shape[0]; ++b)
    for (int64_t h = 0; h < v->shape[2]; ++h)
      for (int64_t t = 0; t < T - missing_rows; ++t)
        for (int64_t c = 0; c < dv; ++c) {
          float sum = 0;
          for (int64_t s = 0; s <= t && s < T - missing_terms; ++s) {
            float score = 0;
            for (int64_t j = 0; j < d; ++j) score += at(q, b, t, h)[j] * at(k, b, s, h)[j];
            sum += score * at(v, b, s, h)[c];
          }
          at(o, b, t, h)[c] = sum;
        }
  return ATTEST_OK;
}

static float* output(const attest_call* call) {
  return (float*)find(call->outputs, call->n_outputs, "o")->data;
}
static int64_t output_size(const attest_call* call) {
  const DLTensor* o = find(call->outputs, call->n_outputs, "o");
  return o->shape[0] * o->shape[1] * o->shape[2] * o->shape[3];
}

static attest_status correct(const attest_call* call) { return compute(call, 0, 0); }
static attest_status chatty(const attest_call* call) {
  for (int i = 0; i < 20000; ++i) printf("@attest {\"call\": %d}\nline %d of much too much\n", i, i);
  return compute(call, 0, 0);
}
static attest_status drops_last_token(const attest_call* call) { return compute(call, 1, 0); }
static attest_status leaves_last_row(const attest_call* call) { return compute(call, 0, 1); }
static attest_status writes_nothing(const attest_call* call) {
  (void)call;
  return ATTEST_OK;
}
static attest_status null_pointer(const attest_call* call) {
  volatile float* volatile nowhere = NULL;
  *nowhere = 1;
  return compute(call, 0, 0);
}
static attest_status wild_write(const attest_call* call) {
  *(volatile float*)((uintptr_t)output(call) ^ (uintptr_t)1 << 44) = 1;
  return compute(call, 0, 0);
}
static attest_status far_write(const attest_call* call) {
  output(call)[100000] = 1;
  return compute(call, 0, 0);
}
static attest_status writes_after_end(const attest_call* call) {
  output(call)[output_size(call) + 2] = 0;
  return compute(call, 0, 0);
}
static attest_status writes_before_start(const attest_call* call) {
  output(call)[-1] = 0;
  return compute(call, 0, 0);
}
static attest_status writes_to_input(const attest_call* call) {
  at(find(call->inputs, call->n_inputs, "q"), 0, 0, 0)[0] = 1;
  return compute(call, 0, 0);
}
static attest_status writes_into_input(const attest_call* call) { /* an output that aliases an input */
  ((DLTensor*)find(call->outputs, call->n_outputs, "o"))->data =
      find(call->inputs, call->n_inputs, "v")->data;
  return compute(call, 0, 0);
}
static attest_status aborts(const attest_call* call) {
  (void)call;
  printf("half a line before the end");
  fflush(stdout);
  abort();
}
static attest_status raises_a_fault(const attest_call* call) {
  raise(SIGSEGV);
  return compute(call, 0, 0);
}
static attest_status sends_itself_a_bus_error(const attest_call* call) {
  kill(getpid(), SIGBUS);
  return compute(call, 0, 0);
}
static volatile int zero;
static attest_status divides_by_zero(const attest_call* call) { return call->n_inputs / zero; }
static int deeper(volatile char* above, int64_t levels) {
  volatile char here[4096];
  here[0] = above ? *above : 0;
  return levels > 0 ? deeper(here, levels - 1) + here[0] : 0;
}
static attest_status overflows_stack(const attest_call* call) {
  (void)call;
  return deeper(NULL, INT64_MAX);
}
static attest_status exits(const attest_call* call) {
  (void)call;
  fprintf(stderr, "I have had enough\n");
  exit(3);
}
static attest_status exits_well(const attest_call* call) {
  (void)call;
  _exit(0);
}
static attest_status never_returns(const attest_call* call) {
  (void)call;
  printf("thinking ...\n");
  for (volatile int i = 0; i < 2; i = i ^ 1) {
  }
  return ATTEST_OK;
}
// In the words of the other door.
static attest_status never_returns_and_says_it_did(const attest_call* call) {
  (void)call;
  printf("@attest {\"call\": 1, \"status\": \"ok\"}\n");
  fflush(stdout);
  return never_returns(call);
}
static attest_status kills_supervisor(const attest_call* call) {
  kill(getppid(), SIGKILL);
  return never_returns(call);
}
static attest_status closes_everything(const attest_call* call) {
  for (int i = 0; i < 256; ++i) close(i);
  return compute(call, 0, 0);
}
static attest_status writes_to_socket(const attest_call* call) {
  if (write(3, "hello", 5) < 0) return ATTEST_FAILED;
  return compute(call, 0, 0);
}
/* In the words of the worker's signal handler. */
static attest_status writes_of_a_crash(const attest_call* call) {
  if (write(3, "!slept", 6) < 0) return ATTEST_FAILED;
  return compute(call, 0, 0);
}
static attest_status fails(const attest_call* call) {
  snprintf(call->message, call->message_bytes, "out of \033[31mregisters\n");
  return ATTEST_FAILED;
}
static attest_status invalid(const attest_call* call) {
  (void)call;
  return ATTEST_INVALID;
}
static attest_status unsupported(const attest_call* call) {
  snprintf(call->message, call->message_bytes, "only on Sundays");
  return ATTEST_UNSUPPORTED;
}
static attest_status unknown_status(const attest_call* call) {
  compute(call, 0, 0);
  return 17;
}
static attest_status long_message(const attest_call* call) {
  memset(call->message, 'x', call->message_bytes); /* without an end */
  return ATTEST_FAILED;
}
static attest_status hundred_bytes(const attest_call* call, size_t* bytes) {
  (void)call;
  *bytes = 100;
  return ATTEST_OK;
}
static attest_status too_many_bytes(const attest_call* call, size_t* bytes) {
  (void)call;
  *bytes = SIZE_MAX;
  return ATTEST_OK;
}
static attest_status crashing_workspace(const attest_call* call, size_t* bytes) {
  (void)bytes;
  return (attest_status)*at(call->inputs[0].tensor, 0, 0, 0); /* data pointers may be NULL there */
}
static attest_status overflows_workspace(const attest_call* call) {
  ((char*)call->workspace)[100] = 0;
  return compute(call, 0, 0);
}
static attest_status uses_dirty_workspace(const attest_call* call) {
  compute(call, 0, 0);
  output(call)[0] += *(float*)call->workspace; /* as if it were zero */
  return ATTEST_OK;
}

static attest_status ignores_strides(const attest_call* call) { /* right where tensors are contiguous */
  for (int side = 0; side < 2; ++side)
    for (int32_t i = 0; i < (side ? call->n_outputs : call->n_inputs); ++i) {
      const DLTensor* x = (side ? call->outputs : call->inputs)[i].tensor;
      int64_t stride = 1;
      for (int32_t n = x->ndim; n-- > 0; stride *= x->shape[n]) x->strides[n] = stride;
    }
  return compute(call, 0, 0);
}

/* Right, but its process is there twice from then on. */
static attest_status leaves_a_copy(const attest_call* call) {
  fork();
  return compute(call, 0, 0);
}

#define KERNEL(function, features, workspace) \
  { #function, "linear", NULL, "stream", "", features, NULL, NULL, workspace, function }
static attest_kernel kernels[] = {
    KERNEL(correct, "strides", NULL),
    KERNEL(chatty, "", NULL),
    KERNEL(leaves_a_copy, "", NULL),
    KERNEL(drops_last_token, "", NULL),
    KERNEL(leaves_last_row, "", NULL),
    KERNEL(writes_nothing, "", NULL),
    KERNEL(null_pointer, "", NULL),
    KERNEL(wild_write, "", NULL),
    KERNEL(far_write, "", NULL),
    KERNEL(writes_after_end, "", NULL),
    KERNEL(writes_before_start, "", NULL),
    KERNEL(writes_to_input, "", NULL),
    KERNEL(writes_into_input, "", NULL),
    KERNEL(aborts, "", NULL),
    KERNEL(raises_a_fault, "", NULL),
    KERNEL(sends_itself_a_bus_error, "", NULL),
    KERNEL(divides_by_zero, "", NULL),
    KERNEL(overflows_stack, "", NULL),
    KERNEL(exits, "", NULL),
    KERNEL(exits_well, "", NULL),
    KERNEL(never_returns, "", NULL),
    KERNEL(never_returns_and_says_it_did, "", NULL),
    KERNEL(kills_supervisor, "", NULL),
    KERNEL(closes_everything, "", NULL),
    KERNEL(writes_to_socket, "", NULL),
    KERNEL(writes_of_a_crash, "", NULL),
    KERNEL(fails, "", NULL),
    KERNEL(invalid, "", NULL),
    KERNEL(unsupported, "", NULL),
    KERNEL(unknown_status, "", NULL),
    KERNEL(long_message, "", NULL),
    {"asks_for_too_much", "linear", NULL, "stream", "", "", NULL, NULL, too_many_bytes, correct},
    {"crashes_while_asked", "linear", NULL, "stream", "", "", NULL, NULL, crashing_workspace, correct},
    KERNEL(overflows_workspace, "", hundred_bytes),
    KERNEL(uses_dirty_workspace, "", hundred_bytes),
    KERNEL(ignores_strides, "strides", NULL),
    {"correct_again", "linear", NULL, "stream", "", "", NULL, NULL, NULL, correct},
};

const attest_kernel* attest_kernels(uint32_t abi, size_t size, int32_t* count) {
  const char* nonsense = getenv("ATTEST_NONSENSE");
  attest_kernel* first = &kernels[0];
  *count = ATTEST_ABI;
  if (abi != ATTEST_ABI || size != sizeof(attest_kernel)) return NULL;
  *count = sizeof kernels / sizeof kernels[0];
  if (!nonsense) return kernels;
  const char* value = strchr(nonsense, ':') ? strchr(nonsense, ':') + 1 : "";
  if (strncmp(nonsense, "abi", 3) == 0) return *count = 7, NULL;
  if (strncmp(nonsense, "none", 4) == 0) *count = 0;
  if (strncmp(nonsense, "many", 4) == 0) *count = 1 << 30;
  if (strncmp(nonsense, "crash", 5) == 0) abort();
  if (strncmp(nonsense, "quit", 4) == 0) exit(5);
  if (strncmp(nonsense, "name:", 5) == 0) first->name = value;
  if (strncmp(nonsense, "noname", 6) == 0) first->name = NULL;
  if (strncmp(nonsense, "badname", 7) == 0) first->name = (const char*)8;
  if (strncmp(nonsense, "op:", 3) == 0) first->op = value;
  if (strncmp(nonsense, "gated:", 6) == 0)
    first->op = "mamba2", first->form = "chunk c=16", first->contract = value;
  if (strncmp(nonsense, "stateless:", 10) == 0) first->op = "softmax", first->features = value;
  if (strncmp(nonsense, "levels:", 7) == 0) first->op = "log_linear", first->form = value;
  if (strncmp(nonsense, "hla2:", 5) == 0) first->op = "hla2", first->form = value;
  if (strncmp(nonsense, "variant:", 8) == 0) first->variant = value;
  if (strncmp(nonsense, "form:", 5) == 0) first->form = value;
  if (strncmp(nonsense, "contract:", 9) == 0) first->contract = value;
  if (strncmp(nonsense, "nocontract", 10) == 0) first->contract = NULL;
  if (strncmp(nonsense, "features:", 9) == 0) first->features = value;
  if (strncmp(nonsense, "limits:", 7) == 0) first->limits = value;
  if (strncmp(nonsense, "device:", 7) == 0) first->device = value;
  if (strncmp(nonsense, "norun", 5) == 0) first->run = NULL;
  return kernels;
}
