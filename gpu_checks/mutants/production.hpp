// A plain kernel as one writes it for production: chunked, padded tiles, the state carried, flat memory with strides,
// packed sequences, grouped heads; fp32 throughout, or bf16 inputs and operands with fp32 sums. Every place where such
// kernels go wrong is a hook named by an Edit: Edit::none is a correct kernel (the negative control), every other
// value makes exactly one mistake. hla2 (S C - G), ahla, hla3, gated_delta, log_linear_mamba2, log_linear_gated_delta.
#pragma once
#include <memory>

#include "gpu_checks/kernel.hpp"
#include "gpu_checks/mutants/edit.hpp"

namespace attest {

inline constexpr Index production_chunk = 16, production_tile = 32;  // tokens a chunk, value columns a tile

struct Production {
  const Operator* op;
  Edit edit = Edit::none;
  bool bf16 = false;
};

// What outlives a call: scratch that nobody clears, caches, a counter.
struct Memory {
  std::map<std::string, std::vector<double>> scratch;
  std::map<std::string, KernelResult> cache;
  Index calls = 0;
};

Contract production_contract(bool bf16);

// The gradients of a problem with cotangents (production_backward.cpp).
Tensors production_gradients(const Production& kernel, const Problem& problem, Memory& memory);
// The unedited kernels and those of family 12 announce `backward`.
bool computes_gradients(Edit edit);

KernelResult run_production(const Production& kernel, const Problem& problem, Memory& memory);

// The kernel with a memory of its own, named mutant.OPERATOR.EDIT[.bf16].
Kernel production_kernel(const Operator& op, Edit edit, bool bf16);

}  // namespace attest
