// One chunk of a delta rule at its actual values (delta_operator.hpp), shared by the error models of the
// plain and the log-linear chunk forms: N, its inverse, T = N^-1 diag(beta), F = diag(g) K, W = T F, P, K',
// and what plain arithmetic may get wrong in each, elementwise.
#pragma once
#include "reference/operators/common/error_forms.hpp"

namespace attest {

struct DeltaStages {
  DeltaStages(const FormError& form, Index first, Index size);
  Index first, size;
  Array decay, gate_error;                      // (size + 1, size + 1)
  Array q, k, v;                                // (size, ...)
  Array scores, n, inverse, ut;                 // (size, size): P, N, N^-1, T
  Array start_keys, w, keys;                    // (size, key_dim): F, W, K'
  Array scores_error, n_error, ut_error;        // of P, N, and of T from substitution and beta
  Array start_keys_error, w_error, keys_error;  // of F, W, K'
  double through() const { return decay(size, 0); }
  double through_error(const Units& units) const {
    return gate_error(size, 0) + (through() == 1 ? 0 : units.step);
  }
  Array faded_queries() const;  // diag(g) Q
  Array faded_queries_error(const Units& units) const;
  Index last() const { return first + size; }
};

// What the range and gate checks of the stages of a chunk say.
void check_stages(const DeltaStages& c, ErrorSum& sum);

}  // namespace attest
