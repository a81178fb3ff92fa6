// A question to a kernel, judged by the code of `attest check` (gpu_checks/battery/call.hpp), the deterministic bound alone:
//   value         o by the bound of the contract; the final states as well on small problems
//   lattice       certified integers: o and the final states, bit by bit; loud_lattice: sums as long as the formats hold
//   again         other data in the same buffers, A, a longer B, A: the same bits, and the value (of kernels declared
//                 deterministic); lattice_again: A once more, and every answer to A exact; new_data: other data, A: the value
//   separate      every sequence or batch entry in a call of its own: the same bits where the kernel is batch invariant, else
//                 within both bounds; and the value. strided: tensors apart in memory, the value
//   containment   one NaN or infinity among the inputs: what depends on it is not finite
//   gradient      certified integers with cotangents, twice: gradients bit by bit
//   width         the battery's check, on inputs that it draws from the seed
#pragma once
#include "fuzz/input.hpp"
#include "gpu_checks/battery/findings.hpp"

namespace attest {

struct Answer {
  CheckOutcome outcome;
  double reached = 0;            // largest error/bound of a decided input
  std::optional<Problem> asked;  // none: nothing was asked
  bool given_up = false;         // the kernel's answer was not waited for (child.hpp): no verdict

  bool failed() const { return outcome.verdict == Verdict::fail; }
  bool decided() const { return failed() || outcome.verdict == Verdict::pass; }
};

// Of `again`, `lattice_again` and `new_data` every call is judged, not only those about the input: of one seed in 64.
std::uint64_t judged_in_full(std::uint64_t seed);  // the nearest below
bool judges_all_calls(const FuzzInput& input);
// Empty, or why the question is not for this kernel.
std::string cannot_ask(const BatteryContext& context, Question question);
Answer ask(const BatteryContext& context, const FuzzInput& input);

// What failed: "o", which goes first, "final states", "gradients", or "call" for what is no matter of single elements.
std::string failed_part(const Answer& answer);
// Whether that part is among what failed.
bool fails_in(const Answer& answer, std::string_view part);

}  // namespace attest
