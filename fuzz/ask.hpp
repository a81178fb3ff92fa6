// A question to a kernel, judged by the code of `attest check` (gpu_checks/battery/call.hpp), the deterministic bound alone:
//   value         o by the bound of the contract; the final states as well on small problems
//   lattice       certified integers: o and the final states, bit by bit; loud_lattice: sums as long as the formats hold
//   again         calls A, B (longer), A: the same bits, and the value (of kernels declared deterministic)
//   new_data      the same buffers with other data before: the value
//   containment   one NaN or infinity among the inputs: what depends on it is not finite
//   gradient, width  the battery's checks, on inputs that they draw from the seed
#pragma once
#include "fuzz/input.hpp"
#include "gpu_checks/battery/findings.hpp"

namespace attest {

struct Answer {
  CheckOutcome outcome;
  double reached = 0;            // largest error/bound of a decided input
  std::optional<Problem> asked;  // none: nothing was asked

  bool failed() const { return outcome.verdict == Verdict::fail; }
  bool decided() const { return failed() || outcome.verdict == Verdict::pass; }
};

// Empty, or why the question is not for this kernel.
std::string cannot_ask(const BatteryContext& context, Question question);
Answer ask(const BatteryContext& context, const FuzzInput& input);

// What failed: "o", which goes first, "final states", "gradients", or "call" for what is no matter of single elements.
std::string failed_part(const Answer& answer);
// Whether that part is among what failed.
bool fails_in(const Answer& answer, std::string_view part);

}  // namespace attest
