/* Two kernels that fail with the CUDA_VISIBLE_DEVICES that they see and their process, after a moment in which the other one is begun. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu_checks/adapters/attest_kernel.h"

static attest_status run(const attest_call *call) {
  const char *const devices = getenv("CUDA_VISIBLE_DEVICES");
  usleep(60000);
  snprintf(call->message, call->message_bytes, "sees <%s> in process %d", devices ? devices : "all",
           (int)getpid());
  return ATTEST_FAILED;
}

static const attest_kernel kernels[] = {
    {.name = "first", .op = "linear", .form = "direct", .contract = "input=fp32 output=fp32", .run = run},
    {.name = "second", .op = "linear", .form = "direct", .contract = "input=fp32 output=fp32", .run = run},
};

const attest_kernel *attest_kernels(uint32_t abi, size_t sizeof_kernel, int32_t *count) {
  if (abi != ATTEST_ABI || sizeof_kernel != sizeof(attest_kernel)) return NULL;
  *count = 2;
  return kernels;
}
