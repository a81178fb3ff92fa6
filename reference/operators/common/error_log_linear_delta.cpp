// Error model of the chunk form of the log-linear delta rules (log_linear_operator.hpp). Transitions act on all blocks
// alike, so one row y per output is walked back as for the delta rules and a block's level only weighs it: with S~_t the
// sum of lambda_t^level(block) S_block over the blocks before a chunk, R_t = diag(lambda) V - F S~_t and U_t = T R_t take
// the places of S, R and U of error_delta.cpp.
// Outputs of a later chunk see the same blocks at the same levels, so for all of them at once
//   X~_t = sum over levels l of lambda_t^l X_l,   X_l the sum of X over the blocks of level l, X = S, -F S, -W S.
// Sums of sizes over blocks are products of matrices. Sizes of X~_t are where one level is left (two thirds of all pairs
// of chunks); else they are formed output by output.
#include <array>
#include <map>

#include "reference/numeric/parallel.hpp"
#include "reference/operators/common/error_blocks.hpp"
#include "reference/operators/common/error_delta.hpp"

namespace attest {
using namespace log_linear;
namespace {

struct Walked {
  DeltaStages c;
  std::vector<Block> before;
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
                    const Array& removed, ErrorSum& sum) {
  const Contract& contract = sum.units().contract;
  const Array state = block.state().cwiseAbs(), removed_size = c.w.cwiseAbs() * state;
  double lambda = 1;
  for (Index t = 0; t < c.size; ++t)
    lambda = std::max(lambda, std::abs(level_scale(head, c.first + t, block.start)));
  sum.range("removed", sum.units().operand_format(), removed);
  sum.range("partial sums", contract.accumulate, removed_size);
  sum.range("partial sums", contract.accumulate, Array(state + c.keys.cwiseAbs().transpose() * removed_size));
  sum.range("partial sums", contract.accumulate, Array(lambda * (queries.cwiseAbs() * state)));
}

// What is added up before any state is met: it may overflow where all that remains of it is 0.
void partial_ranges(const Head<double>& head, const DeltaStages& c, const Array& weights, const Array& gain,
                    ErrorSum& sum) {
  const Array scores = c.scores.cwiseAbs(), ut = c.ut.cwiseAbs(), v = c.v.cwiseAbs();
  for (const Array& sizes :
       {Array(scores * ut), Array(c.faded_queries().cwiseAbs() + scores * c.w.cwiseAbs()),
        Array(c.keys.cwiseAbs().transpose() * ut), Array(levelled_sizes(head, c, weights) * v),
        Array(gain.cwiseAbs() * v)})
    sum.range("partial sums", sum.units().contract.accumulate, sizes);
}

std::vector<Walked> walk(const FormError& form, ErrorSum& sum) {
  const Head<double>& head = form.head;
  std::vector<Walked> chunks;
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
    partial_ranges(head, c, weights, gain, sum);
    std::vector<Block> before = cover;
    for (Block& block : cover) {
      sum.range("state", stored, block.state());
      const Array removed = c.w * block.state();
      partial_ranges(head, c, queries, block, removed, sum);
      block.state() = Array(c.through() * block.state() - c.keys.transpose() * removed);
    }
    for (const auto& [offset, count] : pieces(position, size))
      cover.push_back({position + offset,
                       log2_of(count),
                       {gain.middleCols(offset, count) * c.v.middleRows(offset, count)},
                       true});
    merge(cover, 0, 0);
    for (Block& block : cover) sum.range("carry", form.units.contract.state, block.state());
    chunks.push_back(
        {std::move(c), std::move(before), std::move(weights), std::move(queries), std::move(gain)});
  }
  return chunks;
}

using Sized = std::array<Array, 2>;  // by Norm
constexpr std::array norms{Norm::absolute, Norm::square};
std::size_t at(Norm p) { return static_cast<std::size_t>(p); }
Sized sized(const Array& x) { return {size_of(Norm::absolute, x), size_of(Norm::square, x)}; }
void add(Sized& sum, const Sized& more) {
  for (const Norm p : norms) sum[at(p)] += more[at(p)];
}

struct SizedBlock {
  Index start;
  Sized state;
};
std::vector<SizedBlock> sized_blocks(const std::vector<Block>& cover) {
  std::vector<SizedBlock> result;
  for (const Block& block : cover) result.push_back({block.start, sized(block.parts[0])});
  return result;
}

// A chunk with what its outputs and later ones read of the blocks before and after it, whatever their levels.
struct Seen {
  Seen(const Walked& walked, std::vector<SizedBlock> blocks_before,
       const std::vector<SizedBlock>* blocks_after)
      : w(walked),
        before(std::move(blocks_before)),
        after(blocks_after),
        ut(sized(w.c.ut)),
        start_keys(sized(w.c.start_keys)),
        w_keys(sized(w.c.w)),
        keys(sized(w.c.keys)),
        v(sized(w.c.v)) {
    for (const Block& block : w.before) {
      from_keys.push_back(-(w.c.start_keys * block.parts[0]));
      removed.push_back(-(w.c.w * block.parts[0]));
    }
  }
  const Walked& w;
  std::vector<SizedBlock> before;
  const std::vector<SizedBlock>* after;
  Sized ut, start_keys, w_keys, keys, v;
  std::vector<Array> from_keys, removed;  // -F S, -W S
};

// What outputs after a chunk read of it at one level.
struct Level {
  Array state, residual, u;      // X_l
  Sized before, after, removed;  // sums of sizes
  Array moved;                   // errors of the states after the chunk by the size of y
  Array v;                       // rows of V, elsewhere 0
  bool own = false;              // whether there are any
};
using Levels = std::map<int, Level>;

// The chosen outputs [from, from + count).
struct Batch {
  Index from, count;
};

class BackWalk {
 public:
  BackWalk(const FormError& form, const RowSet& rows)
      : form_(form),
        units_(form.units),
        rows_(rows),
        columns_(form.head.v.cols()),
        arithmetic(Array::Zero(rows.count(), columns_)),
        o(Array::Zero(form.head.tokens(), columns_)),
        y_(Array::Zero(rows.count(), form.head.q.cols())) {}

  void run(const std::vector<Walked>& chunks) {
    std::vector<SizedBlock> after;
    for (std::size_t b = chunks.size(); b-- > 0;) {
      const DeltaStages& c = chunks[b].c;
      if (rows_.before(c.first) == rows_.count()) continue;
      Seen seen(chunks[b], sized_blocks(chunks[b].before), &after);
      see_later(seen, rows_.before(c.last()), rows_.count());
      see_own(seen, rows_.before(c.first), rows_.before(c.last()));
      after = std::move(seen.before);
    }
  }
  std::map<std::string, Sized> labels;

 private:
  const FormError& form_;
  const Units& units_;
  const RowSet& rows_;
  Index columns_;

 public:
  Array arithmetic;  // (outputs, value_dim)
  Array o;           // (tokens, value_dim), of the chosen ones

 private:
  Array y_;  // of every output from the present chunk on: the row on the states after it

  // A contribution coefficient * size(x) to one sum.
  struct Reading {
    Norm p;
    Array coefficient;  // a row per output of the batch
    Array& sum;
  };
  struct Readings {
    std::vector<Reading> residual, u, state;
  };
  static void read(const std::vector<Reading>& readings, Index from, Index i, const Array& x) {
    const Sized sizes = sized(x);
    for (const Reading& r : readings) r.sum.row(from + i).noalias() += r.coefficient.row(i) * sizes[at(r.p)];
  }
  // The same of lambda_i x for all outputs of a batch.
  static void read_all(const std::vector<Reading>& readings, Index from, const Eigen::VectorXd& lambda,
                       const Array& x) {
    const Sized sizes = sized(x);
    for (const Reading& r : readings) add(r.sum, from, r.p, lambda, r.coefficient, sizes[at(r.p)]);
  }
  // sum += diag(size(lambda)) coefficient x
  static void add(Array& sum, Index from, Norm p, const Eigen::VectorXd& lambda, const Array& coefficient,
                  const Array& x) {
    const Array scaled = size_of(p, Array(lambda)).col(0).asDiagonal() * coefficient;
    sum.middleRows(from, scaled.rows()).noalias() += scaled * x;
  }
  void name_labels(std::initializer_list<const char*> names) {
    const Array zero = Array::Zero(rows_.count(), columns_);
    for (const char* name : names) labels.try_emplace(name, Sized{zero, zero});
  }
  Sized& label(const char* name) { return labels.find(name)->second; }
  static const char* state_label(const DeltaStages& c) { return c.first == 0 ? "state" : "state.carried"; }

  // Outputs [from, to), 64 at a time whatever the number of threads.
  template <class F>
  void for_each_batch(Index from, Index to, F&& f) const {
    for_each_parallel((to - from + 63) / 64, form_.threads, [&](Index i) {
      f(Batch{from + 64 * i, std::min<Index>(64, to - from - 64 * i)});
    });
  }
  Eigen::VectorXd scales(const Batch& batch, int level) const {
    Eigen::VectorXd result(batch.count);
    for (Index i = 0; i < batch.count; ++i) result(i) = form_.head.level_scales(token(batch, i), level);
    return result;
  }
  Eigen::VectorXd scales_of(const Batch& batch, const Block& block) const {
    Eigen::VectorXd result(batch.count);
    for (Index i = 0; i < batch.count; ++i) result(i) = level_scale(form_.head, token(batch, i), block.start);
    return result;
  }
  Index token(const Batch& batch, Index i) const { return rows_.token(batch.from + i); }
  Index position(const DeltaStages& c) const { return form_.head.initial.position + c.first; }
  int level(Index token, Index source) const {
    return fenwick_level(form_.head.initial.position + token, source);
  }

  // What own and later outputs have in common: errors of T, F, W, N^-1 seen through the rows r on U.
  Readings inside(const Seen& seen, const Array& r) {
    const DeltaStages& c = seen.w.c;
    const Array through_inverse = r * c.inverse, through_ut = r * c.ut;
    const Sized r_size = sized(r), ut_size = sized(through_ut);
    Readings result;
    for (const Norm p : norms) {
      const std::size_t i = at(p);
      result.residual.push_back({p, r_size[i] * seen.ut[i], label("ut")[i]});
      result.state.push_back({p, ut_size[i] * seen.start_keys[i], label("start_keys")[i]});
      result.state.push_back({p, r_size[i] * seen.w_keys[i], label("w")[i]});
    }
    const Array &size = r_size[0], u_error = through_inverse.cwiseAbs() * c.n_error,
                state_error = ut_size[0] * c.start_keys_error + size * c.w_error;
    result.residual.push_back({Norm::absolute, size * c.ut_error, arithmetic});
    result.u.push_back({Norm::absolute, u_error, arithmetic});
    result.state.push_back({Norm::absolute, state_error, arithmetic});
    return result;
  }

  // ---- outputs of the chunk itself

  void see_own(const Seen& seen, Index from, Index to) {
    if (from == to) return;
    name_labels({"scores", "weights", "queries", state_label(seen.w.c), "ut", "start_keys", "w"});
    for_each_batch(from, to, [&](const Batch& batch) { see_own(seen, batch); });
  }
  // Leaves in y_ the rows on the states before the chunk.
  void see_own(const Seen& seen, const Batch& batch) {
    const Walked& w = seen.w;
    const DeltaStages& c = w.c;
    const auto pick = [&](const Array& rows) {
      Array result(batch.count, rows.cols());
      for (Index i = 0; i < batch.count; ++i) result.row(i) = rows.row(token(batch, i) - c.first);
      return result;
    };
    const Array r = pick(c.scores), queries = pick(w.queries), lambda = own_levels(c, batch),
                lambda_size = lambda.cwiseAbs(), unscaled = pick(w.weights_unscaled),
                weights = unscaled.cwiseProduct(lambda), from_v = weights * c.v;
    Array out = from_v;
    const Sized r_size = sized(r), q_size = sized(queries), w_size = sized(weights);
    // A row of O is one sum, in any order, of what its chunk and the blocks before it give.
    const double gamma = units_.gamma(c.size), u = units_.step,
                 row_sum = units_.gamma(c.size + std::ssize(w.before) * c.q.cols());
    Readings readings = inside(seen, r);
    for (const Norm p : norms) {
      const std::size_t i = at(p);
      readings.u.push_back({p, r_size[i], label("scores")[i]});
      readings.state.push_back({p, q_size[i], label("queries")[i]});
      label("weights")[i].middleRows(batch.from, batch.count) += w_size[i] * seen.v[i];
    }
    readings.u.push_back({Norm::absolute, pick(c.scores_error), arithmetic});
    readings.state.push_back(
        {Norm::absolute,
         pick(c.faded_queries_error(units_)) + gamma * (r_size[0] * seen.w_keys[0]) + u * q_size[0],
         arithmetic});
    const Array weights_error =
        (gamma * (r_size[0] * seen.ut[0]) + u * unscaled.cwiseAbs()).cwiseProduct(lambda_size);
    arithmetic.middleRows(batch.from, batch.count) +=
        (weights_error + (row_sum + units_.input) * w_size[0]) * seen.v[0];
    std::vector<Eigen::VectorXd> of_block;
    const double read_error = row_sum + u;
    for (std::size_t b = 0; b < w.before.size(); ++b) {
      const Block& block = w.before[b];
      of_block.push_back(scales_of(batch, block));
      for (const Norm p : norms)
        add(label(state_label(c))[at(p)], batch.from, p, of_block[b], q_size[at(p)],
            seen.before[b].state[at(p)]);
      add(arithmetic, batch.from, Norm::absolute, of_block[b], read_error * q_size[0],
          seen.before[b].state[0]);
      out += of_block[b].asDiagonal() * (queries * block.parts[0]);
    }
    for (Index i = 0; i < batch.count; ++i) {
      o.row(token(batch, i)) = out.row(i);
      const Array scaled_v = lambda.row(i).transpose().asDiagonal() * c.v;
      Array residual = scaled_v, value = Array::Zero(c.q.cols(), columns_), values = c.ut * scaled_v;
      for (std::size_t b = 0; b < w.before.size(); ++b) {
        value += of_block[b](i) * w.before[b].parts[0];
        residual += of_block[b](i) * seen.from_keys[b];
        values += of_block[b](i) * seen.removed[b];
      }
      read(readings.residual, batch.from, i, residual);
      read(readings.u, batch.from, i, values);
      read(readings.state, batch.from, i, value);
    }
    y_.middleRows(batch.from, batch.count) = queries;
  }
  // lambda_t^level(t,s) of the tokens s of the chunk up to t.
  Array own_levels(const DeltaStages& c, const Batch& batch) const {
    Array lambda = Array::Zero(batch.count, c.size);
    for (Index i = 0; i < batch.count; ++i) {
      const Index t = token(batch, i);
      for (Index s = 0; s <= t - c.first; ++s) lambda(i, s) = level_scale(form_.head, t, position(c) + s);
    }
    return lambda;
  }

  // ---- outputs of later chunks

  std::vector<int> levels_seen(const Walked& w, Index token) const {
    std::vector<int> result;
    for (const auto& [offset, count] : pieces(position(w.c), w.c.size))
      result.push_back(level(token, position(w.c) + offset));
    for (const Block& block : w.before) result.push_back(level(token, block.start));
    return result;
  }
  void see_later(const Seen& seen, Index from, Index to) {
    if (from == to) return;
    name_labels({"gain", "removed", "keys", state_label(seen.w.c), "carry", "ut", "start_keys", "w"});
    std::vector<Array> updated;
    for (std::size_t b = 0; b < seen.w.before.size(); ++b)
      updated.push_back(
          (seen.w.c.through() * seen.w.before[b].parts[0] + seen.w.c.keys.transpose() * seen.removed[b])
              .cwiseAbs());
    for (Index first = from, last; first < to; first = last) {
      const Index token = rows_.token(first);
      const std::vector<int> here = levels_seen(seen.w, token);
      for (last = first + 1; last < to; ++last)
        if (levels_seen(seen.w, rows_.token(last)) != here) break;
      const Levels levels = sum_by_level(seen, updated, token);
      for_each_batch(first, last, [&](const Batch& batch) { see_later(seen, levels, batch); });
    }
  }
  Levels sum_by_level(const Seen& seen, const std::vector<Array>& updated, Index token) const {
    const DeltaStages& c = seen.w.c;
    const Array state = Array::Zero(c.q.cols(), columns_), values = Array::Zero(c.size, columns_);
    const Level none{state, values, values, {state, state}, {state, state}, {values, values}, state, values};
    Levels levels;
    const auto at_level = [&](Index source) -> Level& {
      return levels.try_emplace(level(token, source), none).first->second;
    };
    for (const auto& [offset, count] : pieces(position(c), c.size)) {
      Level& l = at_level(position(c) + offset);
      l.v.middleRows(offset, count) = c.v.middleRows(offset, count), l.own = true;
    }
    for (auto& [number, l] : levels) l.residual = l.v, l.u = c.ut * l.v;
    const double merges = 1 + static_cast<double>(seen.before.size());
    for (std::size_t b = 0; b < seen.before.size(); ++b) {
      Level& l = at_level(seen.before[b].start);
      l.state += seen.w.before[b].parts[0], l.residual += seen.from_keys[b], l.u += seen.removed[b];
      attest::add(l.before, seen.before[b].state), attest::add(l.removed, sized(seen.removed[b]));
      l.moved += c.through_error(units_) * c.through() * seen.before[b].state[0] +
                 2 * units_.step * merges * updated[b];
    }
    for (const SizedBlock& block : *seen.after) attest::add(at_level(block.start).after, block.state);
    return levels;
  }
  // Takes y_ from the states after the chunk to those before it.
  void see_later(const Seen& seen, const Levels& levels, const Batch& batch) {
    const Walked& w = seen.w;
    const DeltaStages& c = w.c;
    const Array y = y_.middleRows(batch.from, batch.count), r = y * c.keys.transpose(), through_w = r * c.w;
    const Sized y_size = sized(y), r_size = sized(r), through_size = sized(through_w), gain = sized(w.gain);
    Readings readings = inside(seen, r);
    Sized by_keys, by_gain;
    for (const Norm p : norms) {
      const std::size_t i = at(p);
      by_keys[i] = y_size[i] * seen.keys[i].transpose(), by_gain[i] = y_size[i] * gain[i];
      readings.u.push_back({p, by_keys[i], label("keys")[i]});
    }
    readings.u.push_back({Norm::absolute, y_size[0] * c.keys_error.transpose(), arithmetic});
    const double gamma = units_.gamma(c.size), merges = 1 + static_cast<double>(seen.before.size());
    const Array gained = gamma * (by_keys[0] * seen.ut[0]) +
                         (gamma + units_.input + 2 * units_.step * merges) * by_gain[0],
                by_w = units_.gamma(c.k.cols()) * (r_size[0] * seen.w_keys[0]);
    for (const auto& [number, l] : levels) {
      const Eigen::VectorXd lambda = scales(batch, number);
      for (const Norm p : norms) {
        const std::size_t i = at(p);
        add(label("removed")[i], batch.from, p, lambda, r_size[i], l.removed[i]);
        add(label(state_label(c))[i], batch.from, p, lambda, through_size[i], l.before[i]);
        add(label("carry")[i], batch.from, p, lambda, y_size[i], l.after[i]);
      }
      if (l.own) {
        for (const Norm p : norms)
          add(label("gain")[at(p)], batch.from, p, lambda, by_gain[at(p)], size_of(p, l.v));
        add(arithmetic, batch.from, Norm::absolute, lambda, gained, l.v.cwiseAbs());
      }
      add(arithmetic, batch.from, Norm::absolute, lambda, by_w, l.before[0]);
      add(arithmetic, batch.from, Norm::absolute, lambda, gamma * by_keys[0], l.removed[0]);
      add(arithmetic, batch.from, Norm::absolute, lambda, y_size[0], l.moved);
    }
    read_levels(readings.residual, &Level::residual, levels, batch);
    read_levels(readings.u, &Level::u, levels, batch);
    read_levels(readings.state, &Level::state, levels, batch);
    y_.middleRows(batch.from, batch.count) = c.through() * y - through_w;
  }
  void read_levels(const std::vector<Reading>& readings, Array Level::*x, const Levels& levels,
                   const Batch& batch) const {
    if (levels.size() == 1)
      return read_all(readings, batch.from, scales(batch, levels.begin()->first), levels.begin()->second.*x);
    for (Index i = 0; i < batch.count; ++i) {
      Array value = Array::Zero((levels.begin()->second.*x).rows(), columns_);
      for (const auto& [number, l] : levels)
        value += form_.head.level_scales(token(batch, i), number) * (l.*x);
      read(readings, batch.from, i, value);
    }
  }
};

}  // namespace

std::optional<ErrorModel> log_linear_delta_chunk_error(const FormError& form) {
  const Units& units = form.units;
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), form.head.v.cols());
  const auto chunks = walk(form, sum);
  BackWalk back(form, rows);
  back.run(chunks);
  for (const auto& [label, share] : back.labels) {
    const double unit = label == "carry"           ? units.carry
                        : label == "state.carried" ? units.carried_state
                                                   : units.operand;
    sum.rounded(label == "state.carried" ? "state" : label, unit, share[at(Norm::absolute)],
                share[at(Norm::square)]);
  }
  sum.arithmetic(back.arithmetic);
  return finish_output(form, sum, back.o);
}

}  // namespace attest
