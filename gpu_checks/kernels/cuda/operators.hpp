// A call of an operator as the launchers understand it, and the composition of each operator out of them.
#pragma once
#include <string>

#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {

enum class Op {
  linear,
  retention,
  mamba2,
  ahla,
  hla2,
  hla3,
  delta,
  gated_delta,
  log_linear,
  log_linear_mamba2,
  log_linear_gated_delta
};
enum class Variant { masked, unmasked, printed };

// The moments of an operator by position, e.g. hla2: S, C, G.
struct States {
  Moment moments[4];
  int levels = 0;
  int64_t* position = nullptr;
};

struct Call {
  Op op = Op::linear;
  Variant variant = Variant::masked;
  Type type = Type::bf16;
  View q, k, v, o, beta, level_scales;
  Gate gate;  // of the token, or the decay
  int64_t batch = 0, tokens = 0;
  int heads = 0, key_dim = 0, value_dim = 0, levels = 0, sequences = 0;
  const int64_t* bounds = nullptr;
  bool normalize = false;
  float epsilon = 0, ridge = 0, scale = 1;
  int64_t segment = 0;  // tokens of a segment, 0: chosen
  States initial, final;
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  MatrixUnits units = MatrixUnits::none;
  int shared_bytes = 0;  // that a block may have
};

struct Outcome {
  cudaError_t error = cudaSuccess;
  const char* where = "";
  std::string unsupported;  // why the kernel does not do this
};

// Enqueues the call in the workspace; workspace null: only counts the bytes.
Outcome enqueue(const Call& call, char* workspace, size_t& bytes);

}  // namespace attest::cuda
