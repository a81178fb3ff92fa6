#include "reference/operators/common/error_lin.hpp"

#include <algorithm>
#include <utility>

#include "reference/numeric/parallel.hpp"

namespace attest {
namespace {

// gates(), whose member gate() is protected in Arithmetic.
struct ExactDecay : Arithmetic<double> {
  static double step(const Gates<double>& gates, Index t) { return gate(gates, t); }
};

Array diagonal(const Array& column) { return column.col(0).asDiagonal(); }

// sum += along * size(p, seen), a row of which is a sum of `kept` of itself and `more` of another.
void add_product(Norm p, const Eigen::Ref<const Eigen::RowVectorXd>& along, double kept, double more,
                 const Array& other, Array& seen, Eigen::Ref<Eigen::RowVectorXd> sum) {
  for (Index x = 0; x < seen.rows(); ++x) {
    auto row = seen.row(x);
    if (kept != 0)
      row = kept * row + more * other.row(x);
    else
      row = more * other.row(x);
    if (along.size() == 0) continue;
    if (p == Norm::absolute)
      sum += along(x) * row.cwiseAbs();
    else
      sum += along(x) * row.cwiseAbs2();
  }
}

}  // namespace

double step_gate(const Gates<double>& gates, Index t) { return ExactDecay::step(gates, t); }

Array decay_between(const Gates<double>& gates, const RowSet& rows) {
  Array omega = Array::Zero(rows.count(), rows.tokens());
  for (Index i = 0; i < rows.count(); ++i) {
    double weight = 1;
    for (Index j = rows.token(i); j >= 0 && weight != 0; --j) {
      omega(i, j) = weight;
      weight *= step_gate(gates, j);
    }
  }
  return omega;
}

std::vector<Array> moments_after(const Array& k, const Array& v, const Gates<double>& gates, Array state,
                                 const RowSet& rows) {
  std::vector<Array> moments;
  for (Index i = 0, t = 0; i < rows.count(); ++i) {
    for (; t <= rows.token(i); ++t) {
      if (const double gate = step_gate(gates, t); gate != 1) state *= gate;
      state.noalias() += k.row(t).transpose() * v.row(t);
    }
    moments.push_back(state);
  }
  return moments;
}

LinStages::LinStages(const Units& units, std::string label, Array queries, Array keys_in, Array values,
                     Gates<double> g, Array state, Index width, Reads reads)
    : name(std::move(label)),
      q(std::move(queries)),
      k(std::move(keys_in)),
      v(std::move(values)),
      gates(g),
      shift(reads == Reads::inclusive ? 0 : 1),
      o(Array::Zero(q.rows(), v.cols())),
      units_(units) {
  ExactDecay exact;
  for (Index first = 0; first < q.rows(); first += width) {
    const Index size = std::min(width, q.rows() - first);
    LinChunk c{first,
               size,
               to_array(exact.decay(gates, first, first + size)),
               gate_error(units, gates, first, first + size),
               Array::Zero(size, 1),
               Array::Zero(size, size),
               k.middleRows(first, size),
               state};
    const Array scores = q.middleRows(first, size) * k.middleRows(first, size).transpose();
    for (Index t = 0; t < size; ++t) {
      for (Index s = 0; s + shift <= t; ++s) c.weights(t, s) = c.decay(t + 1 - shift, s + 1) * scores(t, s);
      c.read(t, 0) = c.decay(t + 1 - shift, 0);
      c.keys.row(t) *= c.decay(size, t + 1);
    }
    o.middleRows(first, size) =
        c.weights * v.middleRows(first, size) + diagonal(c.read) * q.middleRows(first, size) * state;
    state = c.through() * state + c.keys.transpose() * v.middleRows(first, size);
    chunks.push_back(std::move(c));
  }
  final_state = state;
}

PerChunk LinStages::weights_arithmetic() const {
  PerChunk result;
  for (const LinChunk& c : chunks) {
    const Array magnitude =
        q.middleRows(c.first, c.size).cwiseAbs() * k.middleRows(c.first, c.size).cwiseAbs().transpose();
    const double product = units_.gamma(q.cols()) + 2 * units_.input;
    Array error = Array::Zero(c.size, c.size);
    for (Index t = 0; t < c.size; ++t)
      for (Index s = 0; s + shift <= t; ++s) {
        const Index row = t + 1 - shift;
        error(t, s) = std::abs(c.weights(t, s)) * (c.gate_error(row, s + 1) + units_.step) +
                      c.decay(row, s + 1) * product * magnitude(t, s);
      }
    result.push_back(std::move(error));
  }
  return result;
}

// A row is one sum, in any order, of what the chunk and the state before it give: an accumulator that goes on from one to the
// other is charged too.
Array LinStages::rows_arithmetic() const {
  Array error = Array::Zero(o.rows(), o.cols());
  for (const LinChunk& c : chunks) {
    const Array q_c = q.middleRows(c.first, c.size), v_c = v.middleRows(c.first, c.size);
    Array read_error = c.read;
    for (Index t = 0; t < c.size; ++t) read_error(t, 0) *= c.gate_error(t + 1 - shift, 0) + units_.step;
    const Array carried = (q_c * c.state).cwiseAbs(), magnitude = q_c.cwiseAbs() * c.state.cwiseAbs();
    const double sum = units_.gamma(c.size + (c.state.isZero(0) ? 0 : q.cols())) + units_.input;
    error.middleRows(c.first, c.size) +=
        sum * (c.weights.cwiseAbs() * v_c.cwiseAbs() + diagonal(c.read) * magnitude) +
        diagonal(read_error) * carried;
  }
  return error;
}

// Error in the state after each chunk from the chunk's own arithmetic: entry b + 1 for chunk b.
PerChunk LinStages::carry_arithmetic() const {
  PerChunk result{Array::Zero(k.cols(), v.cols())};
  for (std::size_t b = 0; b < chunks.size(); ++b) {
    const LinChunk& c = chunks[b];
    const Array& after = b + 1 < chunks.size() ? chunks[b + 1].state : final_state;
    Array error = (units_.gamma(c.size) + units_.input) *
                      (c.keys.cwiseAbs().transpose() * v.middleRows(c.first, c.size).cwiseAbs()) +
                  units_.step * after.cwiseAbs();
    error +=
        (c.gate_error(c.size, 0) + (c.through() == 1 ? 0 : units_.step)) * c.through() * c.state.cwiseAbs();
    result.push_back(std::move(error));
  }
  return result;
}

namespace {

// What one rounding of a stage, or of the arithmetic (no label), costs the output.
struct Walk {
  std::string label;
  double unit;
  Norm norm;
  std::function<Array(Norm)> read;
};

// A few at a time, for the sake of memory; added in their order, whoever makes them.
void add_walks(const std::vector<Walk>& walks, int threads, ErrorSum& sum) {
  const std::size_t most = static_cast<std::size_t>(std::clamp(threads, 1, 8));
  Array absolute;
  for (std::size_t first = 0; first < walks.size(); first += most) {
    std::vector<Array> read(std::min(most, walks.size() - first));
    for_each_parallel(std::ssize(read), threads, [&](Index i) {
      const auto at = static_cast<std::size_t>(i);
      read[at] = walks[first + at].read(walks[first + at].norm);
    });
    for (std::size_t i = 0; i < read.size(); ++i) {
      const Walk& walk = walks[first + i];
      if (walk.label.empty())
        sum.arithmetic(read[i]);
      else if (walk.norm == Norm::absolute)
        absolute = std::move(read[i]);
      else
        sum.rounded(walk.label, walk.unit, absolute, read[i]);
    }
  }
}

}  // namespace

void LinStages::collect(const Reader& reader, ErrorSum& sum, int threads) const {
  std::vector<Walk> walks;
  PerChunk weights, states, first_state, carried{Array::Zero(k.cols(), v.cols())}, keys, faded_arithmetic;
  for (const LinChunk& c : chunks) {
    sum.gates(c.gate_error);
    sum.range(name + ".weights", units_.operand_format(), c.weights);
    sum.range(name + ".state", units_.operand_format(), c.state);
    weights.push_back(c.weights), keys.push_back(c.keys);
    const bool initial = c.first == 0;
    states.push_back(initial ? Array::Zero(k.cols(), v.cols()) : c.state);
    first_state.push_back(initial ? c.state : Array::Zero(k.cols(), v.cols()));
    if (!initial) carried.push_back(c.state);
    if (!initial) sum.range(name + ".carry", units_.contract.state, c.state);
    Array faded = c.keys.cwiseAbs();
    for (Index t = 0; t < c.size; ++t)
      faded.row(t) *= c.gate_error(c.size, t + 1) + (c.decay(c.size, t + 1) == 1 ? 0 : units_.step);
    faded_arithmetic.push_back(std::move(faded));
  }
  const auto sized = [](Norm p, const PerChunk& all) {
    PerChunk result;
    for (const Array& one : all) result.push_back(size_of(p, one));
    return result;
  };
  using Read = std::function<Array(Norm)>;
  const auto rounded = [&](const char* stage, double unit, const Read& read) {
    if (unit == 0) return;
    walks.push_back({name + stage, unit, Norm::absolute, read});
    walks.push_back({name + stage, unit, Norm::square, read});
  };
  const auto arithmetic = [&](const Read& read) { walks.push_back({"", 1, Norm::absolute, read}); };
  rounded(".weights", units_.operand, [&](Norm p) { return reader.weights(p, *this, sized(p, weights)); });
  rounded(".state", units_.operand,
          [&](Norm p) { return reader.states(p, *this, sized(p, first_state), false); });
  rounded(".state", units_.carried_state,
          [&](Norm p) { return reader.states(p, *this, sized(p, states), false); });
  rounded(".carry", units_.carry, [&](Norm p) { return reader.states(p, *this, sized(p, carried), true); });
  rounded(".keys", units_.operand, [&](Norm p) { return reader.keys(p, *this, sized(p, keys)); });
  arithmetic([&](Norm p) { return reader.weights(p, *this, weights_arithmetic()); });
  arithmetic([&](Norm p) { return reader.rows(p, *this, rows_arithmetic()); });
  arithmetic([&](Norm p) { return reader.states(p, *this, carry_arithmetic(), true); });
  arithmetic([&](Norm p) { return reader.keys(p, *this, faded_arithmetic); });
  add_walks(walks, threads, sum);
}

// ---- as values

Array ReadAsValue::rows(Norm p, const LinStages&, const Array& error) const {
  return mixing_ ? Array(size_of(p, *mixing_) * error) : Array(size_of(p, factor_) * rows_.pick(error));
}

Array ReadAsValue::weights(Norm p, const LinStages& lin, const PerChunk& error) const {
  Array in_rows = Array::Zero(lin.tokens(), lin.v.cols());
  for (std::size_t b = 0; b < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    in_rows.middleRows(c.first, c.size) = error[b] * size_of(p, lin.v.middleRows(c.first, c.size));
  }
  return rows(p, lin, in_rows);
}

Array ReadAsValue::states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const {
  if (mixing_) return read_states(p, lin, error, carried);
  Array in_rows = Array::Zero(lin.tokens(), lin.v.cols());
  Array held = Array::Zero(lin.k.cols(), lin.v.cols());
  for (std::size_t b = 0; b < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    held = carried ? Array(held + error[b]) : error[b];
    in_rows.middleRows(c.first, c.size) =
        size_of(p, diagonal(c.read) * lin.q.middleRows(c.first, c.size)) * held;
    held *= size_of(p, c.through());
  }
  return rows(p, lin, in_rows);
}

Array ReadAsValue::read_states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const {
  const Index n = rows_.count();
  Array sum = Array::Zero(n, lin.v.cols()), row_of_state = Array::Zero(n, lin.k.cols());
  for (std::size_t b = lin.chunks.size(); b-- > 0;) {
    const LinChunk& c = lin.chunks[b];
    const Array own =
        mixing_->middleCols(c.first, c.size) * diagonal(c.read) * lin.q.middleRows(c.first, c.size);
    row_of_state = carried ? Array(own + c.through() * row_of_state) : own;
    const Index rest = n - rows_.before(c.first);
    sum.bottomRows(rest) += size_of(p, row_of_state.bottomRows(rest)) * error[b];
  }
  return sum;
}

Array ReadAsValue::keys(Norm p, const LinStages& lin, const PerChunk& error) const {
  PerChunk in_states{Array::Zero(lin.k.cols(), lin.v.cols())};
  for (std::size_t b = 0; b < lin.chunks.size(); ++b)
    in_states.push_back(error[b].transpose() *
                        size_of(p, lin.v.middleRows(lin.chunks[b].first, lin.chunks[b].size)));
  return states(p, lin, in_states, true);
}

// ---- as keys

ReadAsKey::ReadAsKey(RowSet rows, const Array& q, Array v, Gates<double> gates, std::vector<double> row_scale)
    : rows_(std::move(rows)),
      q_(rows_.pick(q)),
      v_(std::move(v)),
      gates_(gates),
      row_scale_(std::move(row_scale)),
      omega_(decay_between(gates, rows_)) {
  if (row_scale_.empty()) row_scale_.assign(static_cast<std::size_t>(v_.rows()), 1.0);
  for (Index j = 0; j < v_.rows(); ++j) omega_.col(j) *= row_scale_[static_cast<std::size_t>(j)];
}

Array ReadAsKey::rows(Norm p, const LinStages&, const Array& error) const {
  const Array along_query = size_of(p, q_) * error.transpose();
  return size_of(p, omega_).cwiseProduct(along_query) * size_of(p, v_);
}

Array ReadAsKey::weights(Norm p, const LinStages& lin, const PerChunk& error) const {
  Array along_query = Array::Zero(rows_.count(), lin.tokens());
  for (std::size_t b = 0; b < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    const Array projected = size_of(p, q_ * lin.v.middleRows(c.first, c.size).transpose());
    along_query.middleCols(c.first, c.size) = projected * error[b].transpose();
  }
  return size_of(p, omega_).cwiseProduct(along_query) * size_of(p, v_);
}

// Row t reads sum_j Omega_tj scale_j w_j q_j^T v_j of the tokens from chunk b on, w_j what the inner Lin's row j reads of
// the state before b. From the last chunk back to the first, a chunk at a time: its sum up to its end, then faded on to t.
Array ReadAsKey::read_states(Norm p, const LinStages& lin, const PerChunk& along, bool carried) const {
  Array sum = Array::Zero(rows_.count(), v_.cols());
  const Chunks& chunks = whole(lin);
  const Eigen::RowVectorXd none;
  for (Index i = 0; i < rows_.count(); ++i) {
    const Index t = rows_.token(i);
    std::size_t b = 0;
    while (lin.chunks[b].last() <= t) ++b;
    const auto [own, fade] = of_chunk(lin, lin.chunks[b], t + 1);
    Array seen(own.rows(), own.cols());
    double kept = 0, omega = 1;  // of the gates after the chunk before, up to t
    const Array* other = &own;
    for (;; --b) {
      const bool read = along[b].size() > 0;
      if (read || carried)
        add_product(p, read ? Eigen::RowVectorXd(along[b].row(i)) : none, kept, omega, *other, seen,
                    sum.row(i));
      if (b == 0) break;
      omega = other == &own ? fade : omega * chunks.fades[b];
      kept = carried ? lin.chunks[b - 1].through() : 0;
      other = &chunks.sums[b - 1];
    }
  }
  return sum;
}

std::pair<Array, double> ReadAsKey::of_chunk(const LinStages& lin, const LinChunk& c, Index end) const {
  Array faded(end - c.first, lin.q.cols());
  double omega = 1;
  for (Index j = end; j-- > c.first; omega *= step_gate(gates_, j))
    faded.row(j - c.first) =
        (omega * row_scale_[static_cast<std::size_t>(j)] * c.read(j - c.first, 0)) * lin.q.row(j);
  return {faded.transpose() * v_.middleRows(c.first, end - c.first), omega};
}

const ReadAsKey::Chunks& ReadAsKey::whole(const LinStages& lin) const {
  std::call_once(chunks_->once, [&] {
    for (const LinChunk& c : lin.chunks) {
      auto [sum, fade] = of_chunk(lin, c, c.last());
      chunks_->sums.push_back(std::move(sum)), chunks_->fades.push_back(fade);
    }
  });
  return *chunks_;
}

Array ReadAsKey::states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const {
  PerChunk along(lin.chunks.size());
  bool any = false;
  for (std::size_t b = 0; b < lin.chunks.size(); ++b)
    if (!error[b].isZero(0)) along[b] = size_of(p, q_) * error[b].transpose(), any = true;
  return any ? read_states(p, lin, along, carried) : Array(Array::Zero(rows_.count(), v_.cols()));
}

Array ReadAsKey::keys(Norm p, const LinStages& lin, const PerChunk& error) const {
  PerChunk along(lin.chunks.size());
  for (std::size_t b = 0; b + 1 < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    along[b + 1] = size_of(p, q_ * lin.v.middleRows(c.first, c.size).transpose()) * error[b];
  }
  return read_states(p, lin, along, true);
}

// ---- as queries

Array ReadAsQuery::rows(Norm p, const LinStages&, const Array& error) const {
  Array sum = zero();
  for (Index i = 0; i < rows_.count(); ++i)
    sum.row(i) = error.row(rows_.token(i)) * size_of(p, moments_[static_cast<std::size_t>(i)]);
  return sum;
}

Array ReadAsQuery::weights(Norm p, const LinStages& lin, const PerChunk& error) const {
  Array sum = zero();
  for (std::size_t b = 0; b < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    for (Index i = rows_.before(c.first); i < rows_.before(c.last()); ++i) {
      const Index t = rows_.token(i) - c.first;
      const Array values = lin.v.middleRows(c.first, t + 1) * moments_[static_cast<std::size_t>(i)];
      sum.row(i) = error[b].row(t).head(t + 1) * size_of(p, values);
    }
  }
  return sum;
}

Array ReadAsQuery::states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const {
  return rows(p, lin, ReadAsValue(RowSet(lin.tokens())).states(p, lin, error, carried));
}

// What row t reads of the faded keys of an earlier chunk, whose values the moment weighs.
Array ReadAsQuery::keys(Norm p, const LinStages& lin, const PerChunk& error) const {
  Array sum = zero();
  for (std::size_t b = 1; b < lin.chunks.size(); ++b) {
    const LinChunk& c = lin.chunks[b];
    const Index from = rows_.before(c.first), count = rows_.before(c.last()) - from;
    if (count == 0) continue;
    const Array read = rows_.pick(size_of(p, diagonal(c.read) * lin.q.middleRows(c.first, c.size)), c.first);
    Array cost(count, c.first);
    double through = 1;
    for (std::size_t e = b; e-- > 0;) {
      const LinChunk& earlier = lin.chunks[e];
      cost.middleCols(earlier.first, earlier.size) = through * (read * error[e].transpose());
      through *= size_of(p, earlier.through());
    }
    for (Index i = 0; i < count; ++i)
      sum.row(from + i) =
          cost.row(i) * size_of(p, lin.v.topRows(c.first) * moments_[static_cast<std::size_t>(from + i)]);
  }
  return sum;
}

}  // namespace attest
