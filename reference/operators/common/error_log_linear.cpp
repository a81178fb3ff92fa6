// Error models of the log-linear chunk forms (log_linear_operator.hpp). Transitions act on all blocks alike,
// so one row y per output is walked back as for the delta rules and a block's level only weighs it: with S~_t
// the sum of lambda_t^level(block) S_block over the blocks before a chunk, R_t = diag(lambda) V - F S~_t and
// U_t = T R_t take the places of S, R and U of error_delta.cpp. Scalar transitions need no walk: errors of
// the blocks are carried forward.
#include "reference/operators/common/error_delta.hpp"
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {
namespace {

struct Block {
  Index start;
  int log_size;
  std::vector<Array> parts;  // the state, and whatever travels with it
  bool changed = true;       // since it was last carried: rounding a second time is exact
  Array& state() { return parts[0]; }
};

void merge(std::vector<Block>& cover, double step, std::size_t error_part) {
  for (std::size_t i = 0; i + 1 < cover.size();) {
    Block &left = cover[i], &right = cover[i + 1];
    if (left.log_size != right.log_size || (left.start >> left.log_size) % 2 != 0) {
      ++i;
      continue;
    }
    for (std::size_t part = 0; part < left.parts.size(); ++part) left.parts[part] += right.parts[part];
    left.changed = true;
    if (error_part > 0) left.parts[error_part] += step * left.state().cwiseAbs();
    ++left.log_size;
    cover.erase(cover.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
}

std::vector<Block> initial_blocks(const Head<double>& head, std::size_t parts) {
  std::vector<Block> cover;
  for (const auto& block : initial_cover(head)) {
    const Array state = to_array(block.state);
    cover.push_back({block.start, block.log_size,
                     std::vector<Array>(parts, Array::Zero(state.rows(), state.cols())), true});
    cover.back().state() = state;
  }
  return cover;
}

// The dyadic blocks into which a chunk of positions falls, as (offset, size).
std::vector<std::pair<Index, Index>> pieces(Index position, Index size) {
  std::vector<std::pair<Index, Index>> result;
  for (Index done = 0; done < size;) {
    Index piece = std::bit_floor(static_cast<std::uint64_t>(size - done));
    while ((position + done) % piece != 0) piece /= 2;
    result.emplace_back(done, piece);
    done += piece;
  }
  return result;
}

int log2_of(Index size) { return std::bit_width(static_cast<std::uint64_t>(size)) - 1; }

double level_scale(const Head<double>& head, Index t, Index source_position) {
  return head.level_scales(t, fenwick_level(head.initial.position + t, source_position));
}

// The errors that travel with a block of a scalar transition, after the state itself.
enum Travelling : std::size_t { state_part, keys_part, carry_part, arithmetic_part, parts_count };

struct Shares {
  Array weights, state, first_state, keys, carry, arithmetic;
};

// One pass over the chunks in one norm; the arithmetic is meant for absolute values.
Shares scalar_pass(const FormError& form, Norm p, Array& o, ErrorSum& sum) {
  const Head<double>& head = form.head;
  const Units& units = form.units;
  const Index n = head.tokens(), d = head.q.cols(), columns = head.v.cols();
  const Array zero = Array::Zero(n, columns), q = to_array(head.q), k = to_array(head.k),
              v = to_array(head.v);
  const double u = units.step, product = units.gamma(d) + 2 * units.input;
  Shares shares{zero, zero, zero, zero, zero, zero};
  o = zero;
  std::vector<Block> cover = initial_blocks(head, parts_count);
  Arithmetic<double> exact;
  for (Index first = 0, size; first < n; first += size) {
    const Index position = head.initial.position + first;
    size = aligned_chunk(position, form.width, n - first);
    const Array decay = to_array(exact.decay(declared_gates(form), first, first + size));
    const Array error = gate_error(units, declared_gates(form), first, first + size);
    sum.gates(error);
    const Array v_c = v.middleRows(first, size),
                scores = q.middleRows(first, size) * k.middleRows(first, size).transpose();
    const Array magnitude =
        q.middleRows(first, size).cwiseAbs() * k.middleRows(first, size).cwiseAbs().transpose();
    Array weights = Array::Zero(size, size), weights_error = weights, keys = k.middleRows(first, size),
          keys_error = keys.cwiseAbs();
    for (Index t = 0; t < size; ++t) {
      for (Index s = 0; s <= t; ++s) {
        const double scale = decay(t + 1, s + 1) * level_scale(head, first + t, position + s);
        weights(t, s) = scale * scores(t, s);
        weights_error(t, s) = std::abs(weights(t, s)) * (error(t + 1, s + 1) + 2 * u) +
                              std::abs(scale) * product * magnitude(t, s);
      }
      keys.row(t) *= decay(size, t + 1);
      keys_error.row(t) *= decay(size, t + 1) * (error(size, t + 1) + (decay(size, t + 1) == 1 ? 0 : u));
    }
    sum.range("weights", units.operand_format(), weights);
    o.middleRows(first, size) = weights * v_c;
    shares.weights.middleRows(first, size) = size_of(p, weights) * size_of(p, v_c);
    shares.arithmetic.middleRows(first, size) =
        weights_error * v_c.cwiseAbs() +
        (units.gamma(size) + units.input) * (weights.cwiseAbs() * v_c.cwiseAbs());
    for (Block& block : cover) {
      sum.range("state", units.operand_format(), block.state());
      for (Index t = 0; t < size; ++t) {
        const Index row = first + t;
        const double scale = level_scale(head, row, block.start) * decay(t + 1, 0), sized = size_of(p, scale);
        const Array read = q.row(row) * block.state(), q_size = size_of(p, q.row(row)),
                    q_abs = q.row(row).cwiseAbs();
        o.row(row) += scale * read;
        (first == 0 ? shares.first_state : shares.state).row(row) +=
            sized * (q_size * size_of(p, block.state()));
        shares.keys.row(row) += sized * (q_size * block.parts[keys_part]);
        shares.carry.row(row) += sized * (q_size * block.parts[carry_part]);
        shares.arithmetic.row(row) +=
            std::abs(scale) * (q_abs * block.parts[arithmetic_part] +
                               (units.gamma(d) + units.input) * (q_abs * block.state().cwiseAbs()) +
                               (error(t + 1, 0) + 2 * u) * read.cwiseAbs());
        shares.arithmetic.row(row) += u * o.row(row).cwiseAbs();
      }
    }
    const double through = decay(size, 0), through_error = error(size, 0) + (through == 1 ? 0 : u);
    for (Block& block : cover) {
      block.changed = block.changed || through != 1 || declared_gates(form).log_gate;
      block.state() *= through;
      block.parts[keys_part] *= size_of(p, through), block.parts[carry_part] *= size_of(p, through);
      block.parts[arithmetic_part] =
          Array(through * block.parts[arithmetic_part] + through_error * block.state().cwiseAbs());
    }
    for (const auto& [offset, count] : pieces(position, size)) {
      const Array k_p = keys.middleRows(offset, count), v_p = v_c.middleRows(offset, count);
      Block block{position + offset, log2_of(count), std::vector<Array>(parts_count, Array::Zero(d, columns)),
                  true};
      block.state() = k_p.transpose() * v_p;
      block.parts[keys_part] = size_of(p, k_p).transpose() * size_of(p, v_p);
      block.parts[arithmetic_part] =
          keys_error.middleRows(offset, count).transpose() * v_p.cwiseAbs() +
          (units.gamma(count) + units.input) * (k_p.cwiseAbs().transpose() * v_p.cwiseAbs());
      cover.push_back(std::move(block));
    }
    merge(cover, u, arithmetic_part);
    for (Block& block : cover) {
      sum.range("carry", units.contract.state, block.state());
      if (block.changed) block.parts[carry_part] += size_of(p, block.state());
      block.changed = false;
    }
  }
  return shares;
}

// ---- delta transitions

struct DeltaWalked {
  DeltaStages c;
  std::vector<Block> before, after;
  Array weights_unscaled;  // P T
  Array queries;           // diag(g) Q - P W
  Array gain;              // K'^T T
};

// |P T| o |Lambda|.
Array levelled_sizes(const Head<double>& head, const DeltaStages& c, const Array& weights) {
  Array sizes = weights.cwiseAbs();
  for (Index t = 0; t < c.size; ++t)
    for (Index s = 0; s <= t; ++s)
      sizes(t, s) *= std::abs(level_scale(head, c.first + t, head.initial.position + c.first + s));
  return sizes;
}

// What is added up with the state of a block, by sizes.
void partial_ranges(const Head<double>& head, const DeltaStages& c, const Array& queries, Block& block,
                    ErrorSum& sum) {
  const Contract& contract = sum.units().contract;
  const Array state = block.state().cwiseAbs(), removed = c.w.cwiseAbs() * state;
  double lambda = 1;
  for (Index t = 0; t < c.size; ++t)
    lambda = std::max(lambda, std::abs(level_scale(head, c.first + t, block.start)));
  sum.range("removed", sum.units().operand_format(), Array(c.w * block.state()));
  sum.range("partial sums", contract.accumulate, Array(state + c.keys.cwiseAbs().transpose() * removed));
  sum.range("partial sums", contract.accumulate, Array(lambda * (queries.cwiseAbs() * state)));
}

std::vector<DeltaWalked> walk(const FormError& form, ErrorSum& sum) {
  const Head<double>& head = form.head;
  std::vector<DeltaWalked> chunks;
  std::vector<Block> cover = initial_blocks(head, 1);
  const Format& stored = form.units.operand_format();
  for (Index first = 0, size; first < head.tokens(); first += size) {
    const Index position = head.initial.position + first;
    size = aligned_chunk(position, form.width, head.tokens() - first);
    DeltaStages c(form, first, size);
    check_stages(c, sum);
    Array weights = c.scores * c.ut, queries = c.faded_queries() - c.scores * c.w,
          gain = c.keys.transpose() * c.ut;
    sum.range("weights", stored, levelled_sizes(head, c, weights)), sum.range("queries", stored, queries),
        sum.range("gain", stored, gain);
    std::vector<Block> before = cover;
    for (Block& block : cover) {
      sum.range("state", stored, block.state());
      partial_ranges(head, c, queries, block, sum);
      block.state() = Array(c.through() * block.state() - c.keys.transpose() * (c.w * block.state()));
    }
    for (const auto& [offset, count] : pieces(position, size))
      cover.push_back({position + offset,
                       log2_of(count),
                       {gain.middleCols(offset, count) * c.v.middleRows(offset, count)},
                       true});
    merge(cover, 0, 0);
    for (Block& block : cover) sum.range("carry", form.units.contract.state, block.state());
    chunks.push_back(
        {std::move(c), std::move(before), cover, std::move(weights), std::move(queries), std::move(gain)});
  }
  return chunks;
}

using Labels = std::map<std::string, Array>;

class DeltaPass {
 public:
  DeltaPass(const FormError& form, Norm p)
      : form_(form),
        units_(form.units),
        p_(p),
        n_(form.head.tokens()),
        columns_(form.head.v.cols()),
        arithmetic(Array::Zero(n_, columns_)),
        o(Array::Zero(n_, columns_)) {}

  void run(const std::vector<DeltaWalked>& chunks, const RowSet& rows) {
    for (std::size_t own = 0; own < chunks.size(); ++own) {
      const DeltaWalked& w = chunks[own];
      for (Index i = rows.before(w.c.first); i < rows.before(w.c.last()); ++i) {
        Array y = own_chunk(w, rows.token(i) - w.c.first);
        for (std::size_t b = own; b-- > 0;) y = earlier_chunk(chunks[b], rows.token(i), y);
      }
    }
  }
  Labels labels;

 private:
  const FormError& form_;
  const Units& units_;
  Norm p_;
  Index n_, columns_;

 public:
  Array arithmetic, o;

 private:
  Array sized(const Array& x) const { return size_of(p_, x); }
  void add(const char* label, Index t, const Array& row) {
    labels.try_emplace(label, Array::Zero(n_, columns_)).first->second.row(t) += row;
  }
  // sum of lambda_t^level(block) X_block, and of the sizes; `source` gives X.
  struct Read {
    Array value, sizes, absolute;
    double blocks = 0;
  };
  Read read(const std::vector<Block>& cover, Index t) const {
    Read result;
    result.value = result.sizes = result.absolute = Array::Zero(form_.head.q.cols(), columns_);
    for (const Block& block : cover) {
      const double lambda = level_scale(form_.head, t, block.start);
      result.value += lambda * block.parts[0];
      result.sizes += size_of(p_, lambda) * sized(block.parts[0]);
      result.absolute += std::abs(lambda) * block.parts[0].cwiseAbs();
      ++result.blocks;
    }
    return result;
  }
  // What own and earlier chunks have in common: errors of T, F, W, N^-1 seen through the row r on U.
  void inside(const DeltaWalked& w, Index t, const Array& r, const Array& residual, const Array& u,
              const Array& state) {
    const DeltaStages& c = w.c;
    const Array through_inverse = r * c.inverse, through_ut = r * c.ut;
    add("ut", t, sized(r) * sized(c.ut) * sized(residual));
    add("start_keys", t, sized(through_ut) * sized(c.start_keys) * sized(state));
    add("w", t, sized(r) * sized(c.w) * sized(state));
    if (p_ != Norm::absolute) return;
    const Array size = r.cwiseAbs();
    arithmetic.row(t) += size * c.ut_error * residual.cwiseAbs() +
                         through_inverse.cwiseAbs() * c.n_error * u.cwiseAbs() +
                         (through_ut.cwiseAbs() * c.start_keys_error + size * c.w_error) * state.cwiseAbs();
  }
  // Returns the row on the states before the chunk.
  Array own_chunk(const DeltaWalked& w, Index local) {
    const DeltaStages& c = w.c;
    const Index t = c.first + local, base = form_.head.initial.position + c.first;
    Array lambda = Array::Zero(c.size, 1);
    for (Index i = 0; i <= local; ++i) lambda(i, 0) = level_scale(form_.head, t, base + i);
    const Read before = read(w.before, t);
    const Array scaled_v = lambda.col(0).asDiagonal() * c.v,
                residual = scaled_v - c.start_keys * before.value;
    const Array u = c.ut * residual, r = c.scores.row(local);
    const Array weights = w.weights_unscaled.row(local).cwiseProduct(lambda.col(0).transpose()),
                queries = w.queries.row(local);
    o.row(t) = weights * c.v + queries * before.value;
    add("scores", t, sized(r) * sized(u));
    add("weights", t, sized(weights) * sized(c.v));
    add("queries", t, sized(queries) * sized(before.value));
    add(c.first == 0 ? "state" : "state.carried", t, sized(queries) * before.sizes);
    inside(w, t, r, residual, u, before.value);
    if (p_ == Norm::absolute) {
      const Array size = r.cwiseAbs(), product = size * c.ut.cwiseAbs();
      const Array faded = c.faded_queries_error(units_).row(local) +
                          units_.gamma(c.size) * (size * c.w.cwiseAbs()) + units_.step * queries.cwiseAbs();
      const Array weights_error =
          (units_.gamma(c.size) * product + units_.step * w.weights_unscaled.row(local).cwiseAbs())
              .cwiseProduct(lambda.col(0).transpose().cwiseAbs());
      arithmetic.row(t) += c.scores_error.row(local) * u.cwiseAbs() + weights_error * c.v.cwiseAbs() +
                           (units_.gamma(c.size) + units_.input) * (weights.cwiseAbs() * c.v.cwiseAbs()) +
                           faded * before.value.cwiseAbs() +
                           (units_.gamma(c.q.cols()) + units_.step * (1 + before.blocks)) *
                               (queries.cwiseAbs() * before.absolute) +
                           units_.step * before.blocks * (weights * c.v).cwiseAbs();
    }
    return queries;
  }
  // y: the row on the states after the chunk. Returns the one on the states before it.
  Array earlier_chunk(const DeltaWalked& w, Index t, const Array& y) {
    const DeltaStages& c = w.c;
    const double lambda = level_scale(form_.head, t, form_.head.initial.position + c.first);
    const Read before = read(w.before, t), after = read(w.after, t);
    const Array residual = lambda * c.v - c.start_keys * before.value, u = c.ut * residual;
    const Array r = y * c.keys.transpose(), through_w = r * c.w;
    const Array removed = removed_sizes(w, t);
    add("gain", t, size_of(p_, lambda) * (sized(y) * sized(w.gain) * sized(c.v)));
    add("removed", t, sized(r) * removed);
    add("keys", t, sized(y) * sized(c.keys).transpose() * sized(u));
    add(c.first == 0 ? "state" : "state.carried", t, sized(through_w) * before.sizes);
    add("carry", t, sized(y) * after.sizes);
    inside(w, t, r, residual, u, before.value);
    if (p_ == Norm::absolute) {
      const Array size = y.cwiseAbs();
      const double gain = units_.gamma(c.size);
      arithmetic.row(t) += (size * c.keys_error.transpose()) * u.cwiseAbs() +
                           units_.gamma(c.k.cols()) * (r.cwiseAbs() * c.w.cwiseAbs() * before.absolute) +
                           c.through_error(units_) * c.through() * (size * before.absolute) +
                           gain * (size * c.keys.cwiseAbs().transpose()) * removed +
                           std::abs(lambda) *
                               (gain * (size * c.keys.cwiseAbs().transpose() * c.ut.cwiseAbs()) +
                                (gain + units_.input) * (size * w.gain.cwiseAbs())) *
                               c.v.cwiseAbs() +
                           2 * units_.step * (size * updated_sizes(w, t, lambda));
    }
    return c.through() * y - through_w;
  }
  // sum of the sizes of lambda W S_block
  Array removed_sizes(const DeltaWalked& w, Index t) const {
    Array sum = Array::Zero(w.c.size, columns_);
    for (const Block& block : w.before)
      sum += size_of(p_, level_scale(form_.head, t, block.start)) * sized(w.c.w * block.parts[0]);
    return sum;
  }
  // Every state that a subtraction or a merge may have rounded, by the sizes of what was added.
  Array updated_sizes(const DeltaWalked& w, Index t, double lambda) const {
    Array sum = std::abs(lambda) * (w.gain.cwiseAbs() * w.c.v.cwiseAbs());
    for (const Block& block : w.before)
      sum +=
          std::abs(level_scale(form_.head, t, block.start)) *
          Array(w.c.through() * block.parts[0] - w.c.keys.transpose() * (w.c.w * block.parts[0])).cwiseAbs();
    return merges(w) * sum;
  }
  static double merges(const DeltaWalked& w) { return 1 + static_cast<double>(w.before.size()); }
};

}  // namespace

std::optional<ErrorModel> log_linear_chunk_error(const FormError& form) {
  const Units& units = form.units;
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), form.head.v.cols());
  Array o;
  const Shares a = scalar_pass(form, Norm::absolute, o, sum), s = scalar_pass(form, Norm::square, o, sum);
  const auto rounded = [&](const char* label, double unit, const Array& absolute, const Array& square) {
    sum.rounded(label, unit, rows.pick(absolute), rows.pick(square));
  };
  rounded("weights", units.operand, a.weights, s.weights);
  rounded("state", units.operand, a.first_state, s.first_state);
  rounded("state", units.carried_state, a.state, s.state);
  rounded("keys", units.operand, a.keys, s.keys);
  rounded("carry", units.carry, a.carry, s.carry);
  sum.arithmetic(rows.pick(a.arithmetic));
  return finish_output(form, sum, o);
}

std::optional<ErrorModel> log_linear_delta_chunk_error(const FormError& form) {
  const Units& units = form.units;
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), form.head.v.cols());
  const auto chunks = walk(form, sum);
  DeltaPass absolute(form, Norm::absolute), square(form, Norm::square);
  absolute.run(chunks, rows), square.run(chunks, rows);
  for (const auto& [label, share] : absolute.labels) {
    const double unit = label == "carry"           ? units.carry
                        : label == "state.carried" ? units.carried_state
                                                   : units.operand;
    sum.rounded(label == "state.carried" ? "state" : label, unit, rows.pick(share),
                rows.pick(square.labels.at(label)));
  }
  sum.arithmetic(rows.pick(absolute.arithmetic));
  return finish_output(form, sum, absolute.o);
}

}  // namespace attest
