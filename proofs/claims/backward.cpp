// The reverse scan of arXiv 2510.27258 (end of sections 4, 6 and 7): cotangents of the state run backwards through the
// adjoint of (+), (A B)^T = A^T B^T, by an exclusive Blelloch scan over the reversed tokens. Adjoint of a segment B acting
// on the cotangents at its end, hats for cotangents:
//   hla2   S^ <- rho S^, C^ <- rho C^ + rho S_B^T G^, G^ <- rho^2 G^ (printed decayed: rho G^)
//   ahla   P^ <- rho P^ + rho R_B^T E^, E^ <- rho E^
//   hla3   S^ <- rho S^ + F^ (R_B + X_B P_A)^T, P^ <- rho P^ + (U_B + S_A X_B)^T F^, F^ <- rho^3 F^, A the prefix
// Read-outs and single tokens are differentiated locally; the result is compared with the tape of the serial stream.
#include "proofs/claims/monoid_claims.hpp"
#include "proofs/printed/hla2.hpp"
#include "reference/numeric/autodiff.hpp"
#include "reference/operators/ahla.hpp"
#include "reference/operators/hla2.hpp"
#include "reference/operators/hla3.hpp"

namespace attest {
namespace {

template <class S>
using Cotangents = std::vector<Matrix<S>>;  // one matrix per moment, in the order of Segment::visit

// A run of tokens as an affine map on cotangents: the adjoint's own matrices, and what its read-outs add.
template <class S>
struct AdjointElement {
  S rho;
  std::vector<Matrix<S>> map;
  Cotangents<S> added;
  template <class F>
  void visit(F&&) {}
};

template <class S>
Matrix<S> transposed(const Matrix<S>& m) {
  return m.transpose();
}

// Each rule: the forward definition, the matrices of a token, how two runs combine (b earlier, c later) and the pull-back.
template <bool printed_rule>
struct Hla2Adjoint {
  using Forward = std::conditional_t<printed_rule, Hla2Printed, Hla2Masked>;
  template <class S, class Segment>
  static std::vector<Matrix<S>> token(const Head<S>& in, Index t, const Segment&) {
    return {outer(in.k.row(t), in.k.row(t))};
  }
  template <class S>
  static std::vector<Matrix<S>> compose(const AdjointElement<S>& b, const AdjointElement<S>& c) {
    return {c.rho * b.map[0] + c.map[0]};
  }
  template <class S>
  static Cotangents<S> pull(const AdjointElement<S>& b, const Cotangents<S>& x) {
    return {b.rho * x[0], b.rho * x[1] + b.rho * product(transposed(b.map[0]), x[2]),
            (printed_rule ? b.rho : S(b.rho * b.rho)) * x[2]};
  }
};
template <bool printed_rule>
struct AhlaAdjoint {
  using Forward = Ahla;
  template <class S, class Segment>
  static std::vector<Matrix<S>> token(const Head<S>& in, Index t, const Segment&) {
    return {outer(in.k.row(t), in.q.row(t))};
  }
  template <class S>
  static std::vector<Matrix<S>> compose(const AdjointElement<S>& b, const AdjointElement<S>& c) {
    return {(printed_rule ? c.rho : S(1)) * b.map[0] + c.map[0]};
  }
  template <class S>
  static Cotangents<S> pull(const AdjointElement<S>& b, const Cotangents<S>& x) {
    return {b.rho * x[0] + b.rho * product(transposed(b.map[0]), x[1]), b.rho * x[1]};
  }
};
struct Hla3Adjoint {
  using Forward = Hla3Masked;
  template <class S, class Segment>
  static std::vector<Matrix<S>> token(const Head<S>& in, Index t, const Segment& before) {
    const auto own = Hla3Masked::token(in, t);
    return {own.R + product(own.X, before.P), own.U + product(before.SK, own.X)};
  }
  template <class S>
  static std::vector<Matrix<S>> compose(const AdjointElement<S>& b, const AdjointElement<S>& c) {
    const S cube = c.rho * c.rho * c.rho;
    return {cube * b.map[0] + b.rho * c.map[0], cube * b.map[1] + b.rho * c.map[1]};
  }
  template <class S>
  static Cotangents<S> pull(const AdjointElement<S>& b, const Cotangents<S>& x) {
    const S& r = b.rho;
    return {r * x[0] + product(x[2], transposed(b.map[0])), r * x[1] + product(transposed(b.map[1]), x[2]),
            (r * r * r) * x[2]};
  }
};
// Broken twin: nothing flows from the last moment into the others.
template <class Rule>
struct Uncoupled : Rule {
  template <class S>
  static Cotangents<S> pull(AdjointElement<S> b, const Cotangents<S>& x) {
    for (auto& matrix : b.map) matrix *= S(0);
    return Rule::pull(b, x);
  }
};

template <class S>
Cotangents<S> sum(Cotangents<S> a, const Cotangents<S>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The monoid on reversed tokens: `a` is later in time than `b`.
template <class Rule>
struct ReverseMonoid {
  template <class S>
  using Segment = AdjointElement<S>;
  template <class S>
  static AdjointElement<S> identity(Dims dims) {
    auto segment = Rule::Forward::template identity<S>(dims);
    AdjointElement<S> unit{S(1), {}, {}};
    segment.visit([&](const char*, Matrix<S>& moment) {
      unit.added.push_back(zeros<S>(moment.rows(), moment.cols()));
    });
    return unit;  // without matrices: the empty run
  }
  template <class S>
  static AdjointElement<S> combine(const AdjointElement<S>& a, const AdjointElement<S>& b) {
    if (a.map.empty()) return b;
    if (b.map.empty()) return a;
    return {a.rho * b.rho, Rule::compose(b, a), sum(Rule::pull(b, a.added), b.added)};
  }
};

template <class S>
Matrix<Var<S>> variables(const Matrix<S>& m) {
  Matrix<Var<S>> result(m.rows(), m.cols());
  for (Index i = 0; i < m.size(); ++i) result.data()[i] = Var<S>::input(m.data()[i]);
  return result;
}
template <class S>
Matrix<Var<S>> constants(const Matrix<S>& m) {
  Matrix<Var<S>> result(m.rows(), m.cols());
  for (Index i = 0; i < m.size(); ++i) result.data()[i] = Var<S>(m.data()[i]);
  return result;
}
template <class S>
Var<S> pairing(const Matrix<S>& weights, const Matrix<Var<S>>& values) {
  Var<S> total(0);
  for (Index i = 0; i < weights.size(); ++i) total += Var<S>(weights.data()[i]) * values.data()[i];
  return total;
}
template <class S>
std::vector<S> adjoints_of(const Tape<S>& tape, const Var<S>& loss) {
  std::vector<S> bar(tape.size(), S(0));
  if (loss.node >= 0) bar[static_cast<std::size_t>(loss.node)] = S(1);
  return tape.adjoints(std::move(bar));
}
template <class S>
Matrix<S> gathered(const std::vector<S>& bar, const Matrix<Var<S>>& inputs) {
  Matrix<S> result(inputs.rows(), inputs.cols());
  for (Index i = 0; i < inputs.size(); ++i)
    result.data()[i] = bar[static_cast<std::size_t>(inputs.data()[i].node)];
  return result;
}

template <class S>
struct Gradient {
  Matrix<S> q, k, v, decay;
};
template <class S>
Gradient<S> no_gradient(const Head<S>& in) {
  return {zeros<S>(in.tokens(), in.q.cols()), zeros<S>(in.tokens(), in.k.cols()),
          zeros<S>(in.tokens(), in.v.cols()), zeros<S>(1, 1)};
}

// d<weights, o>/d(q, k, v, gamma) by the tape of the serial stream.
template <class D, class S>
Gradient<S> serial_gradient(const Head<S>& in, const Matrix<S>& weights) {
  Tape<S> tape;
  Head<Var<S>> head;
  head.q = variables(in.q), head.k = variables(in.k), head.v = variables(in.v),
  head.decay = Var<S>::input(in.decay);
  Arithmetic<Var<S>> exact;
  const Var<S> loss = pairing(weights, stream<D>(exact, head).o);
  const auto bar = adjoints_of(tape, loss);
  return {gathered(bar, head.q), gathered(bar, head.k), gathered(bar, head.v),
          as_matrix(bar[static_cast<std::size_t>(head.decay.node)])};
}

// d<weight, read(X_t)>/dX_t, the local cotangent of a read-out.
template <class D, class S>
Cotangents<S> read_cotangents(const typename D::template Segment<S>& at, const Head<S>& in, Index t,
                              const Matrix<S>& weights) {
  Tape<S> tape;
  Head<Var<S>> head;
  head.q = constants(Matrix<S>(in.q.row(t))), head.k = head.q, head.v = Matrix<Var<S>>(1, in.v.cols());
  auto segment = D::template identity<Var<S>>(in.dims());
  std::vector<Matrix<S>> moments;
  auto copy = at;
  copy.visit([&](const char*, Matrix<S>& moment) { moments.push_back(moment); });
  std::vector<Matrix<Var<S>>> inputs;
  std::size_t next = 0;
  segment.visit([&](const char*, Matrix<Var<S>>& moment) {
    moment = variables(moments[next++]);
    inputs.push_back(moment);
  });
  const auto bar =
      adjoints_of(tape, pairing(Matrix<S>(weights.row(t)), Matrix<Var<S>>(D::read(segment, head, 0))));
  Cotangents<S> result;
  for (const auto& input : inputs) result.push_back(gathered(bar, input));
  return result;
}

// The gradient of token t from the cotangents that come back to X_t and from its own read-out, X_{t-1} fixed.
template <class D, class S>
void add_token_gradient(Gradient<S>& gradient, const typename D::template Segment<S>& before,
                        const Head<S>& in, Index t, const Cotangents<S>& coming, const Matrix<S>& weights) {
  Tape<S> tape;
  Head<Var<S>> head;
  head.q = variables(Matrix<S>(in.q.row(t))), head.k = variables(Matrix<S>(in.k.row(t))),
  head.v = variables(Matrix<S>(in.v.row(t)));
  head.decay = Var<S>::input(in.decay);
  auto prefix = D::template identity<Var<S>>(in.dims());
  auto copy = before;
  std::vector<Matrix<S>> moments;
  copy.visit([&](const char*, Matrix<S>& moment) { moments.push_back(moment); });
  std::size_t next = 0;
  prefix.visit([&](const char*, Matrix<Var<S>>& moment) { moment = constants(moments[next++]); });
  auto at = D::combine(prefix, D::token(head, 0));
  Var<S> loss = pairing(Matrix<S>(weights.row(t)), Matrix<Var<S>>(D::read(at, head, 0)));
  next = 0;
  at.visit([&](const char*, Matrix<Var<S>>& moment) { loss += pairing(coming[next++], moment); });
  const auto bar = adjoints_of(tape, loss);
  gradient.q.row(t) = gathered(bar, head.q), gradient.k.row(t) = gathered(bar, head.k),
  gradient.v.row(t) = gathered(bar, head.v);
  gradient.decay(0, 0) += bar[static_cast<std::size_t>(head.decay.node)];
}

template <class Rule, class S>
Gradient<S> scanned_gradient(const Head<S>& in, const Matrix<S>& weights) {
  using D = typename Rule::Forward;
  const Index n = in.tokens();
  std::vector<typename D::template Segment<S>> prefixes = {D::template identity<S>(in.dims())};
  for (Index t = 0; t < n; ++t) prefixes.push_back(D::combine(prefixes.back(), D::token(in, t)));
  std::vector<AdjointElement<S>> reversed;
  for (Index t = n; t-- > 0;) {
    AdjointElement<S> element{in.decay, Rule::token(in, t, prefixes[static_cast<std::size_t>(t)]), {}};
    element.added =
        Rule::pull(element, read_cotangents<D>(prefixes[static_cast<std::size_t>(t) + 1], in, t, weights));
    reversed.push_back(element);
  }
  Arithmetic<S> exact;
  const auto coming = exclusive_scan<ReverseMonoid<Rule>>(exact, reversed, in.dims());
  Gradient<S> gradient = no_gradient(in);
  for (Index t = 0; t < n; ++t)
    add_token_gradient<D>(gradient, prefixes[static_cast<std::size_t>(t)], in, t,
                          coming[static_cast<std::size_t>(n - 1 - t)].added, weights);
  return gradient;
}

template <class Rule>
Statement backward(const std::string& text, bool decayed) {
  auto fields = [decayed](const Shape& shape) {
    Fields all = printed::plain_fields(decayed)(shape);
    all.push_back({"do", shape.tokens, shape.value_dim});
    return all;
  };
  return state(text, all_shapes(), fields, [decayed]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    const Head<S> in = inputs.head(shape);
    const auto scanned = scanned_gradient<Rule>(in, inputs["do"]);
    const auto serial = serial_gradient<typename Rule::Forward>(in, inputs["do"]);
    Comparisons<S> all = {{"dq, adjoint scan against serial", scanned.q, serial.q},
                          {"dk, adjoint scan against serial", scanned.k, serial.k},
                          {"dv, adjoint scan against serial", scanned.v, serial.v}};
    if (decayed) all.push_back({"dgamma, adjoint scan against serial", scanned.decay, serial.decay});
    return all;
  });
}
}  // namespace

void append_backward_claims(std::vector<Claim>& list) {
  const std::string paper = "arXiv 2510.27258, the reverse scan of section ";
  list.push_back(
      {"hla.backward",
       paper + "4",
       backward<Hla2Adjoint<false>>("undecayed masked HLA2: adjoint scan = gradient of the stream", false),
       nullptr,
       nullptr,
       {{"S_B^T G^ dropped", backward<Uncoupled<Hla2Adjoint<false>>>("", false)}}});
  list.push_back({"hla.backward.decay",
                  paper + "4",
                  backward<Hla2Adjoint<true>>("decayed masked HLA2: the scan with the adjoint of the printed "
                                              "(+) = gradient of the printed stream",
                                              true),
                  also(backward<Hla2Adjoint<false>>(
                      "with the adjoint of the corrected (+) = gradient of the corrected stream", true)),
                  nullptr,
                  {{"S_B^T G^ dropped", backward<Uncoupled<Hla2Adjoint<false>>>("", true)}}});
  list.push_back({"ahla.backward",
                  paper + "6",
                  backward<AhlaAdjoint<true>>("undecayed AHLA: adjoint scan = gradient of the stream", false),
                  nullptr,
                  nullptr,
                  {{"R_B^T E^ dropped", backward<Uncoupled<AhlaAdjoint<true>>>("", false)}}});
  list.push_back(
      {"ahla.backward.decay",
       paper + "6",
       backward<AhlaAdjoint<true>>(
           "decayed AHLA: the scan with the adjoint of the printed (+), R decayed, = gradient of the stream",
           true),
       also(backward<AhlaAdjoint<false>>("with R_AB = R_A + R_B it is", true)),
       nullptr,
       {{"R_B^T E^ dropped", backward<Uncoupled<AhlaAdjoint<false>>>("", true)}}});
  list.push_back({"hla3.backward",
                  paper + "7, for the masked operator",
                  backward<Hla3Adjoint>("decayed masked third order: adjoint scan of the corrected segment, "
                                        "linearised at its prefixes, = gradient of the stream",
                                        true),
                  nullptr,
                  nullptr,
                  {{"F^ not coupled to S and P", backward<Uncoupled<Hla3Adjoint>>("", true)}}});
}

}  // namespace attest
