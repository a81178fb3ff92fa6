// First-order recurrences S_t = Phi_t S_{t-1} + beta_t k_t v_t^T, o_t = q_t^T S_t, over two kinds of transition:
// a scalar (ScalarTransition: 1, gamma or alpha_t) and alpha_t (I - beta_t k_t k_t^T) (DeltaTransition).
// Direct: o_t = sum_{s<=t} q_t^T [Phi_t ... Phi_{s+1}] beta_s k_s v_s^T + q_t^T [Phi_t ... Phi_0] S_initial.
// Segment (Phi, S): (Phi_B Phi_A, Phi_B S_A + S_B). Shapes: q, k (tokens, key_dim), v (tokens, value_dim).
#pragma once
#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/arithmetic.hpp"

namespace attest {

enum class Gate { none, decay, alpha };

template <Gate gate>
struct ScalarTransition {
  template <class S>
  using Phi = S;
  template <class S>
  static S identity(Dims) {
    return S(1);
  }
  template <class S>
  static S transition(const Head<S>& head, Index t) {
    if constexpr (gate == Gate::none)
      return S(1);
    else if constexpr (gate == Gate::decay)
      return head.decay;
    else
      return head.alpha[t];
  }
  template <class S>
  static Matrix<S> injection(const Head<S>& head, Index t) {
    return outer(head.k.row(t), head.v.row(t));
  }
  template <class S>
  static Matrix<S> apply(const S& phi, const Matrix<S>& state) {
    return phi * state;
  }
  template <class S>
  static S compose(const S& later, const S& earlier) {
    return later * earlier;
  }
  // y^T Phi_t
  template <class S>
  static Matrix<S> pull_back(const Matrix<S>& y, const Head<S>& head, Index t) {
    return transition(head, t) * y;
  }
  template <class S>
  static S injected_weight(const Matrix<S>& y, const Head<S>& head, Index s) {
    return dot(y, head.k.row(s));
  }
  template <class S>
  static Gates<S> gates(const Head<S>& head) {
    if constexpr (gate == Gate::none)
      return {};
    else if constexpr (gate == Gate::decay)
      return {nullptr, nullptr, head.decay, 1};
    else
      return {&head.alpha, head.log_gate.empty() ? nullptr : &head.log_gate, S(1), 1};
  }
};

template <Gate gate>
struct DeltaTransition {
  template <class S>
  using Phi = Matrix<S>;  // (key_dim, key_dim)
  template <class S>
  static Matrix<S> identity(Dims dims) {
    return identity_matrix<S>(dims.key_dim);
  }
  template <class S>
  static Matrix<S> transition(const Head<S>& head, Index t) {
    const S alpha = ScalarTransition<gate>::transition(head, t);
    Matrix<S> phi = alpha * identity_matrix<S>(head.k.cols());
    return phi - (alpha * head.beta[t]) * outer(head.k.row(t), head.k.row(t));
  }
  template <class S>
  static Matrix<S> injection(const Head<S>& head, Index t) {
    return head.beta[t] * outer(head.k.row(t), head.v.row(t));
  }
  template <class S>
  static Matrix<S> apply(const Matrix<S>& phi, const Matrix<S>& state) {
    return product(phi, state);
  }
  template <class S>
  static Matrix<S> compose(const Matrix<S>& later, const Matrix<S>& earlier) {
    return product(later, earlier);
  }
  template <class S>
  static Matrix<S> pull_back(const Matrix<S>& y, const Head<S>& head, Index t) {
    const S along = head.beta[t] * dot(y, head.k.row(t));
    return ScalarTransition<gate>::transition(head, t) * (y - along * head.k.row(t));
  }
  template <class S>
  static S injected_weight(const Matrix<S>& y, const Head<S>& head, Index s) {
    return dot(y, head.k.row(s)) * head.beta[s];
  }
};

// The segment monoid shared by all first-order recurrences.
template <class Transition>
struct Recurrence {
  static constexpr bool reads_before = false;

  template <class S>
  struct Segment {
    typename Transition::template Phi<S> phi;
    Matrix<S> S_;  // (key_dim, value_dim)
    template <class F>
    void visit(F&& f) {
      f("S", S_);
    }
  };
  template <class S>
  static Segment<S> identity(Dims dims) {
    return {Transition::template identity<S>(dims), zeros<S>(dims.key_dim, dims.value_dim)};
  }
  template <class S>
  static Segment<S> token(const Head<S>& head, Index t) {
    return {Transition::transition(head, t), Transition::injection(head, t)};
  }
  template <class S>
  static Segment<S> combine(const Segment<S>& a, const Segment<S>& b) {
    return {Transition::compose(b.phi, a.phi), Transition::apply(b.phi, a.S_) + b.S_};
  }
  template <class S>
  static Matrix<S> read(const Segment<S>& prefix, const Head<S>& head, Index t) {
    return product(head.q.row(t), prefix.S_);
  }

  template <class S>
  static Solution<S> direct(const Head<S>& head) {
    const auto [key_dim, value_dim] = head.dims();
    const Matrix<S> initial = initial_moment(head, "S", key_dim, value_dim);
    Solution<S> result{zeros<S>(head.tokens(), value_dim), {}};
    for (Index t = 0; t < head.tokens(); ++t) result.o.row(t) = row(head, head.q.row(t), t, initial);
    Matrix<S> carried(key_dim, value_dim);
    const Matrix<S> unit = identity_matrix<S>(key_dim);
    for (Index a = 0; a < key_dim; ++a) carried.row(a) = row(head, unit.row(a), head.tokens() - 1, initial);
    result.final.moments["S"] = {carried};
    return result;
  }

 private:
  // y^T S_t as a sum over the tokens, y pulled back through the transitions one by one.
  template <class S>
  static Matrix<S> row(const Head<S>& head, std::type_identity_t<Matrix<S>> y, Index t,
                       const Matrix<S>& initial) {
    Matrix<S> sum = zeros<S>(1, head.v.cols());
    for (Index s = t; s >= 0; --s) {
      sum += Transition::injected_weight(y, head, s) * head.v.row(s);
      y = Transition::pull_back(y, head, s);
    }
    return sum + product(y, initial);
  }
};

}  // namespace attest
