// Softmax attention is transcendental, so that exact arithmetic decides one of its laws only: causality, by the set of
// tokens that each output is computed from. Its forms are compared in interval arithmetic elsewhere.
#include "reference/operators/softmax.hpp"

#include "proofs/dependence.hpp"
#include "proofs/ledger.hpp"
#include "proofs/segments.hpp"

namespace attest {
namespace {

// Tokens after t (from t + later on) among those that o_t was computed from.
Statement causal(Index later) {
  std::vector<Shape> shapes = all_shapes();
  return state(
      "softmax masked: o_t is computed from no token after t, direct and online", shapes,
      [](const Shape&) { return Fields{}; },
      [later]<class S>(const Shape& shape, const Inputs<S>&) {
        Head<Dependence> head;
        head.q = head.k = Matrix<Dependence>(shape.tokens, shape.key_dim),
        head.v = Matrix<Dependence>(shape.tokens, shape.value_dim);
        for (auto* rows : {&head.q, &head.k, &head.v})
          for (Index t = 0; t < shape.tokens; ++t)
            for (Index c = 0; c < rows->cols(); ++c) (*rows)(t, c) = Dependence::on(t);
        Arithmetic<Dependence> arithmetic;
        Comparisons<S> all;
        for (const auto& [name, o] : {std::pair{"direct", Softmax::direct(head).o},
                                      std::pair{"online", Softmax::stream(arithmetic, head).o}}) {
          Matrix<S> future(o.rows(), o.cols());
          for (Index t = 0; t < o.rows(); ++t)
            for (Index c = 0; c < o.cols(); ++c)
              future(t, c) = S(static_cast<int>(o(t, c).tokens >> (t + later)));
          all.push_back({std::string(name) + ", later tokens as bits against none", future,
                         zeros<S>(o.rows(), o.cols())});
        }
        return all;
      });
}

}  // namespace

void append_softmax_claims(std::vector<Claim>& list) {
  list.push_back({"law.softmax.masked.causal",
                  Softmax::declaration().source,
                  causal(1),
                  nullptr,
                  nullptr,
                  {{"token t itself", causal(0)}}});
}

}  // namespace attest
