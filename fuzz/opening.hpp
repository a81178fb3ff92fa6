// The opening of a hunt: a dozen inputs that each ask for many things at once, before the grammar draws. What they are made
// of are the places at which kernels break, not what any one kernel does: packed sequences of which one is empty, one a
// single token, one whole chunks and one a token more; heads that are shared unevenly, widths beyond a tile and short of
// one, states handed on, gates that differ by head with one closed, the same buffers with other data before, the decode
// step.
#pragma once
#include "fuzz/input.hpp"
#include "reference/cases/random.hpp"

namespace attest {

// Of the questions that the kernel can be asked, in their order.
std::vector<FuzzInput> opening_inputs(const BatteryContext& context, Random& random);

}  // namespace attest
