// One call of the kernel, and what a value may differ by: the oracle with its final states, and the bounds of the
// error model. Kernels which see the same inputs share their oracle results.
#pragma once
#include <memory>
#include <optional>

#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reference/cases/case.hpp"

namespace attest {

// The kernel's form exists for a decay of 1 alone.
bool has_no_decay(const BatteryContext& context);
// The shape with d and dv brought within the kernel's limits; shared heads and packing are dropped where the kernel does
// not take them.
Case fitted(const BatteryContext& context, Case shape);
// A drawn problem as the kernel sees it, of the context's operator.
Problem drawn(const BatteryContext& context, Case shape);

// The outputs by name and shape as the operator has them, final states only where the kernel announces them, gradients
// where it announces them and the problem has the cotangent `do`. None,
// noted in the findings, if the kernel does not take the problem (left out) or fails (a fault).
std::optional<Tensors> call(const BatteryContext& context, const Problem& problem, Findings& findings);

std::shared_ptr<const KeptOracle> truth_of(const Operator& op, const Problem& problem);

// What was spent so far on this thread: run_battery() reads it before and after a check.
struct Spent {
  std::int64_t kernel_ns = 0;  // as the kernels say
  std::int64_t call_ns = 0;    // with the way through their doors
  std::int64_t oracle_ns = 0;
  std::int64_t bound_ns = 0;
  unsigned ran_with = 0;  // beyond_defaults() of what the kernels computed
};
Spent& spent_on_this_thread();

// Compares o, and the final states by a running error bound, with the oracle. Left out: where the bound has no value
// or no power. `statistical`: the narrower bound of independent draws decides between PASS and SUSPECT.
void judge_outputs(const BatteryContext& context, const Problem& problem, const Tensors& outputs,
                   bool statistical, Findings& findings);
// For very many inputs, by the deterministic bound alone: o, or all outputs, against double_truth.hpp; against the certified
// double-double sums and the oracle where that radius is not far below the bound.
void judge_output_quickly(const BatteryContext& context, const Problem& problem, const Tensor& o,
                          Findings& findings);
void judge_outputs_quickly(const BatteryContext& context, const Problem& problem, const Tensors& outputs,
                           Findings& findings);
// The same bound twice: two correct answers to one question differ by no more (o alone).
void judge_pair(const BatteryContext& context, const Problem& problem, const Tensor& first,
                const Tensor& second, Findings& findings);
// call and judge_outputs.
void judge_call(const BatteryContext& context, const Problem& problem, bool statistical, Findings& findings);

std::string short_text(const Case& shape);

}  // namespace attest
