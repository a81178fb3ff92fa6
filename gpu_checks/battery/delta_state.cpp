#include "gpu_checks/battery/delta_state.hpp"

#include <cmath>
#include <limits>

#include "reference/forms/forms.hpp"
#include "reference/operators/common/delta_operator.hpp"
#include "reference/operators/common/delta_step.hpp"
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {
namespace {

double size(const Running& x) { return std::abs(x.value) + x.error; }

template <class Base>
struct AnyAssociation : Base {
  using Segment = typename Base::template Segment<Running>;

  static Segment token(const Head<Running>& head, Index t) {
    Segment token = Base::token(head, t);
    const Running alpha = head.alpha.empty() ? Running(1) : head.alpha[static_cast<std::size_t>(t)];
    const Matrix<Running> k = head.k.row(t), v = head.v.row(t);
    const Index key_dim = k.cols();
    const double a = size(alpha), b = size(head.beta[static_cast<std::size_t>(t)]),
                 n = Running::working().u * static_cast<double>(delta_step_roundings(key_dim)),
                 relative = n < 1 ? n / (1 - n) : std::numeric_limits<double>::infinity(),
                 lost = 4 * Running::working().eta * (1 + a) * (1 + b);
    Matrix<Running>& written = written_by(token);
    double others = 0;  // of the keys that meet
    for (Index l = 0; l < key_dim; ++l) others += size(k(0, l)) > 0 && a > 0 ? 1 + size(k(0, l)) : 0;
    for (Index i = 0; i < key_dim && b > 0; ++i) {
      const double key = size(k(0, i));
      if (key == 0) continue;
      for (Index l = 0; l < key_dim && a > 0; ++l) {
        const double other = size(k(0, l));
        if (other > 0)
          token.phi(i, l).widen(relative * a * ((i == l ? 1 : 0) + b * key * other) +
                                lost * (1 + key) * (1 + other));
      }
      for (Index j = 0; j < v.cols(); ++j) {
        const double value = size(v(0, j));
        written(i, j).widen(relative * b * key * value +
                            lost * (1 + key) * (others + (value > 0 ? 1 + value : 0)));
      }
    }
    return token;
  }
  // A stream makes no product of transitions, which may overflow where the state does not.
  static Segment append(Segment prefix, const Head<Running>& head, Index t) {
    prefix.phi = Base::template identity<Running>(head.dims()).phi;
    return Base::combine(prefix, token(head, t));
  }

 private:
  static Matrix<Running>& written_by(Segment& token) {
    if constexpr (requires { token.blocks; })
      return token.blocks[0].state;
    else
      return token.S_;
  }
};

}  // namespace

Solution<Running> delta_stream(const Declaration& d, Arithmetic<Running>& arithmetic,
                               const Head<Running>& head) {
  if (d.level_scales) return stream<AnyAssociation<LogLinearDelta<Gate::alpha>>>(arithmetic, head);
  if (d.gates) return stream<AnyAssociation<DeltaOperator<Gate::alpha>>>(arithmetic, head);
  return stream<AnyAssociation<DeltaOperator<Gate::none>>>(arithmetic, head);
}

}  // namespace attest
