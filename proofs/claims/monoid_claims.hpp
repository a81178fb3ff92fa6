// What the claims about a segment monoid share: its two laws as statements, and broken twins for their controls.
#pragma once
#include "proofs/ledger.hpp"
#include "proofs/printed/hla2.hpp"
#include "proofs/segments.hpp"

namespace attest {

// A statement beside another one of the same claim.
inline std::shared_ptr<const Statement> also(Statement statement) {
  return std::make_shared<const Statement>(std::move(statement));
}

template <class M>
Statement associative(const std::string& text, bool decayed) {
  return state(
      text, all_shapes(), printed::plain_fields(decayed),
      []<class S>(const Shape& shape, const Inputs<S>& in) { return associativity<M, S>(shape, in); });
}

template <class M>
Statement has_identity(const std::string& text, bool decayed) {
  return state(
      text, all_shapes(), printed::plain_fields(decayed),
      []<class S>(const Shape& shape, const Inputs<S>& in) { return identity_law<M, S>(shape, in); });
}

// Broken twin: the right run is taken twice.
template <class M>
struct RightTwice : M {
  template <class T>
  static T combine(const T& a, const T& b) {
    return M::combine(M::combine(a, b), b);
  }
};

// Broken twin: every combination swaps the two runs.
template <class M>
struct Reversed : M {
  template <class T>
  static T combine(const T& a, const T& b) {
    return M::combine(M::combine(b, a), b);
  }
};

}  // namespace attest
