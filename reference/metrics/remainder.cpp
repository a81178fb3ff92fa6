#include "reference/metrics/remainder.hpp"

#include "reference/metrics/running_bound.hpp"

namespace attest {

Matrix<double> remainder_bound(const Operator& op, const FormError& form, const Evaluation& how) {
  Matrix<double> rest = form.declaration.beta ? to_matrix(delta_remainder(form, how.form))
                                              : running_remainder(op, form.head, how, form.units,
                                                                  form.round_output, form.threads);
  const double sizes = 1 + 2 * fp64.unit_roundoff() / form.units.step;
  for (Index i = 0; i < rest.size(); ++i) rest.data()[i] *= sizes;
  return rest;
}

}  // namespace attest
