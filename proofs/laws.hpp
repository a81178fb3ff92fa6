// The laws that every operator and variant obeys, made from its definition and declaration alone:
// associativity, identity, stream = direct, scan = direct, chunk = direct, split, causality, homogeneity, gradient =
// exact directional derivative, adjoint identity. Each with a broken twin as its control.
// What needs the definition's templates is in DefinitionLaws; everything else runs on the run-time Operator.
#pragma once
#include "proofs/segments.hpp"
#include "reference/forms/model.hpp"

namespace attest {

// A law about segments, over the scalars of a statement.
struct SegmentSides {
  Sides<PrimeField> over_field;
  Sides<Rational> over_rational;
  Sides<Degree> over_degree;
};
struct DefinitionLaws {
  Declaration declaration;
  int algebras = 1;
  std::function<Solution<Degree>(const Head<Degree>&, const Evaluation&)> degree;
  SegmentSides associative, associative_broken, identity, identity_broken;
};

// The laws of one variant.
void append_laws(const DefinitionLaws& definition, std::vector<Claim>& list);

template <class F>
SegmentSides segment_sides(F sides) {
  return {sides, sides, sides};
}

// Cutting the sequence at b and starting the right part one token late loses token b.
template <class D, class S>
Comparisons<S> associativity_off_by_one(const Shape& shape, const Inputs<S>& inputs) {
  const Head<S> head = inputs.head(shape);
  const auto tokens = token_segments<D, S>(head);
  const Dims dims = head.dims();
  Comparisons<S> list;
  for (Index b = 1; b < head.tokens(); ++b)
    compare_segments<D, S>(
        list, "right part one token late", left_fold<D, S>(tokens, 0, head.tokens(), dims),
        D::combine(left_fold<D, S>(tokens, 0, b, dims), left_fold<D, S>(tokens, b + 1, head.tokens(), dims)));
  return list;
}
template <class D, class S>
Comparisons<S> token_for_identity(const Shape& shape, const Inputs<S>& inputs) {
  const Head<S> head = inputs.head(shape);
  Comparisons<S> list;
  if (head.tokens() > 1)
    compare_segments<D, S>(list, "A x against A", D::combine(D::token(head, 0), D::token(head, 1)),
                           D::token(head, 0));
  return list;
}

template <class Main, class... Alternatives>
void append_variant_laws(Variant<Main, Alternatives...>, std::vector<Claim>& list) {
  if constexpr (evaluates_over<Main, PrimeField>()) {
    using Scan = typename ScanOf<Main>::type;
    DefinitionLaws laws{
        Main::declaration(), 1 + static_cast<int>(sizeof...(Alternatives)), {}, {}, {}, {}, {}};
    laws.degree = [](const Head<Degree>& head, const Evaluation& how) {
      Arithmetic<Degree> exact;
      return run(Variant<Main, Alternatives...>(), head, how, exact);
    };
    laws.associative = segment_sides([]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      return associativity<Scan, S>(shape, inputs);
    });
    laws.associative_broken = segment_sides([]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      return associativity_off_by_one<Scan, S>(shape, inputs);
    });
    laws.identity = segment_sides([]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      return identity_law<Scan, S>(shape, inputs);
    });
    laws.identity_broken = segment_sides([]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      return token_for_identity<Scan, S>(shape, inputs);
    });
    append_laws(laws, list);
  }
}
template <class... V>
void append_laws(Variants<V...>, std::vector<Claim>& list) {
  (append_variant_laws(V(), list), ...);
}

}  // namespace attest
