// The rank of a matrix over a field, by Gaussian elimination; exact.
#pragma once
#include <utility>

#include "reference/tensor/matrix.hpp"

namespace attest {

template <class S>
Index rank(Matrix<S> m) {
  Index found = 0;
  for (Index column = 0; column < m.cols() && found < m.rows(); ++column) {
    Index pivot = found;
    while (pivot < m.rows() && m(pivot, column) == S(0)) ++pivot;
    if (pivot == m.rows()) continue;
    for (Index j = 0; j < m.cols(); ++j) std::swap(m(found, j), m(pivot, j));
    const S inverse = S(1) / m(found, column);
    for (Index i = found + 1; i < m.rows(); ++i) {
      const S factor = m(i, column) * inverse;
      if (factor == S(0)) continue;
      for (Index j = column; j < m.cols(); ++j) m(i, j) -= factor * m(found, j);
    }
    ++found;
  }
  return found;
}

}  // namespace attest
