#include "reference/numeric/parallel.hpp"

#include <mpfr.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace attest {

void for_each_parallel(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::min<std::int64_t>(threads, count));
  std::atomic<std::int64_t> next{0};
  std::exception_ptr error;
  std::mutex guard;
  const auto run_all = [&] {
    try {
      for (std::int64_t i; (i = next++) < count;) work(i);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i)
    pool.emplace_back([&] {
      run_all();
      mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE);  // MPFR keeps constants and memory per thread
    });
  run_all();
  for (std::thread& thread : pool) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace attest
