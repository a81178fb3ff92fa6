// The kernels around delta_rule.cuh, and their data on the way there and back.
#include "gpu_checks/oracle/delta_plan.hpp"
#include "gpu_checks/oracle/delta_rule.hpp"
#include "gpu_checks/oracle/device_array.cuh"
#include "reference/forms/certified_delta_layers.hpp"

namespace attest::gpu_oracle {
namespace {

constexpr int kLanes = 32, kWarps = 8;  // of a block

// The bodies for the processor are never called: these functions are members of both because their callers are.
template <int Entries>
struct Warp {
  static constexpr int lanes = kLanes, entries = Entries;
#ifdef __CUDA_ARCH__
  static ATTEST_ON_BOTH int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  static ATTEST_ON_BOTH double other(double x, int distance) { return __shfl_xor_sync(~0u, x, distance); }
  static ATTEST_ON_BOTH double from(double x, int lane) { return __shfl_sync(~0u, x, lane); }
  static ATTEST_ON_BOTH void sync() { __syncwarp(); }
#else
  static ATTEST_ON_BOTH int lane() { return 0; }
  static ATTEST_ON_BOTH double other(double, int) { return 0; }
  static ATTEST_ON_BOTH double from(double x, int) { return x; }
  static ATTEST_ON_BOTH void sync() {}
#endif
  static ATTEST_ON_BOTH void join(Sum& sum) {
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      Sum more;
      more.sum = other(sum.sum, distance), more.rest = other(sum.rest, distance);
      sum.join(more);
    }
  }
  static ATTEST_ON_BOTH double add(double x) {
    for (int distance = kLanes / 2; distance > 0; distance /= 2) x += other(x, distance);
    return x;
  }
  static ATTEST_ON_BOTH Value broadcast(Value x, int lane) { return {from(x.high, lane), from(x.low, lane)}; }
};

// The column of this warp: chunks in x, columns in y.
__device__ int column_of_warp() { return static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes); }

template <class Warp>
__global__ void __launch_bounds__(kLanes* kWarps)
    transitions(const DeltaHead head, const DeltaColumns phi, const DeltaColumns added) {
  const int column = column_of_warp();
  if (column < head.key_dim + head.value_dim) transition<Warp>(head, blockIdx.x, column, phi, added);
}

template <class Warp>
__global__ void __launch_bounds__(kLanes)
    scans(const DeltaHead head, const DeltaLink* links, const int* sources, int64_t states,
          const DeltaFactors* chunks, double unit_of_sum, const DeltaColumns phi, const DeltaColumns added,
          const DeltaColumns state) {
  scan<Warp>(head, static_cast<int>(blockIdx.x), links, sources, states, chunks, unit_of_sum, phi, added,
             state);
}

template <class Warp>
__global__ void __launch_bounds__(kLanes* kWarps)
    rows(const DeltaHead head, const DeltaColumns state, const int64_t* first_state, const int* level,
         double* high, double* low, double* radius) {
  const int column = column_of_warp();
  if (column < head.value_dim)
    rows_of_chunk<Warp>(head, blockIdx.x, column, state, first_state, level, high, low, radius);
}

struct DeviceColumns {
  DeviceColumns(int64_t groups, Index columns, Index key_dim)
      : width(static_cast<int>(columns)),
        count(static_cast<std::size_t>(groups * columns)),
        high(count * static_cast<std::size_t>(key_dim)),
        low(count * static_cast<std::size_t>(key_dim)),
        error(count),
        norm(count) {}
  DeltaColumns view() const { return {high.data(), low.data(), error.data(), norm.data(), width}; }
  bool failed() const { return high.failed() || low.failed() || error.failed() || norm.failed(); }
  int width;
  std::size_t count;
  DeviceArray<double> high, low, error, norm;
};

template <class T>
bool put(const DeviceArray<T>& to, const std::vector<T>& values) {
  return cudaMemcpyAsync(to.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                         cudaStreamPerThread) == cudaSuccess;
}

bool finished() { return cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess; }

// The state before the first chunk, where the plan has one: zero, or as it is given.
bool start(const CertifiedDelta& input, const DeviceColumns& state, const DeltaPlan& plan) {
  if (plan.links.empty() || plan.links[0].chunk >= 0) return true;
  const auto entries = static_cast<std::size_t>(input.value_dim * input.key_dim);
  std::vector<double> high(entries), norm;
  for (Index c = 0; c < input.value_dim; ++c) {
    double squares = 0;
    for (Index a = 0; a < input.key_dim && !input.initial.empty() && input.initial[0]; ++a) {
      const double x = input.initial[0][a * input.value_dim + c];
      high[static_cast<std::size_t>(c * input.key_dim + a)] = x, squares += x * x;
    }
    norm.push_back(norm_from(squares, norm_inflation(input.key_dim)));
  }
  const std::vector<double> zeros(entries), no_error(norm.size());
  return put(state.high, high) && put(state.low, zeros) && put(state.norm, norm) &&
         put(state.error, no_error) && finished();
}

template <class Warp>
bool run(const CertifiedDelta& input, CertifiedRows& result) {
  const auto tokens = static_cast<std::size_t>(input.tokens), d = static_cast<std::size_t>(input.key_dim),
             dv = static_cast<std::size_t>(input.value_dim);
  const DeltaPlan plan = delta_plan(input.tokens, input.level_scales != nullptr);
  const DeltaUnits units = delta_units(DeltaPrecision::pair, input.key_dim, kLanes);
  const std::vector<DeltaFactors> token_factors = delta_factors(input, units);
  const DeviceArray<double> q(input.q, tokens * d), k(input.k, tokens * d), v(input.v, tokens * dv),
      beta(input.beta, tokens), gate_high(input.gates.high), gate_low(input.gates.low),
      scales(input.level_scales, input.level_scales ? tokens * static_cast<std::size_t>(input.levels) : 0);
  const DeviceArray<DeltaFactors> factors(token_factors), chunks(static_cast<std::size_t>(plan.chunks()));
  const DeviceArray<DeltaLink> links(plan.links);
  const DeviceArray<int> sources(plan.sources), level(plan.level);
  const DeviceArray<int64_t> first_state(plan.first_state);
  const auto states = static_cast<int64_t>(plan.links.size());
  const DeviceColumns phi(plan.chunks(), input.key_dim, input.key_dim),
      added(plan.chunks(), input.value_dim, input.key_dim), state(states, input.value_dim, input.key_dim);
  const DeviceArray<double> high(tokens * dv), low(tokens * dv), radius(tokens * dv);
  for (const bool failed :
       {q.failed(), k.failed(), v.failed(), beta.failed(), gate_high.failed(), gate_low.failed(),
        scales.failed(), factors.failed(), chunks.failed(), links.failed(), sources.failed(), level.failed(),
        first_state.failed(), phi.failed(), added.failed(), state.failed(), high.failed(), low.failed(),
        radius.failed()})
    if (failed) return false;
  const DeltaHead head{.q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .beta = beta.data(),
                       .gate_high = gate_high.data(),
                       .gate_low = gate_low.data(),
                       .level_scales = scales.data(),
                       .factors = factors.data(),
                       .tokens = input.tokens,
                       .key_dim = static_cast<int>(input.key_dim),
                       .value_dim = static_cast<int>(input.value_dim),
                       .levels = static_cast<int>(input.levels),
                       .dot = units.dot,
                       .inflation = norm_inflation(input.key_dim),
                       .scale = {input.scale, input.scale_low, input.scale_error, delta_outer(64)}};
  if (!start(input, state, plan)) return false;
  const auto grid = [&](Index columns) {
    return dim3(static_cast<unsigned>(plan.chunks()), static_cast<unsigned>((columns + kWarps - 1) / kWarps));
  };
  transitions<Warp><<<grid(input.key_dim + input.value_dim), kLanes * kWarps, 0, cudaStreamPerThread>>>(
      head, phi.view(), added.view());
  std::vector<double> error(phi.count), norm(phi.count);
  if (cudaGetLastError() != cudaSuccess || !phi.error.read(error.data()) || !phi.norm.read(norm.data()) ||
      !finished())
    return false;
  if (!put(chunks, chunk_factors(token_factors, error, norm, input.key_dim)) || !finished()) return false;
  scans<Warp><<<static_cast<unsigned>(input.value_dim), kLanes, 0, cudaStreamPerThread>>>(
      head, links.data(), sources.data(), states, chunks.data(), units.add, phi.view(), added.view(),
      state.view());
  rows<Warp><<<grid(input.value_dim), kLanes * kWarps, 0, cudaStreamPerThread>>>(
      head, state.view(), first_state.data(), level.data(), high.data(), low.data(), radius.data());
  return cudaGetLastError() == cudaSuccess && high.read(result.high.data()) && low.read(result.low.data()) &&
         radius.read(result.radius.data()) && finished();
}

}  // namespace

bool delta_rule(const CertifiedDelta& input, CertifiedRows& rows) {
  const bool inside = input.level_scales && (input.position != 0 || !input.initial.empty());
  if (inside || input.tokens == 0 || input.value_dim == 0 || input.key_dim == 0 || input.key_dim > 256)
    return false;
  if (keys_have_zeros(input)) return false;
  if (input.key_dim <= 32) return run<Warp<1>>(input, rows);
  if (input.key_dim <= 64) return run<Warp<2>>(input, rows);
  if (input.key_dim <= 128) return run<Warp<4>>(input, rows);
  return run<Warp<8>>(input, rows);
}

}  // namespace attest::gpu_oracle
