// The laws that every operator and variant obeys, made from its definition and declaration alone:
// associativity, identity, stream = direct, scan = direct, chunk = direct, split, causality, homogeneity, gradient =
// exact directional derivative, adjoint identity. Each with a broken twin as its control.
#pragma once
#include "proofs/segments.hpp"
#include "reference/forms/model.hpp"

namespace attest {

template <class V>
struct LawDefinitions;
template <class M, class... A>
struct LawDefinitions<Variant<M, A...>> {
  using Main = M;
  using Scan = typename ScanOf<M>::type;
  static constexpr int algebras = 1 + sizeof...(A);
};

// The fields that an operator takes, with an initial state; decay is left out (1) where `undecayed`.
Fields operator_fields(const Declaration& declaration, const Shape& shape, bool undecayed = false);
std::vector<Shape> operator_shapes(const Declaration& declaration);
std::string law_id(const Declaration& declaration, const std::string& law);
// Power-of-two widths for the log-linear operators, every width otherwise, up to one that exceeds the sequence.
std::vector<Index> chunk_widths(const Declaration& declaration, Index tokens);

template <class S>
void compare_states(Comparisons<S>& list, const std::string& what, const State<S>& a, const State<S>& b) {
  for (const auto& [name, levels] : a.moments)
    for (std::size_t level = 0; level < levels.size(); ++level) {
      const auto found = b.moments.find(name);
      const bool there = found != b.moments.end() && level < found->second.size();
      list.push_back({what + ", final " + name + (levels.size() > 1 ? "." + std::to_string(level) : ""), levels[level],
                      there ? found->second[level] : Matrix<S>()});
    }
}
template <class S>
void compare_solutions(Comparisons<S>& list, const std::string& what, const Solution<S>& a, const Solution<S>& b) {
  list.push_back({what + ", o", a.o, b.o});
  compare_states(list, what, a.final, b.final);
}

// Breaks a form where a kernel could: in the state that it carries.
enum class Break { none, carry };
template <class S>
class BrokenArithmetic : public Arithmetic<S> {
 public:
  explicit BrokenArithmetic(Break what) : what_(what) {}
  Matrix<S> carry(std::string_view, Matrix<S> state) override {
    if (what_ == Break::carry) state *= S(2);
    return state;
  }

 private:
  Break what_;
};

// Rows [first, last) of a head, with another initial state.
template <class S>
Head<S> part(const Head<S>& head, Index first, Index last, const State<S>& initial) {
  Head<S> result = head;
  auto rows = [&](const Matrix<S>& m) { return m.rows() == 0 ? m : m.middle_rows(first, last - first); };
  auto entries = [&](const std::vector<S>& v) {
    return v.empty() ? v : std::vector<S>(v.begin() + first, v.begin() + last);
  };
  result.q = rows(head.q), result.k = rows(head.k), result.v = rows(head.v);
  result.level_scales = rows(head.level_scales);
  result.alpha = entries(head.alpha), result.beta = entries(head.beta);
  result.initial = initial;
  return result;
}

template <class V>
class Laws {
  using Main = typename LawDefinitions<V>::Main;
  using Scan = typename LawDefinitions<V>::Scan;
  static constexpr int algebras = LawDefinitions<V>::algebras;

 public:
  static void append(std::vector<Claim>& list) {
    const Declaration d = Main::declaration();
    add(list, "associative", "(A B) C = A (B C) for the segments of all runs of tokens, and all bracketings agree",
        undecayed_scan(), associative(false), "C starts one token late", associative(true));
    add(list, "identity", "1 A = A 1 = A", undecayed_scan(),
        []<class S>(const Shape& s, const Inputs<S>& in) { return identity_law<Scan, S>(s, in); },
        "a token for the identity", token_for_identity());
    add(list, "stream", "the stream gives the direct sum and its final state, from any initial state", false,
        form(Form::stream, Break::none), "state doubled between tokens", form(Form::stream, Break::carry));
    add(list, "scan", "the Blelloch scan gives the direct sum and its final state, from any initial state", undecayed_scan(),
        form(Form::scan, Break::none), "segments doubled when combined", form(Form::scan, Break::carry));
    add(list, "chunk", "the chunk form gives the direct sum and its final state, at every chunk width", undecayed_scan(),
        form(Form::chunk, Break::none), "state doubled between chunks", form(Form::chunk, Break::carry));
    add(list, "split", "a sequence split anywhere, its state carried over, gives the same output and final state", false,
        split(true), "initial state lost at the split", split(false));
    add(list, "causal", "o_t does not depend on the tokens after t, in any form", undecayed_scan(), causal(1),
        "token t itself changed too", causal(0));
    append_homogeneity(list, d);
    add_gradient(list);
  }

 private:
  static bool undecayed_scan() { return !Main::declaration().decayed_scan; }
  static const Operator& op() {
    const Declaration d = Main::declaration();
    return *find_operator(d.name, d.variant);
  }
  template <class S>
  static Solution<S> evaluate(const Head<S>& head, Evaluation how, Break broken = Break::none) {
    BrokenArithmetic<S> arithmetic(broken);
    if constexpr (std::is_same_v<S, Degree> || std::is_same_v<S, Dual<Rational>>) return run(V(), head, how, arithmetic);
    else return op().evaluate(head, how, arithmetic);
  }

  template <class F>
  static Statement statement(const std::string& text, bool undecayed, F sides) {
    const Declaration d = Main::declaration();
    return state(d.name + " " + d.variant + ": " + text, operator_shapes(d),
                 [d, undecayed](const Shape& shape) { return operator_fields(d, shape, undecayed); }, sides);
  }
  template <class F, class G>
  static void add(std::vector<Claim>& list, const std::string& law, const std::string& text, bool undecayed, F sides,
                  const std::string& control, G broken) {
    const Declaration d = Main::declaration();
    list.push_back({law_id(d, law), d.source, statement(text, undecayed, sides), nullptr, nullptr,
                    {{control, statement(text, undecayed, broken)}}});
  }

  static auto associative(bool broken) {
    return [broken]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      if (!broken) return associativity<Scan, S>(shape, inputs);
      const Head<S> head = inputs.head(shape);
      const auto tokens = token_segments<Scan, S>(head);
      const Dims dims = head.dims();
      Comparisons<S> list;
      for (Index b = 1; b < head.tokens(); ++b)
        compare_segments<Scan, S>(list, "late", left_fold<Scan, S>(tokens, 0, head.tokens(), dims),
                                  Scan::combine(left_fold<Scan, S>(tokens, 0, b, dims),
                                                left_fold<Scan, S>(tokens, b + 1, head.tokens(), dims)));
      return list;
    };
  }
  static auto token_for_identity() {
    return []<class S>(const Shape& shape, const Inputs<S>& inputs) {
      const Head<S> head = inputs.head(shape);
      Comparisons<S> list;
      if (head.tokens() > 1)
        compare_segments<Scan, S>(list, "A 1 against A", Scan::combine(Scan::token(head, 0), Scan::token(head, 1)),
                                  Scan::token(head, 0));
      return list;
    };
  }
  static auto form(Form which, Break broken) {
    return [which, broken]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      const Head<S> head = inputs.head(shape);
      const Solution<S> direct = evaluate(head, {});
      Comparisons<S> list;
      const auto widths = which == Form::chunk ? chunk_widths(Main::declaration(), shape.tokens) : std::vector<Index>{0};
      for (int algebra = 0; algebra < algebras; ++algebra)
        for (const Index width : widths) {
          std::string what = std::string(form_name(which)) + (which == Form::chunk ? " " + std::to_string(width) : "");
          if (algebras > 1) what += ", algebra " + Main::declaration().algebras.at(algebra);
          compare_solutions(list, "direct against " + what, direct, evaluate(head, {which, width, algebra}, broken));
        }
      return list;
    };
  }
  static auto split(bool carry) {
    return [carry]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      const Head<S> head = inputs.head(shape);
      const Solution<S> whole = evaluate(head, {});
      Comparisons<S> list;
      for (Index at = 0; at <= head.tokens(); ++at) {
        const Solution<S> first = evaluate(part(head, 0, at, head.initial), {Form::stream, 1, 0});
        State<S> handed = first.final;
        handed.position = head.initial.position + at;
        if (!carry)
          for (auto& [name, levels] : handed.moments)
            for (auto& moment : levels) moment *= S(0);
        Solution<S> second = evaluate(part(head, at, head.tokens(), handed), {Form::direct, 1, 0});
        Solution<S> joined{zeros<S>(head.tokens(), head.v.cols()), second.final};
        joined.o.set_rows(0, first.o);
        joined.o.set_rows(at, second.o);
        compare_solutions(list, "whole against split at " + std::to_string(at), whole, joined);
      }
      return list;
    };
  }
  // The future is replaced by other values (the same rows times 3, plus 1), from token `t + later` on.
  static auto causal(Index later) {
    return [later]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      const Head<S> head = inputs.head(shape);
      Comparisons<S> list;
      std::vector<Index> places = {0, shape.tokens / 2, shape.tokens - 2};
      for (const Index t : places) {
        if (t < 0 || t + later >= head.tokens()) continue;
        const Head<S> other = changed_from(head, t + later);
        std::vector<Evaluation> ways = {{Form::direct, 1, 0}, {Form::stream, 1, 0}, {Form::scan, 1, 0}, {Form::chunk, 4, 0}};
        for (const Evaluation& how : ways)
          list.push_back({std::string(form_name(how.form)) + ", rows up to " + std::to_string(t) + " with another future",
                          evaluate(head, how).o.middle_rows(0, t + 1), evaluate(other, how).o.middle_rows(0, t + 1)});
      }
      return list;
    };
  }
  template <class S>
  static Head<S> changed_from(Head<S> head, Index first) {
    auto change = [&](Matrix<S>& m) {
      for (Index t = first; t < m.rows(); ++t)
        for (Index c = 0; c < m.cols(); ++c) m(t, c) = S(3) * m(t, c) + S(1);
    };
    change(head.q), change(head.k), change(head.v), change(head.level_scales);
    for (auto* gate : {&head.alpha, &head.beta})
      for (std::size_t t = static_cast<std::size_t>(first); t < gate->size(); ++t) (*gate)[t] = S(3) * (*gate)[t] + S(1);
    return head;
  }

  // o(c x) = c^degree o(x) for x = q, k, v without an initial state.
  static void append_homogeneity(std::vector<Claim>& list, const Declaration& d) {
    const std::pair<const char*, int> degrees[] = {{"q", d.degree_q}, {"k", d.degree_k}, {"v", d.degree_v}};
    auto fields = [d](const Shape& shape) {
      Fields all = {{"factor"}};
      for (const Field& f : operator_fields(d, shape))
        if (!f.name.starts_with("initial.")) all.push_back(f);
      return all;
    };
    for (const auto& [field, degree] : degrees) {
      if (degree < 0) continue;
      const std::string text = d.name + " " + d.variant + ": o is homogeneous of degree " + std::to_string(degree) + " in " + field;
      list.push_back({law_id(d, std::string("homogeneous.") + field), d.source,
                      state(text, all_shapes(), fields, homogeneous(field, degree)), nullptr, nullptr,
                      {{"one degree more", state(text, all_shapes(), fields, homogeneous(field, degree + 1))}}});
    }
  }
  static auto homogeneous(const std::string& field, int degree) {
    return [field, degree]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      Head<S> head = inputs.head(shape);
      head.initial.moments.clear();
      const Solution<S> plain = evaluate(head, {});
      const S& factor = inputs.scalar("factor");
      (field == "q" ? head.q : field == "k" ? head.k : head.v) *= factor;
      return Comparisons<S>{{"o", power(factor, degree) * plain.o, evaluate(head, {}).o}};
    };
  }

  // Gradients. Inputs of a head and the directions to move them in, as flat lists of scalars in one order.
  template <class S, class F>
  static void visit_inputs(Head<S>& head, F f) {
    f("q", head.q), f("k", head.k), f("v", head.v), f("level_scales", head.level_scales);
    f("alpha", head.alpha), f("beta", head.beta);
    f("decay", head.decay);
    for (auto& [name, levels] : head.initial.moments)
      for (auto& moment : levels) f("initial." + name, moment);
  }
  template <class S, class F>
  static void visit_scalars(Head<S>& head, F f) {
    visit_inputs(head, [&](const std::string& name, auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Matrix<S>>) {
        for (Index i = 0; i < value.size(); ++i) f(name, value.data()[i]);
      } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<S>>) {
        for (S& entry : value) f(name, entry);
      } else {
        f(name, value);
      }
    });
  }
  template <class To, class S, class F>
  static Head<To> convert(const Head<S>& head, F make) {
    auto matrix = [&](const Matrix<S>& from) {
      Matrix<To> result(from.rows(), from.cols());
      for (Index i = 0; i < from.size(); ++i) result.data()[i] = make(from.data()[i]);
      return result;
    };
    Head<To> result;
    result.q = matrix(head.q), result.k = matrix(head.k), result.v = matrix(head.v);
    result.level_scales = matrix(head.level_scales);
    for (const S& a : head.alpha) result.alpha.push_back(make(a));
    for (const S& b : head.beta) result.beta.push_back(make(b));
    result.decay = make(head.decay), result.ridge = make(head.ridge);
    result.initial.position = head.initial.position;
    for (const auto& [name, levels] : head.initial.moments)
      for (const auto& moment : levels) result.initial.moments[name].push_back(matrix(moment));
    return result;
  }
  // <cotangent, outputs>: o and every final moment, each entry with its own weight.
  template <class S, class T>
  static T pair(const Solution<T>& solution, const Matrix<S>& weights, const Matrix<S>& state_weights) {
    T sum(0);
    for (Index i = 0; i < solution.o.size(); ++i) sum += T(weights.data()[i]) * solution.o.data()[i];
    Index next = 0;
    for (const auto& [name, levels] : solution.final.moments)
      for (const auto& moment : levels)
        for (Index i = 0; i < moment.size(); ++i) sum += T(state_weights.data()[next++]) * moment.data()[i];
    return sum;
  }
  // J^T cotangent by the reverse tape of a form: the gradient of every input, in the order of visit_scalars.
  template <class S>
  static std::vector<S> reverse(const Head<S>& head, const Matrix<S>& weights, const Matrix<S>& state_weights, Evaluation how,
                                bool detached) {
    Tape<S> tape;
    Head<Var<S>> inputs = convert<Var<S>>(head, [](const S& value) { return Var<S>::input(value); });
    struct Detach : Arithmetic<Var<S>> {
      bool on;
      Matrix<Var<S>> output(Matrix<Var<S>> o) override {
        if (on && o.rows() > 0)
          for (Index c = 0; c < o.cols(); ++c) o(o.rows() - 1, c) = Var<S>(o(o.rows() - 1, c).value);
        return o;
      }
    } arithmetic;
    arithmetic.on = detached;
    const Solution<Var<S>> solution = op().evaluate(inputs, how, arithmetic);
    const Var<S> loss = pair<S>(solution, weights, state_weights);
    std::vector<S> bar(tape.size(), S(0));
    if (loss.node >= 0) bar[loss.node] = S(1);
    bar = tape.adjoints(bar);
    std::vector<S> gradient;
    visit_scalars(inputs, [&](const std::string&, Var<S>& input) { gradient.push_back(bar[input.node]); });
    return gradient;
  }
  // The derivative of the loss along `direction`, restricted to one field (or all of them, field empty).
  template <class S>
  static S forward(const Head<S>& head, const Matrix<S>& direction, const std::string& field, const Matrix<S>& weights,
                   const Matrix<S>& state_weights, Evaluation how) {
    Head<Dual<S>> inputs = convert<Dual<S>>(head, [](const S& value) { return Dual<S>(value); });
    Index next = 0;
    visit_scalars(inputs, [&](const std::string& name, Dual<S>& input) {
      const S tangent = direction.data()[next++];
      if (field.empty() || field == name) input.tangent = tangent;
    });
    return pair<S>(evaluate(inputs, how), weights, state_weights).tangent;
  }
  // Room for the direction and the cotangents: as many entries as the head and its final state may have.
  static Fields gradient_fields(const Shape& shape) {
    const Declaration d = Main::declaration();
    Fields fields = operator_fields(d, shape, !d.decayed_scan);
    Index entries = 2;
    for (const Field& field : fields) entries += field.rows * field.cols;
    if (d.level_scales) entries += 8 * shape.key_dim * shape.value_dim;
    const Index state = 8 * shape.key_dim * std::max(shape.key_dim, shape.value_dim);
    fields.push_back({"direction", 1, entries});
    fields.push_back({"do", shape.tokens, shape.value_dim});
    fields.push_back({"dfinal", 1, state});
    return fields;
  }
  template <class S>
  static void compare_gradient(Comparisons<S>& list, const Shape& shape, const Inputs<S>& inputs, Evaluation reverse_form,
                               Evaluation forward_form, bool by_field, bool detached) {
    Head<S> head = inputs.head(shape);
    const auto gradient = reverse(head, inputs["do"], inputs["dfinal"], reverse_form, detached);
    std::map<std::string, S> along;
    std::size_t next = 0;
    const Matrix<S>& direction = inputs["direction"];
    visit_scalars(head, [&](const std::string& name, S&) {
      along.try_emplace(by_field ? name : "", S(0)).first->second += gradient[next] * direction.data()[next];
      ++next;
    });
    for (const auto& [name, value] : along)
      list.push_back({"d" + (name.empty() ? std::string("(all)") : name) + " along the direction, reverse " +
                          std::string(form_name(reverse_form.form)) + " against forward " + std::string(form_name(forward_form.form)),
                      as_matrix(value),
                      as_matrix(forward(head, direction, name, inputs["do"], inputs["dfinal"], forward_form))});
  }
  static auto gradient(bool detached) {
    return [detached]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      Comparisons<S> list;
      compare_gradient(list, shape, inputs, detached ? Evaluation{Form::stream, 1, 0} : Evaluation{}, {}, true, detached);
      return list;
    };
  }
  static auto adjoint(bool detached) {
    return [detached]<class S>(const Shape& shape, const Inputs<S>& inputs) {
      Comparisons<S> list;
      for (const Evaluation& how : {Evaluation{Form::stream, 1, 0}, Evaluation{Form::scan, 1, 0}, Evaluation{Form::chunk, 4, 0}})
        compare_gradient(list, shape, inputs, how, {Form::stream, 1, 0}, false, detached);
      return list;
    };
  }
  static void add_gradient(std::vector<Claim>& list) {
    const Declaration d = Main::declaration();
    const std::string text = d.name + " " + d.variant;
    // A directional derivative has the degree of the loss: <do, o> has one more than o.
    auto degree = [d](const Shape& shape) {
      const auto inputs = degree_inputs(operator_fields(d, shape));
      const auto head = inputs.head(shape);
      Comparisons<Degree> all;
      for (const Form how : {Form::direct, Form::stream, Form::scan, Form::chunk}) {
        Head<Degree> with = head;
        if (!d.decayed_scan && how != Form::direct && how != Form::stream) with.decay = Degree(1);
        compare_solutions(all, "", evaluate(with, {how, 4, 0}), evaluate(with, {how, 4, 0}));
      }
      return largest_degree(all) + 1;
    };
    auto make = [&](const std::string& law, const std::string& says, auto sides, auto broken) {
      const auto shapes = operator_shapes(d);
      Claim claim{law_id(d, law), d.source, state(text + ": " + says, shapes, gradient_fields, sides, degree), nullptr, nullptr, {}};
      claim.controls.push_back({"the last row of o detached", state(text + ": " + says, shapes, gradient_fields, broken, degree)});
      list.push_back(claim);
    };
    make("gradient", "the reverse tape of the direct sum is the exact directional derivative, field by field", gradient(false),
         gradient(true));
    make("adjoint", "<dO, J dx> = <J^T dO, dx>, J of the stream, J^T of stream, scan and chunk", adjoint(false), adjoint(true));
  }
};

template <class... V>
void append_laws(Variants<V...>, std::vector<Claim>& list) {
  auto one = [&]<class W>(std::type_identity<W>) {
    if constexpr (evaluates_over<typename LawDefinitions<W>::Main, PrimeField>()) Laws<W>::append(list);
  };
  (one(std::type_identity<V>()), ...);
}

}  // namespace attest
