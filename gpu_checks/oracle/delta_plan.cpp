#include "gpu_checks/oracle/delta_plan.hpp"

#include <bit>
#include <cmath>
#include <map>

namespace attest::gpu_oracle {
namespace {

constexpr int kChunkLevels = std::bit_width(static_cast<unsigned>(kChunk)) - 1;

void add_link(DeltaPlan& plan, int64_t chunk, int level, const std::vector<int>& sources, bool adds) {
  plan.links.push_back(
      {chunk, static_cast<int>(plan.sources.size()), static_cast<int>(sources.size()), adds});
  plan.sources.insert(plan.sources.end(), sources.begin(), sources.end());
  plan.level.push_back(level);
}

// Before chunk `next`, the blocks of chunks that its predecessor completes become one (certified_delta.cpp, merge()).
void add_levels(DeltaPlan& plan, int64_t next, std::map<int, int>& live) {
  const int merged = std::countr_zero(static_cast<std::uint64_t>(next)) + 1;
  std::map<int, int> now;
  std::vector<int> below;
  for (const auto& [level, state] : live)
    if (level < merged) below.push_back(state);
  now[merged] = static_cast<int>(plan.links.size());
  add_link(plan, next - 1, merged + kChunkLevels, below, true);
  for (const auto& [level, state] : live) {
    if (level < merged) continue;
    now[level] = static_cast<int>(plan.links.size());
    add_link(plan, next - 1, level + kChunkLevels, {state}, false);
  }
  live = now;
}

}  // namespace

DeltaPlan delta_plan(int64_t tokens, bool levels) {
  DeltaPlan plan;
  std::map<int, int> live;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    plan.first_state.push_back(static_cast<int64_t>(plan.links.size()));
    if (!levels)
      add_link(plan, chunk - 1, 0, chunk ? std::vector{static_cast<int>(chunk) - 1} : std::vector<int>(),
               chunk > 0);
    if (levels && chunk > 0) add_levels(plan, chunk, live);
  }
  plan.first_state.push_back(static_cast<int64_t>(plan.links.size()));
  return plan;
}

std::vector<DeltaFactors> chunk_factors(const std::vector<DeltaFactors>& tokens,
                                        const std::vector<double>& error, const std::vector<double>& norm,
                                        Index key_dim) {
  const double dot = delta_units(DeltaPrecision::pair, key_dim, 1).dot;
  const auto width = static_cast<std::size_t>(key_dim);
  std::vector<DeltaFactors> chunks;
  for (std::size_t first = 0; first < tokens.size(); first += kChunk) {
    double growth = 1, errors = 0, norms = 0;
    for (std::size_t t = first; t < std::min(first + kChunk, tokens.size()); ++t)
      growth *= tokens[t].growth * kDeltaUp;
    for (std::size_t i = chunks.size() * width; i < (chunks.size() + 1) * width; ++i)
      errors += error[i] * error[i], norms += norm[i] * norm[i];
    const double inflation = norm_inflation(key_dim);
    chunks.push_back({.growth = growth + 0x1p-1000,
                      .state = (norm_from(errors, inflation) + dot * norm_from(norms, inflation)) * kDeltaUp,
                      .value = dot,
                      .floor = 0x1p-1000,
                      .query = 0,
                      .fade = 0,
                      .lost = 0});
  }
  return chunks;
}

}  // namespace attest::gpu_oracle
