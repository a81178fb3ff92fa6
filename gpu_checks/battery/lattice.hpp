// Lattice inputs (NUMERICS): small integers for which every product of the kernel's form, summed by absolute values,
// stays within the integers that the format storing it holds, so that every partial sum is exact in any order and a
// correct kernel of the contract must return the exact value, rounded once to its output format. Certified input by
// input, thinned until the certificate holds.
//   polynomial operators  a dozen active tokens (a quarter for the first order) at chunk edges and at random; k, q
//                         three entries +-1 of six columns drawn for the problem, v six +-1; elsewhere k = v = 0 and q two-hot
//   delta rules           beta 0 or 1, k = +-e_a +-e_b of at most sixteen columns drawn for the problem: I - beta k k^T is a
//                         signed swap and nothing grows
//   gates                 g = 0, or so low that exp(g) is 0; level scales 0, 1, -1, 2; no decay. Of every contract it is
//                         asked that exp(0) = 1; log2(e) g may be summed in the place of g
#pragma once
#include <optional>

#include "gpu_checks/battery/battery.hpp"
#include "reference/cases/case.hpp"
#include "reference/cases/random.hpp"

namespace attest {

// Empty, or why the operator has no lattice inputs.
std::string no_lattice(const BatteryContext& context);

struct LatticeCut {
  Index at = 0;           // the sequence is also run in two parts
  bool run_first = true;  // or the second part alone, from the exact state
};

// The shape, grouping, packing and options of `shape`; none when no certificate is found. At most
// most_active tokens of a sequence are active.
std::optional<Problem> draw_lattice(const BatteryContext& context, const Case& shape, Random& random,
                                    std::optional<LatticeCut> cut = {}, Index most_active = 1 << 20);

// Rows of v, and of q where they only read, multiplied by odd factors as large as the certificate allows: sums that need
// more bits than the output has.
Problem made_louder(const BatteryContext& context, Problem problem, Random& random);

// Log-gates g [B, T, H]: 0, and about once in `one_in` tokens, more often at multiples of 64, so low that exp(g) is 0; at
// most three times among the tokens whose gates the kernel may sum up. All 0 where its limits exclude such gates.
void close_gates(const BatteryContext& context, Tensor& g, std::uint64_t one_in, Random& random);

// The polynomial operators by absolute values everywhere: then every partial sum of the real input, in any order and
// chunking, is bounded by what is seen here. The delta rules as they are: they subtract, and |A||B| is taken product by
// product.
Problem by_size(const Declaration& declaration, Problem problem);
// Whether the certificate holds for this problem as it stands.
bool is_certified(const BatteryContext& context, const Problem& problem);
bool is_certified(const BatteryContext& context, const Problem& problem, LatticeCut cut);

// What a correct kernel returns on a certified problem: exact values, rounded once to the output and state formats.
Tensors lattice_outputs(const BatteryContext& context, const Problem& problem);

}  // namespace attest
