/* Kernels that tell how many processes of them are asked, and how often each was; none computes anything. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_checks/adapters/attest_kernel.h"

static int files_in(const char* folder) {
  int count = 0;
  DIR* const entries = opendir(folder);
  if (!entries) return 0;
  for (const struct dirent* entry; (entry = readdir(entries));) count += entry->d_name[0] != '.';
  closedir(entries);
  return count;
}

/* Returns once a second process has been asked too. */
static attest_status meets_another(const attest_call* call) {
  const char* const folder = getenv("ATTEST_MEETING");
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", folder ? folder : "/proc", (int)getpid());
  FILE* const mine = fopen(path, "w");
  if (mine) fclose(mine);
  while (folder && files_in(folder) < 2) usleep(1000);
  snprintf(call->message, call->message_bytes, "met another");
  return ATTEST_UNSUPPORTED;
}

static attest_status fails_every_fifth_call(const attest_call* call) {
  static int calls = 0;
  snprintf(call->message, call->message_bytes, "call after call");
  return ++calls % 5 == 0 ? ATTEST_FAILED : ATTEST_UNSUPPORTED;
}

/* Only in the process that was asked first. */
static attest_status fails_in_the_first_process(const attest_call* call) {
  static int first = -1;
  char name[512];
  snprintf(name, sizeof name, "%s/first", getenv("ATTEST_MEETING"));
  if (first < 0) first = mkdir(name, 0777) == 0;
  snprintf(call->message, call->message_bytes, "first come, first served");
  return first ? ATTEST_FAILED : ATTEST_UNSUPPORTED;
}

#define KERNEL(function)                                                                       \
  {                                                                                            \
    .name = #function, .op = "linear", .form = "direct", .contract = "input=fp32 output=fp32", \
    .run = function                                                                            \
  }
static const attest_kernel kernels[] = {KERNEL(meets_another), KERNEL(fails_every_fifth_call),
                                        KERNEL(fails_in_the_first_process)};

const attest_kernel* attest_kernels(uint32_t abi, size_t sizeof_kernel, int32_t* count) {
  if (abi != ATTEST_ABI || sizeof_kernel != sizeof(attest_kernel)) return NULL;
  *count = sizeof kernels / sizeof kernels[0];
  return kernels;
}
