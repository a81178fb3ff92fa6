// A precision contract: what a kernel says about its own arithmetic, one line (NUMERICS). Example:
//   input=bf16 product=bf16 accumulate=fp32/truncate intermediate=bf16 state=fp32 gate_sum=fp32/chunk
//   inverse=substitution exp=2ulp output=bf16
// input: format of the fields; product: of the operands of matrix products; accumulate: of their sums; intermediate:
// of tensors stored between products; state: of what is carried; gate_sum: of sums of log-gates and their scope.
#pragma once
#include <string>
#include <string_view>

#include "reference/numeric/format.hpp"

namespace attest {

enum class GateScope { chunk, global };
enum class InverseMethod { substitution, powers };

struct Contract {
  Format input = fp32, product = fp32, accumulate = fp32, intermediate = fp32, state = fp32, gate_sum = fp32,
         output = fp32;
  bool truncates = false;  // the accumulator rounds towards zero
  GateScope gate_scope = GateScope::chunk;
  InverseMethod inverse = InverseMethod::substitution;
  double exp_ulp = 1;  // error of the exponential, in units of the last place of gate_sum
};

// Unnamed keys keep the defaults above; throws BadInput naming the key and what was expected.
Contract parse_contract(std::string_view text);
std::string to_text(const Contract& contract);

}  // namespace attest
