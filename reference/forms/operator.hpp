// An operator at run time: one object per operator and variant, evaluated over any of the scalars below by any of
// its forms. registry.hpp lists them; model.hpp makes them from the definitions in reference/operators.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/numeric/autodiff.hpp"
#include "reference/numeric/interval.hpp"
#include "reference/numeric/magnitude.hpp"
#include "reference/numeric/prime_field.hpp"
#include "reference/numeric/rational.hpp"
#include "reference/numeric/running.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/arithmetic.hpp"

namespace attest {

struct Evaluation {
  Form form = Form::direct;
  Index chunk = 4;  // width, for Form::chunk; a power of two for the log-linear operators
  int algebra = 0;  // index into Declaration::algebras, for stream, scan and chunk
};

std::string_view form_name(Form form);
std::optional<Form> form_named(std::string_view name);

template <class S>
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  // The unnormalised operator on one head. The form must be one of the declaration's.
  virtual Solution<S> evaluate(const Head<S>& head, const Evaluation& how,
                               Arithmetic<S>& arithmetic) const = 0;
  Solution<S> evaluate(const Head<S>& head, const Evaluation& how = {}) const {
    Arithmetic<S> exact;
    return evaluate(head, how, exact);
  }
};

template <class... S>
struct Scalars {};
// float and double are for kernels under test and plain evaluation, Running for their bounds, the others for truth.
using AllScalars =
    Scalars<Rational, PrimeField, Interval, Magnitude, Running, double, float, Dual<PrimeField>,
            Var<Rational>, Var<PrimeField>, Var<Interval>, Var<double>, Var<Magnitude>>;

template <class List>
struct Evaluators;
template <class... S>
struct Evaluators<Scalars<S...>> : Evaluator<S>... {
  using Evaluator<S>::evaluate...;
};

class Operator : public Evaluators<AllScalars> {
 public:
  virtual const Declaration& declaration() const = 0;
};

// Every operator and variant, by name.
const std::vector<const Operator*>& all_operators();
const Operator* find_operator(std::string_view name, std::string_view variant = "masked");

}  // namespace attest
