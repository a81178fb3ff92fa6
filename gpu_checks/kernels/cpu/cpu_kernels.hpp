// The CPU forms as kernels under test: every operator and variant by stream, chunk and scan, in the emulated arithmetic
// of a contract. "cpu.OPERATOR[.VARIANT].FORM[.ALGEBRA].CONTRACT", variant and algebra only where there is a choice.
#pragma once
#include "gpu_checks/kernel.hpp"

namespace attest {

std::vector<Kernel> cpu_kernels();

// One such kernel; `op` must outlive it. The form must be one of the operator's.
Kernel cpu_kernel(const Operator& op, const Evaluation& how, std::string_view contract_name,
                  const Contract& contract);

}  // namespace attest
