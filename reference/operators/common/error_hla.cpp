// Error models of the chunk forms that are compositions of Lins: the first-order family with a scalar
// transition (one Lin) and HLA. What reads what is the composition of the operator's own file.
#include "reference/operators/common/error_forms.hpp"
#include "reference/operators/common/error_lin.hpp"

namespace attest {

Gates<double> declared_gates(const FormError& form) {
  const Head<double>& head = form.head;
  if (form.declaration.gates) return {&head.alpha, head.log_gate.empty() ? nullptr : &head.log_gate, 1, 1};
  if (form.declaration.decay) return {nullptr, nullptr, head.decay, 1};
  return {};
}

ErrorModel finish_output(const FormError& form, ErrorSum& sum, const Array& o) {
  if (form.round_output) {
    sum.rounded("output", form.units.output, [&](Norm p) { return size_of(p, form.row_set().pick(o)); });
    sum.range("output", form.units.contract.output, o);
  }
  sum.range("output", form.units.contract.accumulate, o);
  return sum.finish();
}

namespace {

struct Hla {
  explicit Hla(const FormError& f)
      : form(f),
        head(f.head),
        units(f.units),
        q(to_array(head.q)),
        k(to_array(head.k)),
        v(to_array(head.v)),
        wanted(f.row_set()),
        sum(units, wanted.count(), head.v.cols()) {}
  const FormError& form;
  const Head<double>& head;
  const Units& units;
  Array q, k, v;
  RowSet wanted;
  ErrorSum sum;

  Array initial(const char* name) const {
    return to_array(initial_moment(head, name, head.q.cols(), *name == 'S' ? head.q.cols() : head.v.cols()));
  }
  Gates<double> gates(int power) const { return {nullptr, nullptr, head.decay, power}; }
  LinStages lin(const char* name, const Array& queries, const Array& keys, const Array& values,
                Gates<double> g, const Array& state, Reads reads = Reads::inclusive) const {
    return {units, name, queries, keys, values, g, state, form.width, reads};
  }
  // What the wanted rows of the next Lin's output do with its value of token j: M_tj = Omega_tj q_t.k_j.
  Array mixing(const Array& queries, const Array& keys, Gates<double> g) const {
    return decay_between(g, wanted).cwiseProduct(wanted.pick(queries) * keys.transpose());
  }
  ReadAsValue as_output(double factor = 1) const { return ReadAsValue(wanted, factor); }
  ReadAsValue as_value(Array mixing) const { return {wanted, std::move(mixing)}; }
  ReadAsKey as_key(const Array& values, Gates<double> g, std::vector<double> row_scale = {}) const {
    return {wanted, q, values, g, std::move(row_scale)};
  }
  ReadAsQuery as_query(std::vector<Array> moments) const { return {wanted, std::move(moments)}; }
  void collect(const LinStages& lin, const Reader& reader) { lin.collect(reader, sum, form.threads); }
  // Rows that are stored between two Lins, after `operations` elementwise steps of the given size.
  void rows(const char* name, const LinStages& lin, const Array& stored, const Reader& reader,
            const Array& arithmetic = {}) {
    sum.range(name, units.operand_format(), stored);
    sum.rounded(name, units.operand, [&](Norm p) { return reader.rows(p, lin, size_of(p, stored)); });
    if (arithmetic.size() > 0) sum.arithmetic(reader.rows(Norm::absolute, lin, units.step * arithmetic));
  }
  // o += ridge (Lin(Q, Q, V)); returns what is added.
  Array ridge() {
    if (head.ridge == 0) return Array::Zero(q.rows(), v.cols());
    const LinStages c = lin("ridge", q, q, v, gates(1), initial("C"));
    collect(c, as_output(head.ridge));
    const Array added = head.ridge * c.o;
    sum.arithmetic(2 * units.step * wanted.pick(added).cwiseAbs());  // the ridge itself and the product
    return added;
  }
  ErrorModel finish(const Array& o, double additions) {
    if (additions > 0) sum.arithmetic(additions * units.step * wanted.pick(o).cwiseAbs());
    return finish_output(form, sum, o);
  }
};

// Lin(A, Q, V) - Lin(Q, K, gamma B) of the printed and the masked operator, with A = Lin(Q, K, K), B before
// the token.
ErrorModel hla2_subtract(const FormError& form, int power, double factor) {
  Hla h(form);
  const LinStages a = h.lin("a", h.q, h.k, h.k, h.gates(1), h.initial("S"));
  const LinStages u = h.lin("u", a.o, h.q, h.v, h.gates(1), h.initial("C"));
  const LinStages b = h.lin("b", h.k, h.q, h.v, h.gates(1), h.initial("C"), Reads::exclusive);
  const Array b_rows = factor * b.o;
  const LinStages g = h.lin("g", h.q, h.k, b_rows, h.gates(power), h.initial("G"));
  const ReadAsQuery as_query = h.as_query(moments_after(h.q, h.v, h.gates(1), h.initial("C"), h.wanted));
  const Array mixing = h.mixing(h.q, h.k, h.gates(power));
  const ReadAsValue as_value = h.as_value(mixing);
  h.collect(a, as_query);
  h.rows("a.rows", a, a.o, as_query);
  h.collect(u, h.as_output());
  h.collect(b, h.as_value(factor * mixing));
  h.rows("b.rows", b, b_rows, as_value, factor == 1 ? Array() : Array(2 * b_rows.cwiseAbs()));
  h.collect(g, h.as_output());
  const Array ridge = h.ridge(), o = u.o - g.o;
  if (h.head.ridge != 0) h.sum.arithmetic(h.units.step * h.wanted.pick(o).cwiseAbs());
  return h.finish(o + ridge, 1);
}

ErrorModel hla2_direct(const FormError& form) {
  Hla h(form);
  const Array S = h.initial("S"), C = h.initial("C");
  const LinStages a = h.lin("a", h.q, h.k, h.k, h.gates(1), S.transpose());
  const Array start = S * C - h.initial("G");
  const LinStages f = h.lin("f", h.q, a.o, h.v, h.gates(2), start);
  const ReadAsKey as_key = h.as_key(h.v, h.gates(2));
  h.collect(a, as_key);
  h.rows("a.rows", a, a.o, as_key);
  h.collect(f, h.as_output());
  // F_0 = S C - G is made by the kernel, in `accumulate`.
  const Array made =
      h.units.gamma_step(h.q.cols() + 1) * (S.cwiseAbs() * C.cwiseAbs()) + h.units.step * start.cwiseAbs();
  PerChunk error(f.chunks.size() + 1, Array::Zero(start.rows(), start.cols()));
  error[0] = made;
  h.sum.arithmetic(h.as_output().states(Norm::absolute, f, error, true));
  const Array ridge = h.ridge();
  return h.finish(f.o + ridge, h.head.ridge == 0 ? 0 : 1);
}

ErrorModel hla2_unmasked(const FormError& form) {
  Hla h(form);
  const LinStages a = h.lin("a", h.q, h.k, h.k, h.gates(1), h.initial("S"));
  const Array ridge = h.head.ridge * h.q, rows = a.o + ridge;
  const LinStages u = h.lin("u", rows, h.q, h.v, h.gates(1), h.initial("C"));
  const ReadAsQuery as_query = h.as_query(moments_after(h.q, h.v, h.gates(1), h.initial("C"), h.wanted));
  h.collect(a, as_query);
  h.rows("a.rows", a, rows, as_query,
         h.head.ridge == 0 ? Array()
                           : Array((2 + h.units.query / h.units.step) * ridge.cwiseAbs() + rows.cwiseAbs()));
  h.collect(u, h.as_output());
  return h.finish(u.o, 0);
}

ErrorModel ahla(const FormError& form) {
  Hla h(form);
  const LinStages r = h.lin("r", h.q, h.k, h.v, h.gates(1), h.initial("P"));
  const LinStages e = h.lin("e", h.q, h.k, r.o, h.gates(1), h.initial("E"));
  const ReadAsValue as_value = h.as_value(h.mixing(h.q, h.k, h.gates(1)));
  h.collect(r, as_value);
  h.rows("r.rows", r, r.o, as_value);
  h.collect(e, h.as_output());
  return h.finish(e.o, 0);
}

ErrorModel hla3_masked(const FormError& form) {
  Hla h(form);
  const LinStages a = h.lin("a", h.q, h.k, h.k, h.gates(1), h.initial("SK").transpose());
  const LinStages r = h.lin("r", h.q, h.k, h.v, h.gates(1), h.initial("P"));
  const LinStages f = h.lin("f", h.q, a.o, r.o, h.gates(3), h.initial("F"));
  const ReadAsKey as_key = h.as_key(r.o, h.gates(3));
  const ReadAsValue as_value = h.as_value(h.mixing(h.q, a.o, h.gates(3)));
  h.collect(a, as_key);
  h.rows("a.rows", a, a.o, as_key);
  h.collect(r, as_value);
  h.rows("r.rows", r, r.o, as_value);
  h.collect(f, h.as_output());
  return h.finish(f.o, 0);
}

ErrorModel hla3_unmasked(const FormError& form) {
  Hla h(form);
  const LinStages a = h.lin("a", h.q, h.k, h.k, h.gates(1), h.initial("SK"));
  const LinStages b = h.lin("b", a.o, h.q, h.q, h.gates(1), h.initial("SQ"));
  const LinStages c = h.lin("c", b.o, h.k, h.v, h.gates(1), h.initial("P"));
  const auto P = moments_after(h.k, h.v, h.gates(1), h.initial("P"), h.wanted);
  auto both = moments_after(h.q, h.q, h.gates(1), h.initial("SQ"), h.wanted);
  for (std::size_t t = 0; t < both.size(); ++t) both[t] = Array(both[t] * P[t]);
  const ReadAsQuery through_c = h.as_query(P), through_both = h.as_query(std::move(both));
  h.collect(a, through_both);
  h.rows("a.rows", a, a.o, through_both);
  h.collect(b, through_c);
  h.rows("b.rows", b, b.o, through_c);
  h.collect(c, h.as_output());
  return h.finish(c.o, 0);
}

// y_j only enters as y_j.k_j, in the coefficient of k_j as a key: |y_j error| |k_j|, without the sum's
// cancellation.
class ReadAsCoefficient : public ReadAsValue {
 public:
  ReadAsCoefficient(const RowSet& rows, const Array& k, Array mixing, Array v)
      : ReadAsValue(rows), k_(k), mixing_(std::move(mixing)), v_(std::move(v)) {}
  Array rows(Norm p, const LinStages&, const Array& error) const override {
    const Array along = error.cwiseProduct(size_of(p, k_)).rowwise().sum();
    return size_of(p, mixing_) * (diagonal(along) * size_of(p, v_));
  }

 private:
  static Array diagonal(const Array& column) { return column.col(0).asDiagonal(); }
  Array k_, mixing_, v_;
};

ErrorModel hla3_printed(const FormError& form) {
  Hla h(form);
  const Gates<double> none;
  const Array K0 = h.initial("SK"), Q0 = h.initial("SQ"), P0 = h.initial("P");
  const LinStages x = h.lin("x", h.q, h.k, h.k, none, K0.transpose(), Reads::exclusive);
  const LinStages y = h.lin("y", h.k, h.q, h.q, none, Q0, Reads::exclusive);
  const LinStages z = h.lin("z", h.q, h.k, h.v, none, P0, Reads::exclusive);
  const Index n = h.head.tokens();
  const double u = h.units.step,
               dot = h.units.gamma_step(h.q.cols()) + h.units.query * (1 + h.units.gamma_step(h.q.cols()));
  Array a(n, h.k.cols()), b(n, h.v.cols()), a_error = a, b_error = b;
  std::vector<double> scores;
  for (Index t = 0; t < n; ++t) {
    const double score = h.q.row(t).dot(h.k.row(t)), size = h.q.row(t).cwiseAbs().dot(h.k.row(t).cwiseAbs());
    const double pair = y.o.row(t).dot(h.k.row(t)),
                 pair_size = y.o.row(t).cwiseAbs().dot(h.k.row(t).cwiseAbs());
    const double coefficient = pair + score * score, s = std::abs(score), score_error = dot * size;
    scores.push_back(score);
    a.row(t) = score * x.o.row(t) + coefficient * h.k.row(t);
    b.row(t) = score * z.o.row(t);
    const double coefficient_error =
        dot * pair_size + 2 * s * score_error + u * score * score + 2 * u * std::abs(coefficient);
    a_error.row(t) = (score_error + u * s) * x.o.row(t).cwiseAbs() +
                     coefficient_error * h.k.row(t).cwiseAbs() + u * a.row(t).cwiseAbs();
    b_error.row(t) = (score_error + u * s) * z.o.row(t).cwiseAbs();
  }
  const Array start = K0 * Q0 * P0 - h.initial("G");
  const LinStages f = h.lin("f", h.q, a, h.v, none, start);
  const LinStages g = h.lin("g", h.q, h.k, b, none, Array::Zero(start.rows(), start.cols()));
  const Array mixing = h.mixing(h.q, h.k, none);
  Array scored = mixing;
  for (Index j = 0; j < n; ++j) scored.col(j) *= scores[static_cast<std::size_t>(j)];
  const ReadAsKey as_key = h.as_key(h.v, none), scored_key = h.as_key(h.v, none, scores);
  const ReadAsValue as_value = h.as_value(mixing);
  h.collect(x, scored_key);
  ErrorSum bounded(h.units, h.wanted.count(), h.v.cols());
  y.collect(ReadAsCoefficient(h.wanted, h.k, mixing, h.v), bounded, form.threads);
  h.sum.absorb(bounded);
  h.collect(z, h.as_value(scored));
  h.rows("a.rows", x, a, as_key);
  h.rows("b.rows", z, b, as_value);
  h.sum.arithmetic(as_key.rows(Norm::absolute, x, a_error) + as_value.rows(Norm::absolute, z, b_error));
  h.collect(f, h.as_output());
  h.collect(g, h.as_output());
  PerChunk error(f.chunks.size() + 1, Array::Zero(start.rows(), start.cols()));
  error[0] = h.units.gamma_step(2 * h.q.cols() + 1) * (K0.cwiseAbs() * Q0.cwiseAbs() * P0.cwiseAbs()) +
             u * start.cwiseAbs();
  h.sum.arithmetic(h.as_output().states(Norm::absolute, f, error, true));
  return h.finish(f.o + g.o, 1);
}

}  // namespace

std::optional<ErrorModel> first_order_chunk_error(const FormError& form) {
  Hla h(form);
  const LinStages o = h.lin("o", h.q, h.k, h.v, declared_gates(form),
                            to_array(initial_moment(form.head, "S", form.head.q.cols(), form.head.v.cols())));
  h.collect(o, h.as_output());
  return h.finish(o.o, 0);
}

std::optional<ErrorModel> hla_chunk_error(const FormError& form) {
  const std::string &name = form.declaration.name, &variant = form.declaration.variant;
  if (name == "ahla") return ahla(form);
  if (name == "hla2" && variant == "masked")
    return form.algebra == 0 ? hla2_subtract(form, 2, form.head.decay) : hla2_direct(form);
  if (name == "hla2" && variant == "printed") return hla2_subtract(form, 1, 1);
  if (name == "hla2" && variant == "unmasked") return hla2_unmasked(form);
  if (name == "hla3" && variant == "masked") return hla3_masked(form);
  if (name == "hla3" && variant == "unmasked") return hla3_unmasked(form);
  if (name == "hla3" && variant == "printed") return hla3_printed(form);
  return std::nullopt;
}

}  // namespace attest
