// Oracle results of this run, kept by content (operator, variant, options, sizes, fields, what was asked for), so that
// kernels that see the same rounded inputs share one evaluation, whichever check or input line asks for it. Bounded in
// bytes, where a small result counts 64 KiB: the least recently used results go first. Two threads that ask for the same one at once compute it once.
#pragma once
#include <cstdint>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "reference/forms/oracle.hpp"

namespace attest {

struct KeptOracle {
  OracleResult result;
  std::int64_t nanoseconds = 0;  // that it took to compute
};

class OracleCache {
 public:
  explicit OracleCache(std::size_t limit_bytes) : limit_(limit_bytes) {}
  // BadInput as evaluate_oracle(). request.threads has no influence on a result and is no part of its key.
  std::shared_ptr<const KeptOracle> get(const Operator& op, const Problem& problem,
                                        const OracleRequest& request);
  std::int64_t nanoseconds() const;  // spent on all results so far
  std::int64_t computed() const;     // how many
  std::size_t bytes() const;         // kept now

 private:
  using Result = std::shared_ptr<const KeptOracle>;
  struct Entry {
    std::shared_future<Result> result;
    std::size_t bytes = 0;  // 0: being computed
    std::list<std::string>::iterator place;
  };
  void keep(const std::string& key, const Result& result);

  const std::size_t limit_;
  mutable std::mutex guard_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> order_;  // least recently used first
  std::size_t bytes_ = 0;
  std::int64_t nanoseconds_ = 0, computed_ = 0;
};

// The one of this process, of 128 MiB.
OracleCache& oracle_cache();

}  // namespace attest
