// A kernel under test: what it announces about itself, and a function from a problem to its outputs.
// Names are made of parts that a glob can pick: "cpu.hla2.chunk64.direct.bf16". The forms and contracts are the
// author's claims (DESIGN "A kernel under test", reference/tensor/contract.hpp); nothing here says what to expect.
// Before a kernel and the oracle see them, q, k, v are rounded to the contract's input format, states to its state
// format, and g, alpha, beta, level_scales, decay and the options to its gate_sum format.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reference/cases/case.hpp"
#include "reference/forms/operator.hpp"
#include "reference/tensor/contract.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

enum class KernelStatus { ok, unsupported, failed };

struct KernelResult {
  KernelStatus status = KernelStatus::ok;
  std::string message;  // one line when the status is not ok
  std::map<std::string, Tensor>
      outputs;  // "o" [B, T, H, dv]; "final_state.X" as output_shapes() where announced; gradients (see below)
  std::int64_t nanoseconds = 0;
};

struct Kernel {
  std::string name, door = "registered", op, variant;
  Evaluation how;
  std::string form;  // "chunk c=64 algebra=direct"
  Contract contract;
  // of: varlen initial_state final_state grouped strides backward deterministic batch_invariant nan_contained
  std::string features;
  std::string limits;          // "d=1..256 dv=1..256 t=0..1048576", also b, h, g; unnamed = unlimited
  bool without_decay = false;  // it takes none: what is drawn for it has decay 1
  std::string
      source;  // what opens its door, as on the command line: "--plugin './libmine.so'"; empty: registered
  std::string sha256;  // of the file that it came from; empty: not known
  std::function<KernelResult(const Problem&)> run;
  std::function<KernelResult(const Problem&)> run_strided =
      {};  // with tensors apart in memory; empty: there is none
};

// Whether the word is among the kernel's features.
bool has_feature(const Kernel& kernel, std::string_view feature);

// Every kernel compiled in.
const std::vector<Kernel>& registered_kernels();
// Those whose name and operator match the globs (fnmatch; empty = all). Where other doors gave kernels, an empty name
// glob means these alone.
std::vector<const Kernel*> find_kernels(std::string_view name_glob, std::string_view operator_glob);

// Kernels that came through another door (gpu_checks/adapters/doors.hpp), for find_kernels from now on.
void adopt_kernels(std::vector<Kernel> kernels);

std::string form_text(const Declaration& declaration, const Evaluation& how);
// Empty, or why the kernel's limits exclude the problem. Throws BadInput on limits that cannot be read.
std::string outside_limits(std::string_view limits, const Problem& problem);
std::string outside_limits(std::string_view limits,
                           const Case& shape);  // by its sizes, before anything is drawn
bool admits(std::string_view limits, std::string_view name, double value);
// The number that the limit of that name admits: the next one from `wanted` up, or else the largest.
Index nearest_within(std::string_view limits, std::string_view name, Index wanted);
// Empty, or why the limits admit no head narrow enough to be drawn of our own accord (1024).
std::string no_small_case(std::string_view limits);
// A size of a drawn case: the nearest within the limits, or what was wanted, which the kernel then refuses, where that is
// too large to be drawn.
Index drawn_within(std::string_view limits, std::string_view name, Index wanted);
// Gradients. A kernel that announces `backward` gives, where the problem has the cotangent `do` [B, T, H, dv] (and, beside
// `final_state`, perhaps dfinal_state.X of some X), one output more for every field X of q, k, v, g or alpha, beta,
// level_scales and initial_state.X: dX in the shape of X, summed over the heads that share it, as `attest reference
// --gradient` names them (without ddecay). dq, dk, dv in the contract's output format, dinitial_state.X in its state
// format, the others in its gate_sum format.
bool gives_gradients(const Kernel& kernel, const Problem& problem);
std::map<std::string, std::vector<Index>> gradient_shapes(const Problem& problem);
const Format& gradient_format(const Contract& contract, std::string_view gradient);

// The problem as the kernel and the oracle see it.
Problem round_inputs(const Contract& contract, Problem problem);

}  // namespace attest
