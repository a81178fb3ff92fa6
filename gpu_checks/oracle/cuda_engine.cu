// Moves the tables of a masked sum to the device and back, and states the error of the result (radius.md).
#include <cuda_runtime.h>

#include <atomic>
#include <vector>

#include "gpu_checks/oracle/delta_rule.hpp"
#include "gpu_checks/oracle/device_array.cuh"
#include "gpu_checks/oracle/gpu_oracle.hpp"
#include "gpu_checks/oracle/masked_linear.cuh"
#include "reference/forms/certified_error.hpp"
#include "reference/numeric/double_double.hpp"

namespace attest {
namespace {

using gpu_oracle::DeviceArray;
using gpu_oracle::kSlice;
using gpu_oracle::kTokens;
using gpu_oracle::Pair;

struct DeviceTable {
  DeviceTable(const CertifiedOperand& from, Index tokens)
      : columns(from.columns),
        high(from.high, count(from, tokens)),
        low(from.low, from.low ? count(from, tokens) : 0),
        magnitude(from.magnitude, from.low ? count(from, tokens) : 0) {}
  static std::size_t count(const CertifiedOperand& from, Index tokens) {
    return static_cast<std::size_t>(tokens * from.columns);
  }
  gpu_oracle::Operand operand() const {
    return {high.data(), low.data(), magnitude.data(), static_cast<int>(columns)};
  }
  bool failed() const { return high.failed() || low.failed() || magnitude.failed(); }
  Index columns;
  DeviceArray<double> high, low, magnitude;
};

Pair pair_of(const DoubleDouble& x) { return {x.high, x.low}; }

// What the kernel multiplies up to a weight, and the weight's relative error.
struct Weights {
  std::vector<Pair> powers, gates, right, tiles;
  double error = 0;

  Weights(const CertifiedWeights& w, Index tokens) {
    if (w.gate_high) {
      add_gates(w, tokens);
      error = power_error(kPairProduct + w.gate_error * kUp, tokens + 4);
    } else if (w.decay.high != 1 || w.decay.low != 0 || w.decay.error != 0) {
      DoubleDouble power = 1;
      for (Index distance = 0; distance < tokens;
           ++distance, power *= DoubleDouble{w.decay.high, w.decay.low})
        powers.push_back(pair_of(power));
      error = power_error(kPairProduct + w.decay.error * kUp, tokens);
    }
  }
  bool any(const CertifiedWeights& w) const { return !powers.empty() || !gates.empty() || w.level_scales; }

 private:
  void add_gates(const CertifiedWeights& w, Index tokens) {
    std::vector<DoubleDouble> alpha;
    for (Index t = 0; t < tokens; ++t) {
      alpha.push_back(two_sum(w.gate_high[t], w.gate_low ? w.gate_low[t] : 0.0));
      gates.push_back(pair_of(alpha.back()));
    }
    right.resize(static_cast<std::size_t>(tokens));
    for (Index first = 0; first < tokens; first += kTokens) {
      DoubleDouble after = 1;
      for (Index t = std::min<Index>(first + kTokens, tokens); t-- > first;
           after *= alpha[static_cast<std::size_t>(t)])
        right[static_cast<std::size_t>(t)] = pair_of(after);
      tiles.push_back(pair_of(after));
    }
  }
};

// radius.md, lemma 1.
double sum_error(Index inner, Index parts) {
  const double k = static_cast<double>(inner), j = static_cast<double>(parts);
  return (5 * (k + 4) * (k + 4) + (j + 1) * (4 * j + 4 * k + 12)) * kU2 * kUp;
}

class CudaEngine : public CertifiedEngine {
 public:
  bool masked_linear(const CertifiedOperand& q, const CertifiedOperand& k, const CertifiedOperand& v,
                     Index tokens, const CertifiedWeights& w, Index first_row,
                     CertifiedTable& output) const override {
    if (!use_a_device()) return forget();
    const Index last_row = first_row + output.rows;
    const Weights weights(w, tokens);
    const DeviceTable dq(q, last_row), dk(k, last_row), dv(v, last_row);
    const DeviceArray<Pair> powers(weights.powers.data(), weights.powers.size()),
        gates(weights.gates.data(), weights.gates.size()), right(weights.right.data(), weights.right.size()),
        tiles(weights.tiles.data(), weights.tiles.size());
    const DeviceArray<double> scales(w.level_scales,
                                     w.level_scales ? static_cast<std::size_t>(tokens * w.levels) : 0);
    const std::size_t size = output.high.size();
    const DeviceArray<double> high(size), low(size), magnitude(size);
    for (const bool failed :
         {dq.failed(), dk.failed(), dv.failed(), powers.failed(), gates.failed(), right.failed(),
          tiles.failed(), scales.failed(), high.failed(), low.failed(), magnitude.failed()})
      if (failed) return forget();
    gpu_oracle::Sum sum;
    sum.q = dq.operand(), sum.k = dk.operand(), sum.v = dv.operand();
    sum.tokens = tokens, sum.first_row = first_row, sum.last_row = last_row;
    sum.powers = powers.data(), sum.gates = gates.data(), sum.right = right.data(), sum.tiles = tiles.data();
    sum.level_scales = scales.data(), sum.levels = static_cast<int>(w.levels);
    sum.score_inflation = sum_inflation(q.columns),
    sum.sum_inflation = sum_inflation(tokens + tokens / kSlice);
    sum.weight_inflation = weight_inflation(weights.error), sum.floor = kFloor;
    sum.out_high = high.data(), sum.out_low = low.data(), sum.out_magnitude = magnitude.data();
    if (gpu_oracle::launch(sum, cudaStreamPerThread) != cudaSuccess) return forget();
    if (!high.read(output.high.data()) || !low.read(output.low.data()) ||
        !magnitude.read(output.magnitude.data()))
      return forget();
    if (cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess) return forget();
    const double score = product_error(q.error, k.error, sum_error(q.columns, 1));
    const double weighted =
        product_error(score, weights.any(w) ? product_error(weights.error, 4 * kPairProduct, 0) : 0, 0);
    output.error = product_error(
        weighted, v.error, sum_error(kSlice, (last_row + kSlice - 1) / kSlice + last_row / kTokens + 2));
    return true;
  }
  bool delta_rule(const CertifiedDelta& input, CertifiedRows& rows) const override {
    return use_a_device() && gpu_oracle::delta_rule(input, rows) ? true : forget();
  }

 private:
  // Threads take turns at the devices.
  static bool use_a_device() {
    static std::atomic<int> threads = 0;
    thread_local const int mine = threads++;
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 &&
           cudaSetDevice(mine % devices) == cudaSuccess;
  }
  static bool forget() {
    cudaGetLastError();
    return false;
  }
};

}  // namespace

const CertifiedEngine* cuda_engine(std::string& why) {
  static const CudaEngine engine;
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    why = found == cudaSuccess ? "no CUDA device" : cudaGetErrorString(found);
    cudaGetLastError();
    return nullptr;
  }
  return &engine;
}

}  // namespace attest
