// Independent pieces of work on several threads.
#pragma once
#include <cstdint>
#include <functional>

namespace attest {

// Calls work(i) for i < count on up to `threads` threads (0: as many as the machine has); rethrows the first error.
void for_each_parallel(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace attest
