// What inputs are told apart by: the grid in which the search keeps the best input of every cell. Few and coarse:
//   tokens        T beside the multiples of the chunk, and how many of them
//   levels        how many levels are alive after the last token (log-linear), or one sequence or several
//   exponents     from the smallest to the largest non-zero entry of q, k and v, in powers of two
//   gates         none, open, mild, strong, closed, mixed; of a decay: 1, near 1, strong, 0
//   cancellation  of the output: by how many powers of two its value is smaller than that of the absolute inputs
#pragma once
#include "fuzz/input.hpp"

namespace attest {

// "value T=2C+1 one_sequence 2^8 mild 2^2": the cell of an input whose problem was built.
std::string cell_of(const BatteryContext& context, const FuzzInput& input, const Problem& problem);

// What is known of an input before it is built: one word for each trait, always in the same order.
std::vector<std::string> traits_of(const BatteryContext& context, const FuzzInput& input);
// Every two of an input's traits as one number, the same on every machine; first that of the first trait by itself.
std::vector<std::uint64_t> pairs_of(const std::vector<std::string>& traits);

}  // namespace attest
