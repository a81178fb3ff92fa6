#include "reference/numeric/keep_memory.hpp"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>

#include <limits>
#endif

namespace attest {

void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace attest
