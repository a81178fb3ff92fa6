#include "gpu_checks/judging/plain.hpp"

#include <algorithm>

#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"

namespace attest {

namespace {

constexpr Index longest_plain = 2048;  // T T d operations, twenty seconds at 4096

std::optional<Kernel> plain_kernel(const Operator& op, const Problem& problem, const Contract& of) {
  const Declaration& declaration = op.declaration();
  Contract contract;
  contract.input = contract.product = contract.intermediate = contract.state = contract.output = of.input;
  contract.accumulate = contract.gate_sum = of.input == fp64 ? fp64 : fp32;
  Evaluation how{Form::chunk, 1, static_cast<int>(declaration.algebras.size()) - 1};
  while (how.chunk < problem.tokens) how.chunk *= 2;
  const bool chunked =
      std::find(declaration.forms.begin(), declaration.forms.end(), Form::chunk) != declaration.forms.end();
  if (!chunked) how.form = Form::stream;
  return cpu_kernel(op, how, "plain", contract);
}

}  // namespace

const Matrix<double>& plain_output(const Kernel& kernel, const Operator& op, const Problem& problem,
                                   const Rows& rows, PlainCache& plain) {
  Matrix<double>& o = plain.outputs[{std::string(kernel.contract.input.name), problem.tokens}];
  if (o.size() > 0) return o;
  if (!rows.all() || problem.tokens > longest_plain) return o;
  if (const auto evaluation = plain_kernel(op, problem, kernel.contract))
    if (const KernelResult result = evaluation->run(problem); result.status == KernelStatus::ok)
      o = rows.gather(result.outputs.at("o").data, problem.tokens);
  return o;
}

}  // namespace attest
