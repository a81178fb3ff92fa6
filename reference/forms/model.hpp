// Makes the run-time Operator of a definition: dispatches scalar, form and algebra to the definition's templates.
#pragma once
#include <stdexcept>
#include <type_traits>

#include "reference/forms/forms.hpp"
#include "reference/forms/operator.hpp"
#include "reference/operators/common/variants.hpp"

namespace attest {

template <class D, class S>
constexpr bool evaluates_over() {
  constexpr bool has_exponential = std::is_same_v<S, Interval> || std::is_floating_point_v<S> ||
                                   std::is_same_v<S, Running> || std::is_same_v<S, Var<Interval>> ||
                                   std::is_same_v<S, Var<double>>;
  return has_exponential || !requires { typename D::NeedsExponential; };
}

// The definition whose monoid the scan runs on: the operator's own unless it names another.
template <class D>
struct ScanOf {
  using type = D;
};
template <class D>
requires requires { typename D::Scan; }
struct ScanOf<D> {
  using type = typename D::Scan;
};

template <class D, class S>
Solution<S> run_form(const Head<S>& head, const Evaluation& how, Arithmetic<S>& arithmetic) {
  if (how.form == Form::stream) return stream<D>(arithmetic, head);
  if constexpr (requires { D::chunk(arithmetic, head, Index(1)); }) {
    if (how.form == Form::scan) return scan<typename ScanOf<D>::type>(arithmetic, head);
    if (how.form == Form::chunk) return D::chunk(arithmetic, head, how.chunk);
  }
  throw std::logic_error("this operator has no such form");
}

template <class Main, class... Alternatives, class S>
Solution<S> run(Variant<Main, Alternatives...>, const Head<S>& head, const Evaluation& how,
                Arithmetic<S>& arithmetic) {
  if constexpr (!evaluates_over<Main, S>()) {
    throw std::logic_error("this operator is not defined over this scalar");
  } else if constexpr (std::is_same_v<S, Magnitude> || std::is_same_v<S, Var<Magnitude>>) {
    return Main::direct(head);  // a scalar without signs: only the sum itself has a meaning
  } else {
    if (how.form == Form::direct) return Main::direct(head);
    using Runner = Solution<S> (*)(const Head<S>&, const Evaluation&, Arithmetic<S>&);
    constexpr Runner algebras[] = {&run_form<Main, S>, &run_form<Alternatives, S>...};
    return algebras[how.algebra](head, how, arithmetic);
  }
}

// Base, with evaluate() overridden for each scalar of the list.
template <class Base, class V, class List>
struct Implement;
template <class Base, class V>
struct Implement<Base, V, Scalars<>> : Base {};
template <class Base, class V, class S, class... Rest>
struct Implement<Base, V, Scalars<S, Rest...>> : Implement<Base, V, Scalars<Rest...>> {
  using Base::evaluate;
  Solution<S> evaluate(const Head<S>& head, const Evaluation& how, Arithmetic<S>& arithmetic) const override {
    return run(V(), head, how, arithmetic);
  }
};

template <class V>
class Model;
template <class Main, class... Alternatives>
class Model<Variant<Main, Alternatives...>> final
    : public Implement<Operator, Variant<Main, Alternatives...>, AllScalars> {
 public:
  const Declaration& declaration() const override {
    static const Declaration stated = Main::declaration();
    return stated;
  }
};

template <class... V>
void append_models(Variants<V...>, std::vector<const Operator*>& list) {
  static const std::tuple<Model<V>...> models;
  (list.push_back(&std::get<Model<V>>(models)), ...);
}

}  // namespace attest
