// A first-order operator with a scalar transition: its recurrence and its chunk form, one Lin.
#pragma once
#include "reference/operators/common/chunk_linear.hpp"
#include "reference/operators/common/linear_recurrence.hpp"
#include "reference/operators/common/variants.hpp"

namespace attest {

template <Gate gate>
struct ScalarOperator : Recurrence<ScalarTransition<gate>> {
  template <class S>
  static Solution<S> chunk(Arithmetic<S>& arithmetic, const Head<S>& head, Index width) {
    const Matrix<S> initial = initial_moment(head, "S", head.q.cols(), head.v.cols());
    auto lin = chunk_linear(arithmetic, "o", head.q, head.k, head.v, ScalarTransition<gate>::gates(head),
                            initial, width);
    Solution<S> result{arithmetic.output(lin.o), {}};
    result.final.moments["S"] = {lin.state};
    return result;
  }
};

}  // namespace attest
