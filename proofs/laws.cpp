#include "proofs/laws.hpp"

#include <bit>

namespace attest {
namespace {

// The operator that a law is about; copied into the law's sides.
struct Subject {
  Declaration d;
  int algebras;
  const Operator* op;
  std::function<Solution<Degree>(const Head<Degree>&, const Evaluation&)> degree;

  template <class S>
  Solution<S> evaluate(const Head<S>& head, const Evaluation& how, Arithmetic<S>& arithmetic) const {
    if constexpr (std::is_same_v<S, Degree>)
      return degree(head, how);
    else
      return op->evaluate(head, how, arithmetic);
  }
  template <class S>
  Solution<S> evaluate(const Head<S>& head, const Evaluation& how = {}) const {
    Arithmetic<S> exact;
    return evaluate(head, how, exact);
  }
};

// The fields that an operator takes, with an initial state; decay is left out (it is 1) where `undecayed`.
Fields operator_fields(const Declaration& d, const Shape& shape, bool undecayed) {
  const auto [tokens, key_dim, value_dim, position] = shape;
  Fields fields = {{"q", tokens, key_dim}, {"k", tokens, key_dim}, {"v", tokens, value_dim}};
  if (d.gates) fields.push_back({"alpha", tokens, 1, Domain::gate});
  if (d.beta) fields.push_back({"beta", tokens, 1, Domain::gate});
  if (d.decay && !undecayed) fields.push_back({"decay", 1, 1, Domain::gate});
  if (d.ridge) fields.push_back({"ridge"});
  if (d.level_scales) {
    const auto last = static_cast<std::uint64_t>(std::max<Index>(position + tokens - 1, 0));
    fields.push_back({"level_scales", tokens, static_cast<Index>(std::bit_width(last)) + 1});
    for (int bit = 0; bit < 63; ++bit)
      if (position >> bit & 1) fields.push_back({"initial.S." + std::to_string(bit + 1), key_dim, value_dim});
  } else {
    for (const Moment& moment : d.moments)
      fields.push_back({"initial." + moment.name, key_dim, moment.value_columns ? value_dim : key_dim});
  }
  return fields;
}

std::vector<Shape> operator_shapes(const Declaration& d) {
  return d.level_scales ? positioned_shapes() : all_shapes();
}

// Powers of two for the log-linear operators, every width otherwise, up to one that exceeds the sequence.
std::vector<Index> chunk_widths(const Declaration& d, Index tokens) {
  std::vector<Index> widths;
  for (Index width = 1;; d.level_scales ? width *= 2 : ++width) {
    widths.push_back(width);
    if (width > tokens) return widths;
  }
}

template <class S>
void compare_states(Comparisons<S>& list, const std::string& what, const State<S>& a, const State<S>& b) {
  for (const auto& [name, levels] : a.moments)
    for (std::size_t level = 0; level < levels.size(); ++level) {
      const auto found = b.moments.find(name);
      const bool there = found != b.moments.end() && level < found->second.size();
      list.push_back({what + ", final " + name + (levels.size() > 1 ? "." + std::to_string(level) : ""),
                      levels[level], there ? found->second[level] : Matrix<S>()});
    }
}
template <class S>
void compare_solutions(Comparisons<S>& list, const std::string& what, const Solution<S>& a,
                       const Solution<S>& b) {
  list.push_back({what + ", o", a.o, b.o});
  compare_states(list, what, a.final, b.final);
}

// Breaks a form where a kernel could: in the state that it carries.
template <class S>
class DoublesCarry : public Arithmetic<S> {
  Matrix<S> carry(std::string_view, Matrix<S> state) override { return S(2) * state; }
};

auto form_equals_direct(const Subject& subject, Form form, bool broken) {
  return [subject, form, broken]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    const Head<S> head = inputs.head(shape);
    const Solution<S> direct = subject.evaluate(head);
    DoublesCarry<S> doubled;
    Arithmetic<S> exact;
    Comparisons<S> list;
    for (int algebra = 0; algebra < subject.algebras; ++algebra)
      for (const Index width :
           form == Form::chunk ? chunk_widths(subject.d, shape.tokens) : std::vector<Index>{0}) {
        std::string what =
            std::string(form_name(form)) + (form == Form::chunk ? " " + std::to_string(width) : "");
        if (subject.algebras > 1) what += ", algebra " + subject.d.algebras.at(algebra);
        compare_solutions(list, "direct against " + what, direct,
                          subject.evaluate(head, {form, width, algebra}, broken ? doubled : exact));
      }
    return list;
  };
}

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

auto split_anywhere(const Subject& subject, bool carried) {
  return [subject, carried]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    const Head<S> head = inputs.head(shape);
    const Solution<S> whole = subject.evaluate(head);
    Comparisons<S> list;
    for (Index at = 0; at <= head.tokens(); ++at) {
      const Solution<S> first = subject.evaluate(part(head, 0, at, head.initial), {Form::stream, 1, 0});
      State<S> handed = first.final;
      handed.position = head.initial.position + at;
      if (!carried)
        for (auto& [name, levels] : handed.moments)
          for (auto& moment : levels) moment *= S(0);
      const Solution<S> second = subject.evaluate(part(head, at, head.tokens(), handed));
      Solution<S> joined{zeros<S>(head.tokens(), head.v.cols()), second.final};
      joined.o.set_rows(0, first.o);
      joined.o.set_rows(at, second.o);
      compare_solutions(list, "whole against split at " + std::to_string(at), whole, joined);
    }
    return list;
  };
}

template <class S>
Head<S> with_other_tokens_from(Head<S> head, Index first) {
  auto change = [&](Matrix<S>& m) {
    for (Index t = first; t < m.rows(); ++t)
      for (Index c = 0; c < m.cols(); ++c) m(t, c) = S(3) * m(t, c) + S(1);
  };
  change(head.q), change(head.k), change(head.v), change(head.level_scales);
  for (auto* gate : {&head.alpha, &head.beta})
    for (auto t = static_cast<std::size_t>(first); t < gate->size(); ++t)
      (*gate)[t] = S(3) * (*gate)[t] + S(1);
  return head;
}

// Rows up to t with the tokens from t + later on replaced by other values.
auto causal(const Subject& subject, Index later) {
  return [subject, later]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    const Head<S> head = inputs.head(shape);
    Comparisons<S> list;
    for (const Evaluation& how : {Evaluation{Form::direct, 1, 0}, Evaluation{Form::stream, 1, 0},
                                  Evaluation{Form::scan, 1, 0}, Evaluation{Form::chunk, 4, 0}}) {
      const Matrix<S> o = subject.evaluate(head, how).o;
      for (const Index t : {Index(0), shape.tokens / 2, shape.tokens - 2}) {
        if (t < 0 || t + later >= head.tokens()) continue;
        const Matrix<S> other = subject.evaluate(with_other_tokens_from(head, t + later), how).o;
        list.push_back(
            {std::string(form_name(how.form)) + ", rows up to " + std::to_string(t) + " with another future",
             o.middle_rows(0, t + 1), other.middle_rows(0, t + 1)});
      }
    }
    return list;
  };
}

// o(c x) = c^degree o(x), without an initial state or ridge.
auto homogeneous(const Subject& subject, const std::string& field, int degree) {
  return [subject, field, degree]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    Head<S> head = inputs.head(shape);
    const Matrix<S> o = subject.evaluate(head).o;
    const S& factor = inputs.scalar("factor");
    (field == "q" ? head.q : field == "k" ? head.k : head.v) *= factor;
    return Comparisons<S>{{"o", power(factor, degree) * o, subject.evaluate(head).o}};
  };
}

// Every scalar input that has a gradient, in one order, with its field's name. Without decay: a form that exists
// undecayed only has no derivative along it.
template <class S, class F>
void visit_scalars(Head<S>& head, bool with_decay, F f) {
  auto matrix = [&](const std::string& name, Matrix<S>& m) {
    for (Index i = 0; i < m.size(); ++i) f(name, m.data()[i]);
  };
  matrix("q", head.q), matrix("k", head.k), matrix("v", head.v), matrix("level_scales", head.level_scales);
  for (S& alpha : head.alpha) f(std::string("alpha"), alpha);
  for (S& beta : head.beta) f(std::string("beta"), beta);
  if (with_decay) f(std::string("decay"), head.decay);
  for (auto& [name, levels] : head.initial.moments)
    for (auto& moment : levels) matrix("initial." + name, moment);
}
template <class To, class S, class F>
Head<To> convert(const Head<S>& head, F make) {
  auto matrix = [&](const Matrix<S>& from) {
    Matrix<To> result(from.rows(), from.cols());
    for (Index i = 0; i < from.size(); ++i) result.data()[i] = make(from.data()[i]);
    return result;
  };
  Head<To> result;
  result.q = matrix(head.q), result.k = matrix(head.k), result.v = matrix(head.v);
  result.level_scales = matrix(head.level_scales);
  for (const S& alpha : head.alpha) result.alpha.push_back(make(alpha));
  for (const S& beta : head.beta) result.beta.push_back(make(beta));
  result.decay = make(head.decay), result.ridge = To(head.ridge);
  result.initial.position = head.initial.position;
  for (const auto& [name, levels] : head.initial.moments)
    for (const auto& moment : levels) result.initial.moments[name].push_back(matrix(moment));
  return result;
}

// <cotangent, outputs>: o and every final moment, each entry with a weight of its own.
template <class S>
struct Cotangent {
  const Matrix<S>&o, &state;
  template <class T>
  T operator()(const Solution<T>& solution) const {
    T sum(0);
    for (Index i = 0; i < solution.o.size(); ++i) sum += T(o.data()[i]) * solution.o.data()[i];
    Index next = 0;
    for (const auto& [name, levels] : solution.final.moments)
      for (const auto& moment : levels)
        for (Index i = 0; i < moment.size(); ++i) sum += T(state.data()[next++]) * moment.data()[i];
    return sum;
  }
};

// A control: the last row of o is cut off the tape.
template <class S>
class DetachesLastRow : public Arithmetic<Var<S>> {
  Matrix<Var<S>> output(Matrix<Var<S>> o) override {
    for (Index c = 0; c < o.cols() && o.rows() > 0; ++c)
      o(o.rows() - 1, c) = Var<S>(o(o.rows() - 1, c).value);
    return o;
  }
};

// J^T cotangent by the reverse tape of a form, in the order of visit_scalars.
template <class S>
std::vector<S> reverse(const Subject& subject, const Head<S>& head, const Cotangent<S>& cotangent,
                       const Evaluation& how, bool with_decay, bool detached) {
  Tape<S> tape;
  Head<Var<S>> inputs = convert<Var<S>>(head, [](const S& value) { return Var<S>::input(value); });
  DetachesLastRow<S> cut;
  Arithmetic<Var<S>> exact;
  const Var<S> loss = cotangent(subject.evaluate(inputs, how, detached ? cut : exact));
  std::vector<S> bar(tape.size(), S(0));
  if (loss.node >= 0) bar[static_cast<std::size_t>(loss.node)] = S(1);
  bar = tape.adjoints(std::move(bar));
  std::vector<S> gradient;
  visit_scalars(inputs, with_decay, [&](const std::string&, Var<S>& input) {
    gradient.push_back(bar[static_cast<std::size_t>(input.node)]);
  });
  return gradient;
}

// <cotangent, J direction>, the direction restricted to one field (all of them: field empty). Over the prime field by
// dual numbers; over Q by a route of its own: the derivative at 0 of the polynomial tau -> <cotangent, f(x + tau dx)>,
// from its values at 0 .. degree (Lagrange).
template <class S>
S forward(const Subject& subject, const Head<S>& head, const Matrix<S>& direction, const std::string& field,
          const Cotangent<S>& cotangent, const Evaluation& how, bool with_decay, Index degree) {
  if constexpr (std::is_same_v<S, PrimeField>) {
    Head<Dual<S>> inputs = convert<Dual<S>>(head, [](const S& value) { return Dual<S>(value); });
    Index next = 0;
    visit_scalars(inputs, with_decay, [&](const std::string& name, Dual<S>& input) {
      const S tangent = direction.data()[next++];
      if (field.empty() || field == name) input.tangent = tangent;
    });
    return cotangent(subject.evaluate(inputs, how)).tangent;
  } else {
    S derivative(0);
    for (Index node = 0; node <= degree; ++node) {
      Head<S> moved = head;
      Index next = 0;
      visit_scalars(moved, with_decay, [&](const std::string& name, S& input) {
        const S tangent = direction.data()[next++];
        if (field.empty() || field == name) input += S(static_cast<int>(node)) * tangent;
      });
      // d/dtau at 0 of the Lagrange polynomial of `node` on 0 .. degree.
      S slope(0);
      if (node == 0) {
        for (Index m = 1; m <= degree; ++m) slope -= S(1) / S(static_cast<int>(m));
      } else {
        slope = S(1) / S(static_cast<int>(node));
        for (Index m = 1; m <= degree; ++m)
          if (m != node) slope = slope * S(static_cast<int>(m)) / S(static_cast<int>(m - node));
      }
      derivative += slope * cotangent(subject.evaluate(moved, how));
    }
    return derivative;
  }
}

Fields gradient_fields(const Declaration& d, const Shape& shape, bool with_decay) {
  Fields fields = operator_fields(d, shape, !with_decay);
  Index entries = 1;  // decay, should it not be among the fields
  for (const Field& field : fields) entries += field.rows * field.cols;
  if (d.level_scales)
    entries += 8 * shape.key_dim * shape.value_dim;  // levels that the initial state leaves empty
  fields.push_back({"direction", 1, entries});
  fields.push_back({"do", shape.tokens, shape.value_dim});
  fields.push_back({"dfinal", 1, 8 * shape.key_dim * std::max(shape.key_dim, shape.value_dim)});
  return fields;
}

// The forms whose derivatives a law compares, and whether decay is one of the variables.
struct Differentiated {
  std::vector<Evaluation> reverse;
  Evaluation forward;
  bool with_decay;
};

// A bound on the degree of <do, J direction>: that of the outputs, one for do and one for the direction.
Index loss_degree(const Subject& subject, const Differentiated& forms, const Shape& shape) {
  const auto head = degree_inputs(operator_fields(subject.d, shape, !forms.with_decay)).head(shape);
  Comparisons<Degree> all;
  auto append = [&](const Evaluation& how) {
    const auto solution = subject.evaluate(head, how);
    compare_solutions(all, "", solution, solution);
  };
  append(forms.forward);
  for (const Evaluation& how : forms.reverse) append(how);
  return largest_degree(all) + 2;
}

// A random direction meets every entry of a gradient at once; where the totals differ, the fields are told apart.
auto gradient(const Subject& subject, const Differentiated& forms, bool detached) {
  return [=]<class S>(const Shape& shape, const Inputs<S>& inputs) {
    const bool with_decay = forms.with_decay;
    Head<S> head = inputs.head(shape);
    const Cotangent<S> cotangent{inputs["do"], inputs["dfinal"]};
    const Matrix<S>& direction = inputs["direction"];
    const Index degree = std::is_same_v<S, Rational> ? loss_degree(subject, forms, shape) : 0;
    auto along = [&](const std::string& field) {
      return forward(subject, head, direction, field, cotangent, forms.forward, with_decay, degree);
    };
    const S total = along("");
    Comparisons<S> list;
    for (const Evaluation& how : forms.reverse) {
      const auto bar = reverse(subject, head, cotangent, how, with_decay, detached);
      std::map<std::string, S> by_field;
      S sum(0);
      Index next = 0;
      visit_scalars(head, with_decay, [&](const std::string& name, S&) {
        const S part = bar[static_cast<std::size_t>(next)] * direction.data()[next];
        by_field.try_emplace(name, S(0)).first->second += part;
        sum += part;
        ++next;
      });
      const std::string routes = " along the direction, reverse " + std::string(form_name(how.form)) +
                                 " against forward " + std::string(form_name(forms.forward.form));
      if (!(sum == total))
        for (const auto& [name, value] : by_field)
          list.push_back({"d" + name + routes, as_matrix(value), as_matrix(along(name))});
      list.push_back({"all inputs" + routes, as_matrix(sum), as_matrix(total)});
    }
    return list;
  };
}

class LawWriter {
 public:
  LawWriter(const DefinitionLaws& definition, std::vector<Claim>& list)
      : list_(list), d_(definition.declaration) {
    subject_ = {d_, definition.algebras, find_operator(d_.name, d_.variant), definition.degree};
  }
  // Fields of a law on decayed inputs; scan and chunk of some variants exist without decay only.
  auto fields(bool undecayed) const {
    return [d = d_, undecayed](const Shape& shape) { return operator_fields(d, shape, undecayed); };
  }
  void add(const std::string& law, const std::string& text, Statement right, const std::string& control,
           Statement broken) {
    right.text = broken.text = d_.name + " " + d_.variant + ": " + text;
    list_.push_back({"law." + d_.name + "." + d_.variant + "." + law,
                     d_.source,
                     std::move(right),
                     nullptr,
                     nullptr,
                     {{control, std::move(broken)}}});
  }
  template <class F, class G>
  void add(const std::string& law, const std::string& text, bool undecayed, F right,
           const std::string& control, G broken) {
    add(law, text, state("", operator_shapes(d_), fields(undecayed), right), control,
        state("", operator_shapes(d_), fields(undecayed), broken));
  }
  void add_segments(const std::string& law, const std::string& text, const SegmentSides& right,
                    const std::string& control, const SegmentSides& broken) {
    auto make = [&](const SegmentSides& sides) {
      const auto taken = fields(!d_.decayed_scan);
      return Statement{"",
                       operator_shapes(d_),
                       taken,
                       sides.over_field,
                       sides.over_rational,
                       [taken, over = sides.over_degree](const Shape& shape) {
                         return largest_degree(over(shape, degree_inputs(taken(shape))));
                       }};
    };
    add(law, text, make(right), control, make(broken));
  }
  void add_homogeneity() {
    auto taken = [d = d_](const Shape& shape) {
      Fields all = {{"factor"}};
      for (const Field& f : operator_fields(d, shape, false))
        if (!f.name.starts_with("initial.") && f.name != "ridge") all.push_back(f);
      return all;
    };
    const std::pair<const char*, int> degrees[] = {
        {"q", d_.degree_q}, {"k", d_.degree_k}, {"v", d_.degree_v}};
    for (const auto& [field, degree] : degrees)
      if (degree >= 0)
        add(std::string("homogeneous.") + field,
            "o is homogeneous of degree " + std::to_string(degree) + " in " + field,
            state("", all_shapes(), taken, homogeneous(subject_, field, degree)), "one degree more",
            state("", all_shapes(), taken, homogeneous(subject_, field, degree + 1)));
  }
  void add_gradient(const std::string& law, const std::string& text, const Differentiated& forms) {
    auto make = [&](const Differentiated& of, bool detached) {
      return state(
          "", operator_shapes(d_),
          [d = d_, of](const Shape& shape) { return gradient_fields(d, shape, of.with_decay); },
          gradient(subject_, of, detached),
          [subject = subject_, of](const Shape& shape) { return loss_degree(subject, of, shape); });
    };
    add(law, text, make(forms, false), "the last row of o detached",
        make({{{Form::stream, 1, 0}}, forms.forward, forms.with_decay}, true));
  }
  const Subject& subject() const { return subject_; }

 private:
  std::vector<Claim>& list_;
  Declaration d_;
  Subject subject_;
};

}  // namespace

void append_laws(const DefinitionLaws& definition, std::vector<Claim>& list) {
  LawWriter laws(definition, list);
  const Subject& subject = laws.subject();
  const bool undecayed = !definition.declaration.decayed_scan;
  laws.add_segments(
      "associative", "(A B) C = A (B C) for the segments of all runs of tokens, and all bracketings agree",
      definition.associative, "the right part starts one token late", definition.associative_broken);
  laws.add_segments("identity", "1 A = A 1 = A", definition.identity, "a token in place of the identity",
                    definition.identity_broken);
  laws.add("stream", "the stream gives the direct sum and its final state, from any initial state", false,
           form_equals_direct(subject, Form::stream, false), "state doubled between tokens",
           form_equals_direct(subject, Form::stream, true));
  laws.add("scan", "the Blelloch scan gives the direct sum and its final state, from any initial state",
           undecayed, form_equals_direct(subject, Form::scan, false), "segments doubled when combined",
           form_equals_direct(subject, Form::scan, true));
  laws.add(
      "chunk",
      "the chunk form gives the direct sum and its final state, at every chunk width, from any initial state",
      undecayed, form_equals_direct(subject, Form::chunk, false), "state doubled between chunks",
      form_equals_direct(subject, Form::chunk, true));
  laws.add("split",
           "split anywhere, the state carried over, the output and final state are those of the whole", false,
           split_anywhere(subject, true), "state lost at the split", split_anywhere(subject, false));
  laws.add("causal", "o_t does not depend on the tokens after t, in any form", undecayed, causal(subject, 1),
           "token t itself replaced too", causal(subject, 0));
  laws.add_homogeneity();
  laws.add_gradient("gradient",
                    "the reverse tape of the direct sum is the exact directional derivative in every input",
                    {{{Form::direct, 1, 0}}, {Form::direct, 1, 0}, true});
  laws.add_gradient(
      "adjoint", "<dO, J dx> = <J^T dO, dx>, J of the stream, J^T of stream, scan and chunk",
      {{{Form::stream, 1, 0}, {Form::scan, 1, 0}, {Form::chunk, 4, 0}}, {Form::stream, 1, 0}, !undecayed});
}

}  // namespace attest
