// Error model of the chunk form of the delta rules, by walking back from the output row. In the output's own
// chunk the coefficient on U is r = P_t and the one on S is g_t q_t - W^T r; in an earlier chunk, y the row
// at its end, r = K' y and the row at its start is Gamma_end y - W^T r. With R = V - F S and U = T R an error
// in
//   U costs r, T costs r_s R_i, F costs (r T)_i S, W costs r_s S, N costs (r N^-1)_s U_i, P costs U, K' costs
//   y U^T.
// O and T V - W S are sums of all their terms, in any order.
// A kernel may make R first, stored, and T R, without W: an error in R costs r T and counts where it is more than that of W.
#include "reference/operators/common/error_delta.hpp"

namespace attest {

DeltaStages::DeltaStages(const FormError& form, Index start, Index count)
    : first(start),
      size(count),
      q(rows_of(form.head.q, start, count)),
      k(rows_of(form.head.k, start, count)),
      v(rows_of(form.head.v, start, count)) {
  const Units& units = form.units;
  const Gates<double> gates = declared_gates(form);
  Arithmetic<double> exact;
  decay = to_array(exact.decay(gates, first, first + size));
  gate_error = attest::gate_error(units, gates, first, first + size);
  const double product = units.gamma(k.cols()) + 2 * units.input, u = units.step;
  const Array qk = q * k.transpose(), kk = k * k.transpose();
  const Array qk_size = q.cwiseAbs() * k.cwiseAbs().transpose(),
              kk_size = k.cwiseAbs() * k.cwiseAbs().transpose();
  scores = n = scores_error = n_error = Array::Zero(size, size);
  start_keys = keys = k;
  start_keys_error = keys_error = k.cwiseAbs();
  Eigen::VectorXd beta(size);
  for (Index t = 0; t < size; ++t) {
    beta(t) = form.head.beta[static_cast<std::size_t>(first + t)];
    for (Index s = 0; s <= t; ++s) {
      const double weight = decay(t + 1, s + 1), relative = gate_error(t + 1, s + 1);
      scores(t, s) = weight * qk(t, s);
      scores_error(t, s) = weight * product * qk_size(t, s) + (relative + u) * std::abs(scores(t, s));
      if (s == t) continue;
      const double scale = std::abs(beta(t)) * weight;
      n(t, s) = beta(t) * weight * kk(t, s);
      n_error(t, s) = scale * product * kk_size(t, s) + (relative + 2 * u) * std::abs(n(t, s));
    }
    n(t, t) = 1;
    start_keys.row(t) *= decay(t + 1, 0), keys.row(t) *= decay(size, t + 1);
    start_keys_error.row(t) *= decay(t + 1, 0) * (gate_error(t + 1, 0) + (decay(t + 1, 0) == 1 ? 0 : u));
    keys_error.row(t) *= decay(size, t + 1) * (gate_error(size, t + 1) + (decay(size, t + 1) == 1 ? 0 : u));
  }
  inverse = n.triangularView<Eigen::UnitLower>().solve(Array::Identity(size, size));
  ut = inverse * beta.asDiagonal();
  w = ut * start_keys;
  // N X = I + E, |E| <= gamma |N||X| (Higham, theorem 8.5), then the multiplication by beta.
  ut_error = units.gamma(size) * (inverse.cwiseAbs() * n.cwiseAbs() * inverse.cwiseAbs()) *
             beta.cwiseAbs().asDiagonal();
  ut_error += u * ut.cwiseAbs();
  w_error = units.gamma(size) * (ut.cwiseAbs() * start_keys.cwiseAbs());
}

Array DeltaStages::faded_queries() const { return decay.col(0).tail(size).asDiagonal() * q; }

Array DeltaStages::faded_queries_error(const Units& units) const {
  return (decay.col(0).tail(size).array() * (gate_error.col(0).tail(size).array() + units.step + units.query))
             .matrix()
             .asDiagonal() *
         q.cwiseAbs();
}

void check_stages(const DeltaStages& c, ErrorSum& sum) {
  const Format& stored = sum.units().operand_format();
  sum.gates(c.gate_error);
  sum.range("scores", stored, c.scores);
  sum.range("ut", stored, c.ut);
  sum.range("w", stored, c.w);
  const Format& accumulate = sum.units().contract.accumulate;
  const Array keys = c.k.cwiseAbs();
  for (const Array& sizes :
       {Array(keys * keys.transpose()), Array(c.q.cwiseAbs() * keys.transpose()),
        Array(c.ut.cwiseAbs() * c.v.cwiseAbs()), Array(c.ut.cwiseAbs() * c.start_keys.cwiseAbs()),
        Array(c.inverse.cwiseAbs() * c.n.cwiseAbs())})
    sum.range("partial sums", accumulate, sizes);
  if (sum.units().contract.inverse == InverseMethod::powers) sum.undecide("no error model: inverse=powers");
}

namespace {

// A chunk, the state before it, and how every output from the chunk on reads it.
struct Walked {
  DeltaStages c;
  Array state, u, residual;  // S, U, R = V - F S
  Array after;               // S after the chunk
  // Wanted rows from the chunk on: coefficients on U, N^-1 U, T^-1 U; on the operand S; on S after the chunk (own
  // rows 0)
  Array r, z, x, on_state, at_end;
};

std::vector<Walked> walk(const FormError& form, const RowSet& rows, Array state, ErrorSum& sum, Array& o) {
  std::vector<Walked> chunks;
  const Index n = form.head.tokens();
  for (Index first = 0; first < n; first += form.width) {
    DeltaStages c(form, first, std::min(form.width, n - first));
    check_stages(c, sum);
    Array u = c.ut * c.v - c.w * state, residual = c.v - c.start_keys * state;
    o.middleRows(first, c.size) = c.faded_queries() * state + c.scores * u;
    Array after = c.through() * state + c.keys.transpose() * u;
    sum.range("u", form.units.operand_format(), u);
    sum.range("state", form.units.operand_format(), state);
    sum.range("carry", form.units.contract.state, after);
    for (const Array& sizes :
         {Array(c.w.cwiseAbs() * state.cwiseAbs() + c.ut.cwiseAbs() * c.v.cwiseAbs()),
          Array(c.ut.cwiseAbs() * (c.v.cwiseAbs() + c.start_keys.cwiseAbs() * state.cwiseAbs())),
          Array(c.q.cwiseAbs() * state.cwiseAbs() + c.scores.cwiseAbs() * u.cwiseAbs()),
          Array(c.keys.cwiseAbs().transpose() * u.cwiseAbs() + state.cwiseAbs())})
      sum.range("partial sums", form.units.contract.accumulate, sizes);
    chunks.push_back({std::move(c), state, std::move(u), std::move(residual), after, {}, {}, {}, {}, {}});
    state = after;
  }
  Array y = Array::Zero(0, form.head.q.cols());
  for (std::size_t b = chunks.size(); b-- > 0;) {
    Walked& w = chunks[b];
    const DeltaStages& c = w.c;
    const Array own = rows.pick(c.scores, c.first);
    const Index later = y.rows(), seen = own.rows() + later, d = y.cols();
    w.r.resize(seen, c.size), w.at_end.resize(seen, d);
    w.r << own, y * c.keys.transpose();
    w.at_end << Array::Zero(own.rows(), d), y;
    w.z = w.r * c.inverse, w.x = w.r * c.ut;
    w.on_state = -(w.r * c.w);
    w.on_state.topRows(own.rows()) += rows.pick(c.faded_queries(), c.first);
    y = w.on_state;
    y.bottomRows(later) += c.through() * w.at_end.bottomRows(later);
  }
  return chunks;
}

// Terms of what a row of the chunk adds up, of the chunk and of the state before it.
Index terms(const Walked& w) { return w.c.size + (w.state.isZero(0) ? 0 : w.c.k.cols()); }

Array error_of_u(const Walked& w, const Units& units) {
  const DeltaStages& c = w.c;
  const Array residual_sizes = c.v.cwiseAbs() + c.start_keys.cwiseAbs() * w.state.cwiseAbs();
  const double sum = units.gamma(terms(w));
  return (sum + units.input) * (c.ut.cwiseAbs() * c.v.cwiseAbs()) +
         units.gamma(c.k.cols() + 1) * (c.ut.cwiseAbs() * residual_sizes) +
         sum * (c.w.cwiseAbs() * w.state.cwiseAbs()) + c.ut_error * w.residual.cwiseAbs() +
         c.w_error * w.state.cwiseAbs();
}

Array error_of_state(const Walked& w, const Units& units) {
  const DeltaStages& c = w.c;
  return units.gamma(c.size) * (c.keys.cwiseAbs().transpose() * w.u.cwiseAbs()) +
         c.through_error(units) * c.through() * w.state.cwiseAbs() + units.step * w.after.cwiseAbs() +
         c.keys_error.transpose() * w.u.cwiseAbs();
}

// Of o = diag(g) Q S + P U in the chunk itself.
Array error_of_output(const Walked& w, const Units& units) {
  const DeltaStages& c = w.c;
  const Array faded = c.faded_queries(), read = (faded * w.state).cwiseAbs();
  Array relative = c.gate_error.col(0).tail(c.size).array() + units.step;
  const double sum = units.gamma(terms(w));
  return c.scores_error * w.u.cwiseAbs() + sum * (c.scores.cwiseAbs() * w.u.cwiseAbs()) +
         (sum + units.input) * (faded.cwiseAbs() * w.state.cwiseAbs()) +
         Array(relative.col(0).asDiagonal() * read);
}

}  // namespace

std::optional<ErrorModel> delta_chunk_error(const FormError& form) {
  const Units& units = form.units;
  const Index n = form.head.tokens(), columns = form.head.v.cols();
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), columns);
  Array o = Array::Zero(n, columns);
  const auto chunks =
      walk(form, rows, to_array(initial_moment(form.head, "S", form.head.q.cols(), columns)), sum, o);
  // Adds coefficient * source of every chunk to the outputs from that chunk on.
  const auto over_chunks = [&](auto&& term) {
    Array total = Array::Zero(rows.count(), columns);
    for (const Walked& w : chunks) total.bottomRows(w.r.rows()) += term(w);
    return total;
  };
  const auto stage = [&](const char* label, double unit, auto&& term) {
    sum.rounded(label, unit,
                [&](Norm p) { return over_chunks([&](const Walked& w) { return Array(term(w, p)); }); });
  };
  const auto own = [&](const Walked& w, const Array& term) {
    const Array wanted = rows.pick(term, w.c.first);
    Array all = Array::Zero(w.r.rows(), columns);
    all.topRows(wanted.rows()) = wanted;
    return all;
  };
  stage("scores", units.operand,
        [&](const Walked& w, Norm p) -> Array { return own(w, size_of(p, w.c.scores) * size_of(p, w.u)); });
  stage("ut", units.operand, [](const Walked& w, Norm p) -> Array {
    return size_of(p, w.r) * (size_of(p, w.c.ut) * size_of(p, w.residual));
  });
  stage("start_keys", units.operand, [](const Walked& w, Norm p) -> Array {
    return size_of(p, w.x) * (size_of(p, w.c.start_keys) * size_of(p, w.state));
  });
  stage("w", units.operand, [](const Walked& w, Norm p) -> Array {
    return size_of(p, w.r) * (size_of(p, w.c.w) * size_of(p, w.state));
  });
  if (form.any_association)
    stage("w", units.operand, [](const Walked& w, Norm p) -> Array {
      const Array removed = size_of(p, w.c.w) * size_of(p, w.state),
                  residual = size_of(p, w.c.ut) * size_of(p, w.residual);
      return size_of(p, w.r) * (residual - removed).cwiseMax(0);
    });
  stage("u", units.operand,
        [](const Walked& w, Norm p) -> Array { return size_of(p, w.r) * size_of(p, w.u); });
  stage("keys", units.operand, [](const Walked& w, Norm p) -> Array {
    return size_of(p, w.at_end) * (size_of(p, w.c.keys).transpose() * size_of(p, w.u));
  });
  stage("state", units.operand, [](const Walked& w, Norm p) {
    return w.c.first == 0 ? Array(size_of(p, w.on_state) * size_of(p, w.state))
                          : Array(Array::Zero(w.r.rows(), w.u.cols()));
  });
  stage("state", units.carried_state, [](const Walked& w, Norm p) {
    return w.c.first > 0 ? Array(size_of(p, w.on_state) * size_of(p, w.state))
                         : Array(Array::Zero(w.r.rows(), w.u.cols()));
  });
  stage("carry", units.carry,
        [](const Walked& w, Norm p) -> Array { return size_of(p, w.at_end) * size_of(p, w.after); });
  sum.arithmetic(over_chunks([&](const Walked& w) {
    return Array(w.r.cwiseAbs() * error_of_u(w, units) + w.z.cwiseAbs() * (w.c.n_error * w.u.cwiseAbs()) +
                 w.x.cwiseAbs() * (w.c.start_keys_error * w.state.cwiseAbs()) +
                 w.at_end.cwiseAbs() * error_of_state(w, units) + own(w, error_of_output(w, units)));
  }));
  return finish_output(form, sum, o);
}

}  // namespace attest
