#include "gpu_checks/oracle/oracle_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "gpu_checks/adapters/sha256.hpp"

namespace attest {
namespace {

void append(std::string& text, const void* data, std::size_t size) {
  text.append(static_cast<const char*>(data), size);
}

// SHA-256 of all that the result depends on.
std::string key_of(const Operator& op, const Problem& problem, const OracleRequest& request) {
  const auto [first, last] = request.rows.value_or(std::pair<Index, Index>(-1, -1));
  std::string text = fmt::format(
      "{}/{}/{}/{} {} {} {} {} {} {} {}/", op.declaration().name, op.declaration().variant,
      to_text(problem.options), request.exact, request.bits.value_or(0), request.relative_bits, first, last,
      request.double_double, request.in_double, request.magnitude, problem.wants_states);
  if (request.how)
    text += fmt::format("{} {} {}/", form_name(request.how->form), request.how->chunk, request.how->algebra);
  const Index sizes[] = {problem.batch,   problem.tokens,    problem.heads,
                         problem.key_dim, problem.value_dim, problem.levels};
  append(text, sizes, sizeof sizes);
  append(text, problem.cu_seqlens.data(), problem.cu_seqlens.size() * sizeof(Index));
  for (const auto& [name, tensor] : problem.fields) {
    text += '/' + name + '/';
    append(text, tensor.shape.data(), tensor.shape.size() * sizeof(Index));
    append(text, tensor.data.data(), tensor.data.size() * sizeof(double));
  }
  return sha256(text);
}

// What a small result counts, so that there are never very many.
constexpr std::size_t least_bytes = 1 << 16;

std::size_t bytes_of(const OracleResult& result) {
  std::size_t bytes = sizeof(OracleResult);
  for (const auto& [name, tensor] : result.tensors) {
    bytes += name.size() + sizeof tensor;
    for (const auto* values : {&tensor.value, &tensor.low, &tensor.radius, &tensor.magnitude})
      bytes += values->capacity() * sizeof(double);
    for (const std::string& text : tensor.exact) bytes += sizeof text + text.capacity();
  }
  return std::max(bytes, least_bytes);
}

}  // namespace

std::shared_ptr<const KeptOracle> OracleCache::get(const Operator& op, const Problem& problem,
                                                   const OracleRequest& request) {
  const std::string key = key_of(op, problem, request);
  std::promise<Result> promise;
  std::unique_lock lock(guard_);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    order_.splice(order_.end(), order_, found->second.place);
    const std::shared_future<Result> result = found->second.result;
    lock.unlock();
    return result.get();
  }
  entries_[key] = {promise.get_future().share(), 0, order_.insert(order_.end(), key)};
  lock.unlock();
  try {
    const auto start = std::chrono::steady_clock::now();
    auto made = std::make_shared<KeptOracle>();
    made->result = evaluate_oracle(op, problem, request);
    made->nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    promise.set_value(made);
    keep(key, made);
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard again(guard_);
    order_.erase(entries_.at(key).place), entries_.erase(key);
    throw;
  }
}

void OracleCache::keep(const std::string& key, const Result& result) {
  const std::lock_guard lock(guard_);
  nanoseconds_ += result->nanoseconds, ++computed_;
  bytes_ += entries_.at(key).bytes = bytes_of(result->result);
  for (auto oldest = order_.begin(); bytes_ > limit_ && oldest != order_.end();) {
    const auto entry = entries_.find(*oldest);
    if (entry->second.bytes == 0) {  // somebody is about to have it
      ++oldest;
      continue;
    }
    bytes_ -= entry->second.bytes;
    entries_.erase(entry);
    oldest = order_.erase(oldest);
  }
}

std::int64_t OracleCache::nanoseconds() const {
  const std::lock_guard lock(guard_);
  return nanoseconds_;
}
std::int64_t OracleCache::computed() const {
  const std::lock_guard lock(guard_);
  return computed_;
}
std::size_t OracleCache::bytes() const {
  const std::lock_guard lock(guard_);
  return bytes_;
}

OracleCache& oracle_cache() {
  static OracleCache one(std::size_t{128} << 20);
  return one;
}

}  // namespace attest
