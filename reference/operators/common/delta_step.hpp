// What a step S' = a S - a b k (k^T S) + b k v^T of a delta rule may lose, however it is associated: as (a (I - b k k^T)) S +
// (b k) v^T, as a S + k (b (v - (a S)^T k))^T, with the gate folded, b put on k and v before, ... Such an evaluation is a
// tree of products and sums; multiplied out, every monomial of an entry (a S_ij, a b k_i k_l S_lj, b k_i v_j) comes with a
// factor 1 + theta, |theta| <= gamma_n, for the n roundings on its way (Higham, Accuracy and Stability, 2nd ed., lemma 3.1).
// At most: four products, d - 1 sums over l, one with v_j or a S_ij inside, one outside; hence, entry by entry,
//   |error| <= gamma_(d+5) (|a| (|S| + |b| |k| |k|^T |S|) + |b| |k| |v|^T).
// q^T S' as (q^T S') or as (a (q - b (q.k) k))^T S: d products and sums more; a level's weight and n blocks add 1 + n.
// Underflow: each product loses half an eta times the factors still to come, at most eta (1 + |f|) over all of them.
#pragma once
#include "reference/tensor/matrix.hpp"

namespace attest {

constexpr Index delta_step_roundings(Index key_dim) { return key_dim + 5; }
constexpr Index delta_read_roundings(Index key_dim, Index blocks) { return 2 * key_dim + 5 + blocks; }

}  // namespace attest
