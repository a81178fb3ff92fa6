// Error models of stream and scan for the first-order recurrences S <- Phi S + beta k v^T, scalar, delta or
// log-linear. A local error E of a state at position p (after p tokens) reaches output t as |y_tp| E, y_tp =
// Phi_p+1^T .. Phi_t^T q_t, times |lambda_t^level(block)| where the state belongs to a block; an error E of
// the transition of a segment [a, b) costs E |S_a| at b. In the scan the segment [a, b) of the up-sweep is
// part of every prefix that holds it, and the prefix [0, b) of the down-sweep of all those that continue it.
#include "reference/operators/common/delta_step.hpp"
#include "reference/operators/common/error_forms.hpp"
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {
namespace {

struct Block {
  Index start;
  int log_size;
  Array state;
};
using Cover = std::vector<Block>;

// States that were added up in any order: for two what one addition rounds, for more gamma_(n-1) of their sizes, as the
// partial sums may be larger than the sum.
struct Summed {
  Index count = 1;
  Array sizes;  // of more than one

  void add(const Array& own, const Summed& other, const Array& others) {
    sizes = sizes_of(own) + other.sizes_of(others);
    count += other.count;
  }
  Array error(const Units& units, const Array& sum) const {
    return count == 2 ? Array(units.step * sum.cwiseAbs()) : Array(units.gamma_step(count - 1) * sizes);
  }

 private:
  Array sizes_of(const Array& state) const { return count == 1 ? Array(state.cwiseAbs()) : sizes; }
};

// What merging has added up, and its error.
struct Merged {
  Index source;
  Array error;
};

// A transition, (1, 1) when it is a scalar.
using Phi = Array;

// A local error of the state at `at`, in block `source`, that outputs first <= t < last see.
struct Event {
  Index at, first, last, source;
  Array error;
};

class Recurrent {
 public:
  // With `history` the exact states of all tokens are kept, as walks back need them.
  Recurrent(const FormError& f, bool history)
      : form(f),
        head(f.head),
        units(f.units),
        n(f.head.tokens()),
        d(f.head.q.cols()),
        columns(f.head.v.cols()),
        delta(f.declaration.beta),
        levels(f.declaration.level_scales),
        q(to_array(f.head.q)),
        k(to_array(f.head.k)),
        v(to_array(f.head.v)),
        o(Array::Zero(n, columns)),
        reading(Array::Zero(n, columns)),
        gates(declared_gates(f)) {
    covers.push_back(initial());
    if (!history) return;
    for (Index t = 0; t < n; ++t) {
      phis.push_back(transition(t));
      Cover next = applied(phis.back(), covers.back());
      add_token(next, t);
      covers.push_back(std::move(next));
    }
    for (Index t = 0; t < n; ++t) read(t, covers[static_cast<std::size_t>(levels ? t : t + 1)]);
  }

  double step_gate(Index t) const {
    if (gates.alpha) return (*gates.alpha)[static_cast<std::size_t>(t)];
    return gates.gamma;
  }
  double gate_error_of(Index t) const { return single_gate_error(units, gates, t); }
  double beta(Index t) const { return delta ? head.beta[static_cast<std::size_t>(t)] : 1.0; }
  double weight(Index t, Index source) const {
    return levels ? head.level_scales(t, fenwick_level(head.initial.position + t, source)) : 1.0;
  }
  Phi transition(Index t) const {
    if (!delta) return Phi::Constant(1, 1, step_gate(t));
    return step_gate(t) * (Array::Identity(d, d) - beta(t) * k.row(t).transpose() * k.row(t));
  }
  // What making the transition of a token costs: 3 operations for alpha beta k k^T, one subtraction, the
  // gate.
  Phi transition_error(Index t) const {
    const double gate = std::abs(step_gate(t));
    if (!delta) return Phi::Constant(1, 1, gate * gate_error_of(t));
    const Array square = gate * std::abs(beta(t)) * (k.row(t).transpose() * k.row(t)).cwiseAbs();
    return units.gamma_step(3) * square + units.step * phis[static_cast<std::size_t>(t)].cwiseAbs() +
           gate_error_of(t) * (gate * Array::Identity(d, d) + square);
  }
  // |a| (|S| + |b| |k| |k|^T |S|)
  Array moved_sizes(Index t, const Array& state) const {
    const Array size = state.cwiseAbs(), key = k.row(t).cwiseAbs();
    return std::abs(step_gate(t)) * (size + std::abs(beta(t)) * key.transpose() * Array(key * size));
  }
  // What a delta step may get wrong in any association: in the state moved, and in what the token adds to it.
  Array moved_error(Index t, const Array& state) const {
    return (units.gamma_step(delta_step_roundings(d)) + gate_error_of(t)) * moved_sizes(t, state);
  }
  Array added_error(Index t) const {
    return units.gamma_step(delta_step_roundings(d)) * injection(t).cwiseAbs();
  }
  // Whether a state comes through as it is, rounded or not: being exactly orthogonal to a key is not enough.
  bool keeps(const Phi& phi) const {
    if (gates.log_gate) return false;
    return delta ? phi == Array(Array::Identity(d, d)) : phi(0, 0) == 1;
  }
  Array injection(Index t) const { return beta(t) * k.row(t).transpose() * v.row(t); }
  Array injection_error(Index t) const { return units.gamma_step(delta ? 2 : 1) * injection(t).cwiseAbs(); }
  Array apply(const Phi& phi, const Array& state) const {
    if (!delta) return phi(0, 0) * state;
    return phi * state;
  }
  // |phi| |state| times the roundings of the product.
  Array apply_error(const Phi& phi, const Array& state) const {
    if (delta) return units.gamma_step(d) * (phi.cwiseAbs() * state.cwiseAbs());
    return (phi(0, 0) == 1 ? 0 : units.step * std::abs(phi(0, 0))) * state.cwiseAbs();
  }
  Array through(const Phi& error, const Array& state) const {
    if (delta) return error * state.cwiseAbs();
    return error(0, 0) * state.cwiseAbs();
  }
  Cover applied(const Phi& phi, const Cover& cover) const {
    Cover result;
    for (const Block& block : cover) result.push_back({block.start, block.log_size, apply(phi, block.state)});
    return result;
  }
  Cover initial() const {
    if (!levels) return {{0, 0, to_array(initial_moment(head, "S", d, columns))}};
    Cover cover;
    for (const auto& block : initial_cover(head))
      cover.push_back({block.start, block.log_size, to_array(block.state)});
    return cover;
  }
  void add_token(Cover& cover, Index t) const {
    if (!levels)
      cover[0].state += injection(t);
    else {
      cover.push_back({head.initial.position + t, 0, injection(t)});
      merge(cover);
    }
  }
  static double largest_of(const Cover& cover) {
    double largest = 0;
    for (const Block& block : cover)
      if (block.state.size() > 0) largest = larger(largest, block.state.cwiseAbs().maxCoeff());
    return largest;
  }
  static double larger(double a, double b) { return a >= b ? a : b; }  // b where it is NaN
  // Adds siblings up; joined(i): block i has taken up its right sibling.
  template <class Joined>
  std::vector<Merged> merge(Cover& cover, Joined&& joined) const {
    std::vector<Summed> sums(cover.size());
    for (std::size_t i = 0; i + 1 < cover.size();) {
      Block &left = cover[i], &right = cover[i + 1];
      if (left.log_size != right.log_size || (left.start >> left.log_size) % 2 != 0) {
        ++i;
        continue;
      }
      sums[i].add(left.state, sums[i + 1], right.state);
      left.state += right.state;
      ++left.log_size;
      const auto next = static_cast<std::ptrdiff_t>(i) + 1;
      cover.erase(cover.begin() + next), sums.erase(sums.begin() + next);
      joined(i);
      if (i > 0) --i;
    }
    std::vector<Merged> merged;
    for (std::size_t i = 0; i < cover.size(); ++i)
      if (sums[i].count > 1) merged.push_back({cover[i].start, sums[i].error(units, cover[i].state)});
    return merged;
  }
  std::vector<Merged> merge(Cover& cover) const {
    return merge(cover, [](std::size_t) {});
  }
  void arithmetic_event(Index at, Index first, Index last, Index source, Array error) {
    if (!error.isZero(0)) arithmetic.push_back({at, first, last, source, std::move(error)});
  }
  void merging_events(Index at, Index first, Index last, std::vector<Merged> merged) {
    for (Merged& one : merged) arithmetic_event(at, first, last, one.source, std::move(one.error));
  }
  // A block that is as it was when carried before (`before`) is in its format already.
  void carry_events(Index at, Index first, Index last, const Cover& cover, const Cover& before = {}) {
    if (units.carry == 0) return;
    for (const Block& block : cover) {
      const bool unchanged = std::any_of(before.begin(), before.end(), [&](const Block& b) {
        return b.start == block.start && b.log_size == block.log_size && b.state == block.state;
      });
      if (!unchanged) carried.push_back({at, first, last, block.start, block.state});
    }
  }

  // Walks every output's row back through the transitions and adds up what it meets.
  ErrorModel finish() {
    const RowSet rows = form.row_set();
    ErrorSum sum(units, rows.count(), columns);
    const auto by_position = [this](std::vector<Event>& events) {
      std::vector<std::vector<const Event*>> at(static_cast<std::size_t>(n) + 1);
      for (const Event& event : events) at[static_cast<std::size_t>(event.at)].push_back(&event);
      return at;
    };
    const auto carried_at = by_position(carried), arithmetic_at = by_position(arithmetic);
    Array absolute = Array::Zero(n, columns), square = absolute, plain = reading;
    Array y = Array::Zero(n, d);  // rows t >= at - 1 at position `at`
    for (Index at = n; at > 0; --at) {
      y.row(at - 1) = q.row(at - 1);
      for (const Event* event : arithmetic_at[static_cast<std::size_t>(at)])
        add(Norm::absolute, *event, y, plain);
      for (const Event* event : carried_at[static_cast<std::size_t>(at)]) {
        add(Norm::absolute, *event, y, absolute);
        add(Norm::square, *event, y, square);
      }
      const Index later = n - at + 1;
      y.bottomRows(later) =
          Array(delta ? Array(y.bottomRows(later) * phis[static_cast<std::size_t>(at - 1)])
                      : Array(phis[static_cast<std::size_t>(at - 1)](0, 0) * y.bottomRows(later)));
    }
    for (const Event* event : arithmetic_at[0]) add(Norm::absolute, *event, y, plain);
    double largest = 0;
    for (const Cover& cover : covers) largest = larger(largest, largest_of(cover));
    return finish(sum, rows, largest, absolute, square, plain);
  }
  ErrorModel finish(ErrorSum& sum, const RowSet& rows, double largest, const Array& absolute,
                    const Array& square, const Array& plain) const {
    sum.range("S", units.contract.state, largest);
    partial_ranges(largest, sum);
    sum.rounded("S", units.carry, rows.pick(absolute), rows.pick(square));
    sum.arithmetic(rows.pick(plain));
    return finish_output(form, sum, o);
  }

  // Whatever is added up on the way, by sizes: k k^T, phi S, k v^T, q S and its part of the output; with levels what weighs a
  // token's own value too.
  void partial_ranges(double state, ErrorSum& sum) const {
    sum.range("a product of transitions", units.contract.accumulate, combined);
    double phi = 1, injected = 0, query = 1, level = 1, own = 0;
    for (Index t = 0; t < n; ++t) {
      const double key = k.row(t).cwiseAbs().maxCoeff(), most_beta = std::max(1.0, std::abs(beta(t)));
      if (delta) phi = std::max(phi, 1 + key * key * most_beta);
      injected = std::max(injected, key * v.row(t).cwiseAbs().maxCoeff() * most_beta);
      query = std::max(query, q.row(t).cwiseAbs().sum());
      own = std::max(own, most_beta * q.row(t).cwiseAbs().dot(k.row(t).cwiseAbs()));
    }
    if (levels) {
      level = std::max(1.0, to_array(head.level_scales).cwiseAbs().maxCoeff());
      sum.range("partial sums", units.contract.accumulate, level * own);
      level *= static_cast<double>(n + 1);
    }
    const double moved = std::max(phi, static_cast<double>(d) * phi * state + injected);
    sum.range("partial sums", units.contract.accumulate, level * query * phi * moved);
  }

  const FormError& form;
  const Head<double>& head;
  const Units& units;
  Index n, d, columns;
  bool delta, levels;
  Array q, k, v, o, reading;
  Gates<double> gates;
  std::vector<Phi> phis;
  std::vector<Cover> covers;  // exact, before token t
  std::vector<Event> carried, arithmetic;
  double combined = 0;  // of the scan: the largest sum of sizes in Phi_B Phi_A and Phi_B S_A

 private:
  void add(Norm p, const Event& event, const Array& y, Array& total) const {
    const Index first = std::max(event.first, std::max<Index>(event.at - 1, 0)), rows = event.last - first;
    if (rows <= 0) return;
    Array seen = size_of(p, y.middleRows(first, rows)) * size_of(p, event.error);
    if (levels)
      for (Index i = 0; i < rows; ++i) seen.row(i) *= size_of(p, weight(first + i, event.source));
    total.middleRows(first, rows) += seen;
  }

 public:
  // The value of row t and the arithmetic of reading it, from the states after the token, or with levels before it.
  void read(Index t, const Cover& cover) {
    const double u = units.step, dot = units.gamma_step(d) + units.query * (1 + units.gamma_step(d));
    if (!levels) {
      const Array& state = cover[0].state;
      o.row(t) = q.row(t) * state;
      reading.row(t) = dot * (q.row(t).cwiseAbs() * state.cwiseAbs());
      return;
    }
    if (delta) return read_delta(t, cover);
    const Array q_t = q.row(t), y = step_gate(t) * q_t;
    const double product = q_t.row(0).dot(k.row(t)), size = q_t.cwiseAbs().row(0).dot(k.row(t).cwiseAbs());
    const double gate = std::abs(step_gate(t)), own = weight(t, head.initial.position + t) * product;
    const Array y_error =
        (gate_error_of(t) + (gate == 1 ? 0 : u)) * y.cwiseAbs() + units.query * gate * q_t.cwiseAbs();
    o.row(t) = own * v.row(t);
    reading.row(t) = (std::abs(weight(t, head.initial.position + t)) * dot * size + 3 * u * std::abs(own)) *
                     v.row(t).cwiseAbs();
    for (const Block& block : cover) {
      const double lambda = weight(t, block.start);
      const Array term = y * block.state;
      o.row(t) += lambda * term;
      reading.row(t) +=
          std::abs(lambda) * ((y_error + dot * y.cwiseAbs()) * block.state.cwiseAbs() + u * term.cwiseAbs()) +
          u * o.row(t).cwiseAbs();
    }
  }

 private:
  // The row on the blocks, or the blocks moved and then read: any association (delta_step.hpp).
  void read_delta(Index t, const Cover& cover) {
    const double rounding = units.gamma_step(delta_read_roundings(d, static_cast<Index>(cover.size()))),
                 relative = rounding + units.query * (1 + rounding),
                 own = weight(t, head.initial.position + t) * beta(t);
    const Array q_t = q.row(t), k_t = k.row(t), q_size = q_t.cwiseAbs(), k_size = k_t.cwiseAbs(),
                y = q_t * phis[static_cast<std::size_t>(t)];
    const double along = q_size.row(0).dot(k_size.row(0));
    const Array y_size = std::abs(step_gate(t)) * (q_size + std::abs(beta(t)) * along * k_size);
    o.row(t) = own * q_t.row(0).dot(k_t.row(0)) * v.row(t);
    reading.row(t) = relative * std::abs(own) * along * v.row(t).cwiseAbs();
    for (const Block& block : cover) {
      const double lambda = weight(t, block.start);
      o.row(t) += lambda * (y * block.state);
      reading.row(t) += std::abs(lambda) * (relative + gate_error_of(t)) * (y_size * block.state.cwiseAbs());
    }
  }
};

struct Segment {
  Index first, last;  // tokens
  Phi phi;
  Cover blocks;
  bool carried = false;  // a single token that stands as a prefix
};

class Scan {
 public:
  explicit Scan(Recurrent& r) : r_(r) {}

  void run() {
    const Index seen_after = r_.levels ? 1 : 0;  // a log-linear output reads its own token separately
    for (Index s = 0; s < r_.n; ++s) {
      transition_event(s, s + 1, s + seen_after, r_.n, r_.transition_error(s));
      r_.arithmetic_event(s + 1, s + seen_after, r_.n, r_.head.initial.position + s, r_.injection_error(s));
    }
    Index size = 1;
    while (size < r_.n) size *= 2;
    if (r_.n > 0) {
      up(0, size);
      Segment none{0, 0, identity(), {}};
      down(0, size, none);
    }
  }

 private:
  Phi identity() const { return r_.delta ? Phi(Array::Identity(r_.d, r_.d)) : Phi(Phi::Constant(1, 1, 1.0)); }
  // The transition of [first, at) is wrong by `error`: that times every block before it.
  void transition_event(Index first, Index at, Index seen_first, Index seen_last, const Phi& error) {
    for (const Block& block : r_.covers[static_cast<std::size_t>(first)])
      r_.arithmetic_event(at, seen_first, seen_last, block.start, r_.through(error, block.state));
  }
  Segment token(Index t) const {
    Cover blocks{{r_.levels ? r_.head.initial.position + t : 0, 0, r_.injection(t)}};
    return {t, t + 1, r_.phis[static_cast<std::size_t>(t)], blocks};
  }
  Segment combine(const Segment& a, const Segment& b, Index seen_first, Index seen_last, bool carry) {
    const Index at = b.last;
    Segment result{a.first, at, r_.delta ? Phi(b.phi * a.phi) : Phi(b.phi * a.phi),
                   r_.applied(b.phi, a.blocks)};
    note_sizes(b.phi, a.phi);
    for (const Block& block : a.blocks) note_sizes(b.phi, block.state);
    if (seen_first < seen_last) {
      for (const Block& block : a.blocks)
        r_.arithmetic_event(at, seen_first, seen_last, block.start, r_.apply_error(b.phi, block.state));
      const Phi error = r_.delta ? Phi(r_.units.gamma_step(r_.d) * (b.phi.cwiseAbs() * a.phi.cwiseAbs()))
                                 : Phi(r_.units.step * result.phi.cwiseAbs());
      transition_event(a.first, at, seen_first, seen_last, error);
    }
    std::vector<Merged> merged;
    if (r_.levels) {
      result.blocks.insert(result.blocks.end(), b.blocks.begin(), b.blocks.end());
      merged = r_.merge(result.blocks);
    } else {
      result.blocks[0].state += b.blocks[0].state;
      merged = {{0, r_.units.step * result.blocks[0].state.cwiseAbs()}};
    }
    if (seen_first < seen_last) {
      r_.merging_events(at, seen_first, seen_last, std::move(merged));
      if (carry) r_.carry_events(at, seen_first, seen_last, result.blocks, carried_before(a, b));
    }
    return result;
  }
  void note_sizes(const Phi& phi, const Array& x) {
    const double most = r_.delta ? Array(phi.cwiseAbs() * x.cwiseAbs()).maxCoeff()
                                 : std::abs(phi(0, 0)) * x.cwiseAbs().maxCoeff();
    r_.combined = Recurrent::larger(r_.combined, most);
  }
  // The blocks of both parts that were carried (those of single tokens were not) and come through as they
  // are: the later part's always, the earlier one's where the later transition keeps them.
  Cover carried_before(const Segment& a, const Segment& b) const {
    Cover before;
    if (!r_.levels) return before;
    const auto take = [&before](const Segment& part) {
      before.insert(before.end(), part.blocks.begin(), part.blocks.end());
    };
    if (b.last - b.first > 1) take(b);
    if (r_.keeps(b.phi) && (a.last - a.first > 1 || a.carried)) take(a);
    return before;
  }
  Segment up(Index first, Index size) {
    if (size == 1) return nodes_[{first, 1}] = token(first);
    const Index half = size / 2;
    const Segment left = up(first, half);
    if (first + half >= r_.n) return left;
    const Segment right = up(first + half, half);
    if (first + size > r_.n) return left;  // reaches past the end: in no prefix
    return nodes_[{first, size}] = combine(left, right, first + size, r_.n, true);
  }
  void down(Index first, Index size, const Segment& prefix) {
    if (first >= r_.n) return;
    if (size == 1) return leaf(first, prefix);
    const Index middle = first + size / 2, last = std::min(first + size, r_.n);
    down(first, size / 2, prefix);
    if (middle >= r_.n) return;
    const Segment& left = nodes_.at({first, size / 2});
    if (first > 0) return down(middle, size / 2, combine(prefix, left, middle, last, true));
    if (size == 2)
      r_.carry_events(middle, middle, last, left.blocks);  // the token itself is rounded as a prefix
    Segment prefix_of_left = left;
    prefix_of_left.carried = true;
    down(middle, size / 2, prefix_of_left);
  }
  // initial + prefix, not rounded, then the token, rounded.
  void leaf(Index t, const Segment& prefix) {
    for (const Block& block : r_.covers[0])
      if (t > 0) r_.arithmetic_event(t, t, t + 1, block.start, r_.apply_error(prefix.phi, block.state));
    const Cover& before = r_.covers[static_cast<std::size_t>(t)];
    const bool continued = std::any_of(r_.covers[0].begin(), r_.covers[0].end(),
                                       [](const Block& b) { return !b.state.isZero(0); });
    if (continued && r_.levels) {
      Cover whole = r_.applied(prefix.phi, r_.covers[0]);
      whole.insert(whole.end(), prefix.blocks.begin(), prefix.blocks.end());
      r_.merging_events(t, t, t + 1, r_.merge(whole));
    } else if (continued) {
      r_.arithmetic_event(t, t, t + 1, 0, r_.units.step * before[0].state.cwiseAbs());
    }
    if (r_.levels) return;
    const Cover& after = r_.covers[static_cast<std::size_t>(t) + 1];
    r_.arithmetic_event(t + 1, t, t + 1, 0,
                        r_.apply_error(r_.phis[static_cast<std::size_t>(t)], before[0].state) +
                            r_.units.step * after[0].state.cwiseAbs());
    r_.carry_events(t + 1, t, t + 1, after);
  }
  Recurrent& r_;
  std::map<std::pair<Index, Index>, Segment> nodes_;
};

// The stream of a scalar transition without a history: what reaches output t from a local error E of the state at p is
// |phi_p+1 .. phi_t| |q_t| E, so that the errors of a block travel forward with it and are read once. With levels a row
// reads the blocks before its token. Norms as in Recurrent: plain arithmetic, and carried states by sizes and squares.
class ScalarStream {
 public:
  explicit ScalarStream(const FormError& form)
      : r_(form, false),
        plain_(Array::Zero(r_.n, r_.columns)),
        absolute_(plain_),
        square_(plain_),
        cover_(r_.covers[0]),
        errors_(cover_.size(), none()) {}

  ErrorModel run() {
    double largest = Recurrent::largest_of(cover_);
    for (Index t = 0; t < r_.n; ++t) {
      if (r_.levels) read(t);
      const bool kept = r_.levels && t > 0 && r_.keeps(r_.transition(t));
      const Cover before = kept ? cover_ : Cover{};
      advance(t);
      carry(before);
      largest = Recurrent::larger(largest, Recurrent::largest_of(cover_));
      if (!r_.levels) read(t);
    }
    const RowSet rows = r_.form.row_set();
    ErrorSum sum(r_.units, rows.count(), r_.columns);
    return r_.finish(sum, rows, largest, absolute_, square_, plain_ + r_.reading);
  }

 private:
  struct Errors {
    Array arithmetic, absolute, square;
  };
  Errors none() const {
    const Array zero = Array::Zero(r_.d, r_.columns);
    return {zero, zero, zero};
  }
  void read(Index t) {
    r_.read(t, cover_);
    const double gate = r_.levels ? r_.step_gate(t) : 1;
    for (std::size_t b = 0; b < cover_.size(); ++b) {
      const double factor = gate * r_.weight(t, cover_[b].start);
      const auto query = factor * r_.q.row(t);
      plain_.row(t).noalias() += query.cwiseAbs() * errors_[b].arithmetic;
      if (r_.units.carry == 0) continue;
      absolute_.row(t).noalias() += query.cwiseAbs() * errors_[b].absolute;
      square_.row(t).noalias() += query.cwiseAbs2() * errors_[b].square;
    }
  }
  void advance(Index t) {
    const double phi = r_.step_gate(t), size = std::abs(phi),
                 local = (phi == 1 ? 0 : r_.units.step * size) + size * r_.gate_error_of(t);
    for (std::size_t b = 0; b < cover_.size(); ++b) {
      Errors& e = errors_[b];
      e.arithmetic = size * e.arithmetic + local * cover_[b].state.cwiseAbs();
      if (r_.units.carry > 0) e.absolute *= size, e.square *= phi * phi;
      cover_[b].state *= phi;
    }
    const Array injected = r_.injection(t);
    if (!r_.levels) {
      cover_[0].state += injected;
      errors_[0].arithmetic +=
          r_.units.gamma_step(1) * injected.cwiseAbs() + r_.units.step * cover_[0].state.cwiseAbs();
      return;
    }
    cover_.push_back({r_.head.initial.position + t, 0, injected});
    errors_.push_back(none());
    errors_.back().arithmetic = r_.units.gamma_step(1) * injected.cwiseAbs();
    merge();
  }
  // The errors add up as the blocks do.
  void merge() {
    const auto joined = [this](std::size_t i) {
      errors_[i].arithmetic += errors_[i + 1].arithmetic;
      errors_[i].absolute += errors_[i + 1].absolute, errors_[i].square += errors_[i + 1].square;
      errors_.erase(errors_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    };
    for (const Merged& one : r_.merge(cover_, joined))
      for (std::size_t b = 0; b < cover_.size(); ++b)
        if (cover_[b].start == one.source) errors_[b].arithmetic += one.error;
  }
  void carry(const Cover& before) {
    if (r_.units.carry == 0) return;
    for (std::size_t b = 0; b < cover_.size(); ++b) {
      const Block& block = cover_[b];
      const bool unchanged = std::any_of(before.begin(), before.end(), [&](const Block& x) {
        return x.start == block.start && x.log_size == block.log_size && x.state == block.state;
      });
      if (unchanged) continue;
      errors_[b].absolute += block.state.cwiseAbs(), errors_[b].square += block.state.cwiseAbs2();
    }
  }

  Recurrent r_;
  Array plain_, absolute_, square_;
  Cover cover_;
  std::vector<Errors> errors_;
};

}  // namespace

std::optional<ErrorModel> recurrence_stream_error(const FormError& form) {
  if (!form.declaration.beta) return ScalarStream(form).run();
  Recurrent r(form, true);
  for (Index t = 0; t < r.n; ++t) {
    const Index first = t + (r.levels ? 1 : 0);
    const Phi& phi = r.phis[static_cast<std::size_t>(t)];
    const Cover &before = r.covers[static_cast<std::size_t>(t)],
                &after = r.covers[static_cast<std::size_t>(t) + 1];
    const Cover kept = r.levels && t > 0 && r.keeps(phi) ? before : Cover{};
    for (const Block& block : before)
      r.arithmetic_event(t + 1, first, r.n, block.start, r.moved_error(t, block.state));
    r.arithmetic_event(t + 1, first, r.n, r.levels ? r.head.initial.position + t : 0, r.added_error(t));
    if (r.levels) {
      Cover moved = r.applied(phi, before);
      moved.push_back({r.head.initial.position + t, 0, r.injection(t)});
      if (form.any_association) r.carry_events(t + 1, t, t + 1, moved, kept);  // read as they are kept
      r.merging_events(t + 1, first, r.n, r.merge(moved));
    }
    r.carry_events(t + 1, first, r.n, after, kept);
  }
  return r.finish();
}

std::optional<ErrorModel> recurrence_scan_error(const FormError& form) {
  Recurrent r(form, true);
  Scan(r).run();
  return r.finish();
}

}  // namespace attest
