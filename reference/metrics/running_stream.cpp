#include "reference/metrics/running_stream.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attest {
namespace {

using Vector = Eigen::VectorXd;

struct Dense {
  Array x, e;         // x within e
  bool empty = true;  // nothing was added yet: exactly 0
};

// Sums of L R^T with no negative entry.
class Products {
 public:
  void add(Vector left, Vector right) {
    for (auto& [l, r] : list_)
      if (r == right) return void(l += left);
    list_.emplace_back(std::move(left), std::move(right));
  }
  void add(double factor, const Products& other) {
    for (const auto& [l, r] : other.list_) add(factor * l, r);
  }
  const std::vector<std::pair<Vector, Vector>>& list() const { return list_; }

 private:
  std::vector<std::pair<Vector, Vector>> list_;
};

// Which entries of a vector are not exactly 0.
using Mask = Eigen::Array<bool, Eigen::Dynamic, 1>;
Mask present(const Vector& x, const Vector& error) { return x.array() != 0 || error.array() != 0; }

// left right^T within `error`; exactly 0 outside of these rows and columns.
struct RankOne {
  Vector left, right;
  Mask rows, columns;
  Products error;
};

// The same as a sum of `count` terms in any order, 0: none; `error` the sum of theirs, `size` of their sizes with error.
struct Terms {
  RankOne sum;
  Products size;
  double count = 1;
};

// One row of an output or on the way to one, likewise.
struct RowTerms {
  Vector x, error, size;
  double count = 1;
};

class Rules {
 public:
  const double u = Running::working().u, eta = Running::working().eta;

  // What a sum of so many terms rounds, of their sizes.
  double gamma(double count) const {
    const double rounding = (count - 1) * u;
    return rounding < 0.5 ? rounding / (1 - rounding) : std::numeric_limits<double>::infinity();
  }
  void underflow(Products& error, const RankOne& of, double times) const {
    error.add(Vector::Constant(of.left.size(), times * eta), Vector::Ones(of.right.size()));
  }
  RankOne outer(const Vector& left, const Vector& left_error, const Vector& right) const {
    RankOne result{left, right, present(left, left_error), right.array() != 0, {}};
    result.error.add((1 + u) * left_error + u * left.cwiseAbs(), right.cwiseAbs());
    underflow(result.error, result, 1);
    return result;
  }
  RankOne outer(const Vector& left, const Vector& right, const Vector& right_error, bool) const {
    RankOne result{left, right, left.array() != 0, present(right, right_error), {}};
    result.error.add(left.cwiseAbs(), (1 + u) * right_error + u * right.cwiseAbs());
    underflow(result.error, result, 1);
    return result;
  }
  RankOne scaled(const Running& factor, RankOne x) const {
    if (factor == Running(1)) return x;
    RankOne result{factor.value * x.left, x.right, x.rows, x.columns, {}};
    result.error.add(((1 + u) * factor.error + u * std::abs(factor.value)) * x.left.cwiseAbs(),
                     x.right.cwiseAbs());
    result.error.add((1 + u) * (std::abs(factor.value) + factor.error), x.error);
    underflow(result.error, result, 1);
    return result;
  }
  void scale(const Running& factor, Dense& state) const {
    if (factor == Running(1) || state.empty) return;
    const double size = std::abs(factor.value);
    state.e = ((1 + u) * (size + factor.error) * state.e.array() +
               ((1 + u) * factor.error + u * size) * state.x.array().abs() + eta)
                  .matrix();
    state.x *= factor.value;
  }
  Terms single(RankOne x) const {
    Terms terms{std::move(x), {}, 1};
    terms.size.add(terms.sum.left.cwiseAbs(), terms.sum.right.cwiseAbs());
    terms.size.add(1, terms.sum.error);
    return terms;
  }
  RankOne number(const Terms& terms) const {
    RankOne result{terms.sum.left, terms.sum.right, terms.sum.rows, terms.sum.columns, {}};
    if (terms.count > 2) {
      result.error = terms.sum.error;
      result.error.add(gamma(terms.count), terms.size);
    } else {
      const double rounded = terms.count == 2 ? u : 0;
      result.error.add(1 + rounded, terms.sum.error);
      result.error.add(rounded * result.left.cwiseAbs(), result.right.cwiseAbs());
    }
    return result;
  }
  // A product times a scalar, which leaves it the sum that it is where the scalar is 1.
  Terms scaled(const Running& factor, Terms terms) const {
    return factor == Running(1) || terms.count == 0 ? terms : single(scaled(factor, number(terms)));
  }
  static Mask none(Index size) { return Mask::Constant(size, false); }
  static Mask all(Index size) { return Mask::Constant(size, true); }
  static Terms nothing(Index rows, Index columns) {
    return {{Vector::Zero(rows), Vector::Zero(columns), none(rows), none(columns), {}}, {}, 0};
  }
  Terms product(const Dense& state, const RankOne& token) const {
    const Index rows = state.x.rows();
    if (state.empty || !token.rows.any()) return nothing(rows, token.right.size());
    const auto& pairs = token.error.list();
    const Vector left = token.left.cwiseAbs(), right = token.right.cwiseAbs();
    Vector value(rows), seen(rows), carried(rows);
    std::vector<Vector> read(pairs.size(), Vector(rows));
    for (Index i = 0; i < rows; ++i) {
      const auto x = state.x.row(i).transpose(), e = state.e.row(i).transpose();
      value(i) = x.dot(token.left), seen(i) = x.cwiseAbs().dot(left), carried(i) = e.dot(left);
      for (std::size_t p = 0; p < pairs.size(); ++p) read[p](i) = (x.cwiseAbs() + e).dot(pairs[p].first);
    }
    Terms terms{
        {value, token.right, all(rows), token.columns, {}}, {}, static_cast<double>(token.rows.count())};
    Products& error = terms.sum.error;
    error.add((1 + u) * carried + u * seen, right);
    for (std::size_t p = 0; p < pairs.size(); ++p) error.add((1 + u) * read[p], pairs[p].second);
    underflow(error, terms.sum, terms.count);
    terms.size.add(seen, right);
    terms.size.add(1, error);
    return terms;
  }
  Terms product(const RankOne& token, const Dense& state) const {
    const Index columns = state.x.cols();
    if (state.empty || !token.columns.any()) return nothing(token.left.size(), columns);
    const auto& pairs = token.error.list();
    const Vector left = token.left.cwiseAbs(), right = token.right.cwiseAbs();
    Vector value = Vector::Zero(columns), seen = value, carried = value;
    std::vector<Vector> read(pairs.size(), value);
    for (Index i = 0; i < state.x.rows(); ++i) {
      const auto x = state.x.row(i).transpose(), e = state.e.row(i).transpose();
      value += token.right(i) * x, seen += right(i) * x.cwiseAbs(), carried += right(i) * e;
      for (std::size_t p = 0; p < pairs.size(); ++p) read[p] += pairs[p].second(i) * (x.cwiseAbs() + e);
    }
    Terms terms{
        {token.left, value, token.rows, all(columns), {}}, {}, static_cast<double>(token.columns.count())};
    Products& error = terms.sum.error;
    error.add(left, (1 + u) * carried + u * seen);
    for (std::size_t p = 0; p < pairs.size(); ++p) error.add(pairs[p].first, (1 + u) * read[p]);
    underflow(error, terms.sum, terms.count);
    terms.size.add(left, seen);
    terms.size.add(1, error);
    return terms;
  }
  RowTerms product(const Vector& row, const Vector& row_error, const Dense& state) const {
    const Vector none = Vector::Zero(state.x.cols());
    if (state.empty) return {none, none, none, 0};
    Vector value = none, seen = none, carried = none;
    for (Index i = 0; i < row.size(); ++i) {
      const auto x = state.x.row(i).transpose(), e = state.e.row(i).transpose();
      const double size = std::abs(row(i)), error = row_error(i);
      value += row(i) * x, seen += size * x.cwiseAbs();
      if (error > 0)
        carried += (size + error) * e + error * x.cwiseAbs();
      else
        carried += size * e;
    }
    const auto count = static_cast<double>(present(row, row_error).count());
    RowTerms terms{value, ((1 + u) * carried.array() + u * seen.array() + count * eta).matrix(), {}, count};
    terms.size = seen + terms.error;
    return terms;
  }
  Vector error_of(const RowTerms& terms) const {
    if (terms.count > 2) return terms.error + gamma(terms.count) * terms.size;
    return terms.count == 2 ? Vector((1 + u) * terms.error + u * terms.x.cwiseAbs()) : terms.error;
  }
  RowTerms scaled(const Running& factor, const RowTerms& terms) const {
    if (factor == Running(1)) return terms;
    const double size = std::abs(factor.value);
    RowTerms result{factor.value * terms.x, {}, {}, 1};
    result.error = (1 + u) * (terms.x.cwiseAbs() * factor.error + (size + factor.error) * error_of(terms)) +
                   u * result.x.cwiseAbs() + Vector::Constant(terms.x.size(), eta);
    result.size = result.x.cwiseAbs() + result.error;
    return result;
  }
  static RowTerms sum(const RowTerms& a, const RowTerms& b, double sign = 1) {
    return {a.x + sign * b.x, a.error + b.error, a.size + b.size, a.count + b.count};
  }
  // state + all terms, in any order; a row counts those that are there.
  void add(Dense& state, const std::vector<Terms>& all) const {
    for (Index i = 0; i < state.x.rows(); ++i) {
      double count = state.empty ? 0 : 1;
      for (const Terms& terms : all) count += is_in(terms, i) ? terms.count : 0;
      const double rounding = count > 2 ? gamma(count) : count == 2 ? u : 0;
      auto x = state.x.row(i);
      auto e = state.e.row(i);
      if (count > 2) e = (1 + rounding) * e + rounding * x.cwiseAbs();
      for (const Terms& terms : all) {
        if (!is_in(terms, i)) continue;
        x += terms.sum.left(i) * terms.sum.right.transpose();
        for (const auto& [l, r] : terms.sum.error.list()) e += l(i) * r.transpose();
        if (count <= 2) continue;
        for (const auto& [l, r] : terms.size.list()) e += (rounding * l(i)) * r.transpose();
      }
      if (count == 2) e = (1 + rounding) * e + rounding * x.cwiseAbs();
    }
    for (const Terms& terms : all) state.empty = state.empty && terms.count == 0;
  }
  static bool is_in(const Terms& terms, Index row) {
    return terms.count > 0 && terms.sum.rows(row) && terms.sum.columns.any();
  }
};

class Stream {
 public:
  Stream(const Head<double>& head, const Head<Running>& scalars, const StreamRounding& rounding)
      : head_(head), scalars_(scalars), rounding_(rounding), decay_(scalars.decay) {}

  std::optional<RunningRows> run(const Declaration& d, int algebra) {
    const Index square = head_.k.cols(), wide = head_.v.cols();
    if (d.name == "linear" || d.name == "retention" || d.name == "mamba2")
      return run({{"S", wide}}, &Stream::first_order, &Stream::read_last);
    if (d.name == "ahla") return run({{"P", wide}, {"E", wide}}, &Stream::asymmetric, &Stream::read_last);
    if (d.name == "hla3" && d.variant == "masked")
      return run({{"SK", square}, {"P", wide}, {"F", wide}}, &Stream::third, &Stream::read_last);
    if (d.name != "hla2" || d.variant == "unmasked") return std::nullopt;
    const std::vector<Moment> moments{{"S", square}, {"C", wide}, {"G", wide}};
    if (d.variant == "printed") return run(moments, &Stream::printed, &Stream::read_subtract);
    if (algebra == 0) return run(moments, &Stream::subtract, &Stream::read_subtract);
    if (!head_.initial.moments.empty()) return std::nullopt;  // F = S C - G is made first
    return run({{"S", square}, {"C", wide}, {"F", wide}}, &Stream::direct, &Stream::read_direct);
  }

 private:
  using Step = void (Stream::*)();
  using Read = RowTerms (Stream::*)() const;
  using Moment = std::pair<const char*, Index>;

  RunningRows run(const std::vector<Moment>& moments, Step step, Read read) {
    for (const auto& [label, columns] : moments) {
      const Array start = to_array(initial_moment(head_, label, head_.k.cols(), columns));
      states_.push_back({start, Array::Zero(start.rows(), start.cols()), start.isZero(0)});
    }
    Array error(head_.tokens(), head_.v.cols());
    for (t_ = 0; t_ < head_.tokens(); ++t_) {
      take();
      (this->*step)();
      for (std::size_t m = 0; m < states_.size(); ++m) {
        store(moments[m].first, rounding_.state, states_[m].x, states_[m].e);
        if (rounding_.state.unit > 0) states_[m].empty = false;
      }
      error.row(t_) = output((this->*read)()).transpose();
    }
    return {std::move(error), undecided_};
  }
  void take() {
    const auto row = [this](const Matrix<double>& m) {
      return Vector(Eigen::Map<const Vector>(m.data() + t_ * m.cols(), m.cols()));
    };
    q_ = row(head_.q), k_ = row(head_.k), v_ = row(head_.v);
    none_ = q_error_ = Vector::Zero(k_.size());
    for (Index x = 0; x < q_.size(); ++x)
      if (rounding_.query > 0 && q_(x) != 0)
        q_error_(x) = rounding_.query * std::abs(q_(x)) + Running::working().eta;
  }
  template <class M>
  void store(const char* label, const StreamRounding::Stored& stored, const M& x, M& e) {
    const double largest = (x.cwiseAbs() + e).maxCoeff();
    if (!(largest <= stored.format.max_finite() / 2) && undecided_.empty())
      undecided_ = fmt::format("range: {} reaches {:.3g} in {}", label, largest, stored.format.name);
    if (stored.unit > 0)
      e = ((1 + stored.unit) * e.array() + stored.unit * x.array().abs() + stored.lost).matrix();
  }
  Vector output(const RowTerms& o) {
    Vector e = rules_.error_of(o);
    if (rounding_.rounds_output) store("output", rounding_.output, o.x, e);
    return e;
  }

  // q.k, of terms in any order.
  Running score() const {
    Running sum(0);
    for (Index x = 0; x < q_.size(); ++x) sum += Running(q_(x), q_error_(x)) * Running(k_(x));
    return sum;
  }
  RankOne kk() const { return rules_.outer(k_, none_, k_); }
  RankOne kv() const { return rules_.outer(k_, none_, v_); }
  RankOne qv() const { return rules_.outer(q_, q_error_, v_); }
  RankOne kq() const { return rules_.outer(k_, q_, q_error_, true); }
  Terms single(RankOne x) const { return rules_.single(std::move(x)); }
  // state <- factor state + terms
  void advance(std::size_t m, const Running& factor, const std::vector<Terms>& terms) {
    rules_.scale(factor, states_[m]);
    rules_.add(states_[m], terms);
  }

  void first_order() {
    const Running gate = scalars_.alpha.empty() ? decay_ : scalars_.alpha[static_cast<std::size_t>(t_)];
    advance(0, gate, {single(kv())});
  }
  // S, C, G: G <- gamma^2 G + gamma k k^T C
  void subtract() {
    const Terms gained = rules_.scaled(decay_, rules_.product(kk(), states_[1]));
    advance(0, decay_, {single(kk())});
    advance(1, decay_, {single(qv())});
    advance(2, decay_ * decay_, {gained});
  }
  // G <- gamma G + k k^T C
  void printed() {
    const Terms gained = rules_.product(kk(), states_[1]);
    advance(0, decay_, {single(kk())});
    advance(1, decay_, {single(qv())});
    advance(2, decay_, {gained});
  }
  // S, C, F: F <- gamma^2 F + (k.q) k v^T + gamma S q v^T
  void direct() {
    const Terms gained = rules_.scaled(decay_, rules_.product(states_[0], qv()));
    const Running s = score();
    Vector scaled_key = s.value * k_,
           error = ((1 + rules_.u) * s.error + rules_.u * std::abs(s.value)) * k_.cwiseAbs();
    error.array() += rules_.eta;
    advance(0, decay_, {single(kk())});
    advance(1, decay_, {single(qv())});
    advance(2, decay_ * decay_, {single(rules_.outer(scaled_key, error, v_)), gained});
  }
  // P, E: E <- gamma E + (q.k) k v^T + gamma k q^T P
  void asymmetric() {
    const Terms gained = rules_.scaled(decay_, rules_.product(kq(), states_[0]));
    advance(0, decay_, {single(kv())});
    advance(1, decay_, {single(rules_.scaled(score(), kv())), gained});
  }
  // SK, P, F: F <- gamma^3 F + (q.k)^2 k v^T + SK R + U P + SK (X P) with a token's X = gamma^2 q q^T, R = gamma (q.k) q v^T
  // and U = gamma (q.k) k q^T
  void third() {
    const Running s = score();
    RankOne qq = rules_.outer(q_, q_error_, q_);
    qq.error.add(((1 + rules_.u) * (q_.cwiseAbs() + q_error_)), q_error_);
    const RankOne x = rules_.scaled(decay_ * decay_, qq), r = rules_.scaled(decay_ * s, qv()),
                  u = rules_.scaled(decay_ * s, kq());
    const std::vector<Terms> gained{single(rules_.scaled(s * s, kv())), rules_.product(states_[0], r),
                                    rules_.product(u, states_[1]),
                                    rules_.product(states_[0], rules_.number(rules_.product(x, states_[1])))};
    advance(0, decay_, {single(kk())});
    advance(1, decay_, {single(kv())});
    advance(2, decay_ * decay_ * decay_, gained);
  }

  RowTerms read_last() const { return rules_.product(q_, q_error_, states_.back()); }
  RowTerms with_ridge(const RowTerms& o) const {
    if (scalars_.ridge == Running(0)) return o;
    return Rules::sum(o, rules_.scaled(scalars_.ridge, rules_.product(q_, q_error_, states_[1])));
  }
  RowTerms read_direct() const { return with_ridge(read_last()); }
  // q^T S C - q^T G
  RowTerms read_subtract() const {
    const RowTerms through = rules_.product(q_, q_error_, states_[0]);
    const RowTerms whole = rules_.product(through.x, rules_.error_of(through), states_[1]);
    return with_ridge(Rules::sum(whole, read_last(), -1));
  }

  const Head<double>& head_;
  const Head<Running>& scalars_;
  const StreamRounding& rounding_;
  const Rules rules_;
  const Running decay_;
  Index t_ = 0;
  std::vector<Dense> states_;
  Vector q_, q_error_, k_, v_, none_;
  std::string undecided_;
};

// From so many operations on the generic analysis costs a tenth of a second and more.
double worthwhile = usual_stream_work;

}  // namespace

void set_stream_work(double operations) { worthwhile = operations; }

std::optional<RunningRows> running_stream(const Declaration& declaration, int algebra,
                                          const Head<double>& head, const Head<Running>& scalars,
                                          const StreamRounding& rounding) {
  const auto d = static_cast<double>(head.q.cols()), dv = static_cast<double>(head.v.cols());
  const bool composed = declaration.name.starts_with("hla") || declaration.name == "ahla";
  if (static_cast<double>(head.tokens()) * d * dv * (composed ? d : 1) < worthwhile) return std::nullopt;
  return Stream(head, scalars, rounding).run(declaration, algebra);
}

}  // namespace attest
