// What the first order of the delta rules leaves out: products of two and more rounding errors, and underflow.
// Entry by entry such a bound doubles with every token (|I - beta k k^T|); in the 2-norm of the columns of the state
// it does not. With A the exact transition of a chunk or token, an error E of the state obeys, exactly,
//   E' = A E + (local error at the computed operands),   |A|_2 <= product of alpha_t max(1, |1 - beta_t |k_t|^2|)
// so with f and r bounds on the first-order part and on the rest of E, column by column,
//   f' = |A| f + local first order,   r' = |A| r + local rest,   the local rest made of errors times errors.
// A computed product X^ Y^ of inner length K differs from X Y by E_X Y + X E_Y + E_X E_Y + gamma_K |X^||Y^| + K eta,
// norms being |X^||Y^| <= |X|_F |Y|. The inverse: N^ X^ = I + R, |R| <= gamma |N^||X^| (Higham, theorem 8.5), hence
//   |E_X| <= |X|_2 (|E_N| (|X|_2 + |E_X|) + gamma (|N|_F + |E_N|) (|X|_F + |E_X|)).
// The step of a stream, in any association (operators/common/delta_step.hpp), is a local error of gamma_(d+5) and the gate's
// relative to its monomials, which are those of S and of E.
// Elementwise chains of factors with relative errors x_i: (prod (1 + x_i) - 1 - sum x_i) <= e^x - 1 - x, x = sum x_i.
#include "reference/forms/forms.hpp"
#include "reference/metrics/remainder.hpp"
#include "reference/operators/common/delta_step.hpp"
#include "reference/operators/common/error_delta.hpp"
#include "reference/operators/common/log_linear_operator.hpp"

namespace attest {
namespace {

using Vector = Eigen::ArrayXd;

double beyond_first(double x) { return std::expm1(x) - x; }

// Norms of errors, one for each row or column meant, by order: first, and all the rest.
struct Errors {
  Vector first, rest;
  Errors() = default;
  explicit Errors(Index count) : first(Vector::Zero(count)), rest(Vector::Zero(count)) {}
  Vector total() const { return first + rest; }
  // The value, of norms `size`, is rounded with unit roundoff `unit`, each entry losing up to eta by underflow.
  void round(const Vector& size, double unit, double eta) {
    rest += unit * total() + eta;
    first += unit * size;
  }
  Errors& operator+=(const Errors& more) { return first += more.first, rest += more.rest, *this; }
};
Errors operator+(Errors a, const Errors& b) { return a += b; }
Errors operator*(double factor, Errors e) { return e.first *= factor, e.rest *= factor, e; }

struct Part {
  double first, rest;
  double total() const { return first + rest; }
};

// Norms of subnormal entries too, whose squares are zero.
Vector column_sizes(const Array& x) { return x.colwise().stableNorm().transpose().array(); }
Vector row_sizes(const Array& x) { return x.rowwise().stableNorm().array(); }
double root(Index count) { return std::sqrt(static_cast<double>(count)); }

// An upper bound of |X|_2, at most n^(1/16) too large: the Frobenius norm of (X^T X)^8 to the power 1/16, of X scaled to
// entries of at most 1.
double spectral_bound(const Array& unscaled) {
  const double scale = unscaled.size() > 0 ? unscaled.cwiseAbs().maxCoeff() : 0;
  if (!(scale > 0) || std::isinf(scale)) return scale;
  const Array x = unscaled / scale;
  Array square = x.rows() < x.cols() ? Array(x * x.transpose()) : Array(x.transpose() * x);
  double norm = square.norm(), power = 1;
  double log_norm = 0;  // of the square's own scale
  for (int i = 0; i < 3; ++i) {
    log_norm += std::log(norm) / power;
    square /= norm;
    square = Array(square * square);
    norm = square.norm(), power *= 2;
  }
  return scale * std::min(x.norm(), std::exp((log_norm + std::log(norm) / power) / 2) * (1 + 1e-9));
}

// A matrix that stands on the left of products, its errors row by row.
struct Rows {
  Array value;
  Errors error;
  double norm = 0;  // of value, in the 2-norm
  Rows(Array x, Errors e) : value(std::move(x)), error(std::move(e)), norm(spectral_bound(value)) {}
  Vector size() const { return row_sizes(value); }
  double frobenius() const { return value.stableNorm(); }
  Part whole() const { return {error.first.matrix().stableNorm(), error.rest.matrix().stableNorm()}; }
  void round(double unit, double eta) { error.round(size(), unit, unit > 0 ? eta * root(value.cols()) : 0); }
};

Rows product(const Rows& a, const Rows& b, double gamma, double eta) {
  const Part other = b.whole();
  const double size = b.frobenius();
  Errors e(a.value.rows());
  e.first = a.error.first * b.norm + a.size() * (other.first + gamma * size);
  e.rest = a.error.rest * b.norm + a.size() * (other.rest + gamma * other.total()) +
           a.error.total() * (other.total() + gamma * (size + other.total())) +
           eta * static_cast<double>(a.value.cols()) * root(b.value.cols());
  return {a.value * b.value, std::move(e)};
}

// Errors of the columns of X Y from those of X and the product itself; what the error of Y costs to first order,
// |X| e_Y, is left to the caller.
Errors local_product(const Rows& x, const Vector& y, const Errors& y_error, double gamma, double eta) {
  const Part left = x.whole();
  Errors e(y.size());
  e.first = (left.first + gamma * x.frobenius()) * y;
  e.rest = left.rest * y + (left.total() + gamma * x.frobenius()) * y_error.total() +
           gamma * left.total() * (y + y_error.total()) +
           eta * static_cast<double>(x.value.cols()) * root(x.value.rows());
  return e;
}

// Errors of single entries of o, (tokens, columns).
struct Grid {
  Array first, rest;
  Grid(Index rows, Index columns) : first(Array::Zero(rows, columns)), rest(first) {}
  Array total() const { return first + rest; }
  void round(const Array& size, double unit, double eta) {
    rest += unit * total() + Array::Constant(first.rows(), first.cols(), eta);
    first += unit * size.cwiseAbs();
  }
};

Array outer(const Vector& a, const Vector& b) { return a.matrix() * b.matrix().transpose(); }

// X Y entry by entry, scaled row by row by `scale` (>= 0), a factor of relative error x among those of the product.
void read(Grid& grid, const Rows& x, const Vector& y, const Errors& y_error, const Vector& scale,
          double relative, double eta) {
  const Vector size = scale * x.size(), x_first = scale * x.error.first, x_rest = scale * x.error.rest,
               y_all = y + y_error.total();
  grid.first += outer(size, y_error.first + relative * y) + outer(x_first, y);
  grid.rest += outer(size, y_error.rest + relative * y_error.total() + beyond_first(relative) * y_all) +
               outer(x_rest, y) + outer(x_first + x_rest, y_error.total() + std::expm1(relative) * y_all);
  grid.rest += outer(Vector::Constant(size.size(), eta * static_cast<double>(x.value.cols())) * (1 + scale),
                     Vector::Ones(y.size()));
}

struct Underflow {
  explicit Underflow(const Contract& c)
      : step(std::max(c.accumulate.smallest_subnormal(), c.gate_sum.smallest_subnormal())),
        operand(std::max(c.intermediate.smallest_subnormal(), c.product.smallest_subnormal())),
        state(c.state.smallest_subnormal()),
        output(c.output.smallest_subnormal()) {}
  double step, operand, state, output;
};

// ---- the chunk forms

// What the weight of a segment loses where it is subnormal, twice for the roundings after it: its exponential exp_ulp places of
// gate_sum and its conversion, or an eta for each product of gates, none above 1. (size + 1, size + 1).
Array lost_weights(const FormError& form, const DeltaStages& c) {
  const Contract& contract = form.units.contract;
  const Gates<double> gates = declared_gates(form);
  const bool converted = contract.gate_sum.precision > contract.accumulate.precision;
  const double exponential =
      contract.exp_ulp * contract.gate_sum.smallest_subnormal() + (converted ? form.units.eta : 0);
  Array lost = Array::Zero(c.size + 1, c.size + 1);
  for (Index t = 1; t <= c.size; ++t)
    for (Index s = 0; s < t; ++s)
      lost(t, s) = 2 * (gates.log_gate ? exponential
                        : gates.alpha  ? static_cast<double>(t - s) * form.units.eta
                                       : 0);
  return lost;
}

// T = N^-1 diag(beta), W = T F, P and K' of a chunk with their errors.
struct Chunk {
  Chunk(const FormError& form, const DeltaStages& c, const Underflow& low)
      : lost(lost_weights(form, c)),
        scores(products(form, c, c.scores, c.scores_error, c.q, false, low)),
        keys(c.keys.transpose(), Errors(c.keys.cols())),
        ut(inverse(form, c, low)),
        w(product(ut, faded(c.start_keys, c.start_keys_error, c.k, lost.col(0).tail(c.size), form, low),
                  form.units.gamma(c.size), low.step)) {
    const Units& units = form.units;
    const double inverse_norm = spectral_bound(c.inverse);
    scaled_lost = inverse_norm * std::max(low.step, units.operand > 0 ? low.operand : 0) * root(c.size);
    w.error.rest += scaled_lost * root(c.k.cols()) + inverse_norm * low.step * c.k.stableNorm();
    scores.round(units.operand, low.operand);
    // The errors of K'^T, column by column of K' whole: all rows take the same.
    const Rows upright =
        faded(c.keys, c.keys_error, c.k, lost.row(c.size).tail(c.size).transpose(), form, low);
    const double d = root(c.keys.cols());
    keys.error.first.setConstant(upright.whole().first / d);
    keys.error.rest.setConstant(upright.whole().rest / d);
    w.round(units.operand, low.operand);
    transition =
        std::min(spectral_bound(c.through() * Array::Identity(c.k.cols(), c.k.cols()) - keys.value * c.w),
                 contraction(form, c));
  }
  Array lost;
  Rows scores, keys, ut, w;
  double transition = 0;
  // Of U = N^-1 (diag(beta) V) in the place of (N^-1 diag(beta)) V, and of W likewise: beta v underflows before N^-1 is
  // applied, and beta times a weight before it meets the key. Its rounding is as large as that of T.
  double scaled_lost = 0;

 private:
  static double contraction(const FormError& form, const DeltaStages& c) {
    double norm = 1 + 1e-9;
    for (Index t = 0; t < c.size; ++t) {
      const double beta = form.head.beta[static_cast<std::size_t>(c.first + t)];
      norm *= c.decay(t + 1, t) * std::max(1.0, std::abs(1 - beta * c.k.row(t).squaredNorm()));
    }
    return norm;
  }
  // P or N: dot products of `left` and K times weights; `first` is the first-order error, entry by entry.
  Rows products(const FormError& form, const DeltaStages& c, const Array& value, const Array& first,
                const Array& left, bool strict, const Underflow& low) const {
    const Units& units = form.units;
    const double relative = units.gamma(c.k.cols()) + 2 * units.input + 2 * units.step;
    const Array sizes = left.cwiseAbs() * c.k.cwiseAbs().transpose();
    Array rest = Array::Zero(c.size, c.size);
    for (Index t = 0; t < c.size; ++t)
      for (Index s = 0; s < t + (strict ? 0 : 1); ++s) {
        const double beta = strict ? std::abs(form.head.beta[static_cast<std::size_t>(c.first + t)]) : 1,
                     scale = beta * c.decay(t + 1, s + 1);
        double below = beta * lost(t + 1, s + 1) * sizes(t, s) +
                       low.step * (scale * static_cast<double>(c.k.cols()) + sizes(t, s) + 2 + beta);
        if (units.input > 0)
          below += scale * low.operand * (left.row(t).lpNorm<1>() + c.k.row(s).lpNorm<1>() + low.operand);
        rest(t, s) = beyond_first(relative + c.gate_error(t + 1, s + 1)) * scale * sizes(t, s) + below;
      }
    Errors e(c.size);
    e.first = row_sizes(first), e.rest = row_sizes(rest);
    return {value, std::move(e)};
  }
  // Rows times weights; a weight that underflows is wrong by so much of the whole row, however small it makes the value.
  static Rows faded(const Array& value, const Array& first, const Array& row, const Vector& lost_weight,
                    const FormError& form, const Underflow& low) {
    const Units& units = form.units;
    Errors e(value.rows());
    e.first = row_sizes(first);
    for (Index t = 0; t < value.rows(); ++t) {
      const double size = value.row(t).stableNorm(), relative = size > 0 ? e.first(t) / size : 0;
      e.rest(t) = beyond_first(relative) * size + lost_weight(t) * row.row(t).stableNorm() +
                  2 * low.step * root(value.cols());
    }
    Rows rows(value, std::move(e));
    rows.round(units.operand, low.operand);
    return rows;
  }
  Rows inverse(const FormError& form, const DeltaStages& c, const Underflow& low) const {
    const Units& units = form.units;
    const Part n = products(form, c, c.n, c.n_error, c.k, true, low).whole();
    const double gamma = units.gamma(c.size), norm = spectral_bound(c.inverse), size = c.inverse.stableNorm(),
                 n_size = c.n.stableNorm();
    const double shrink = 1 - norm * (n.total() + gamma * (n_size + n.total()));
    const double all = shrink > 0.5 ? norm *
                                          (n.total() * norm + gamma * (n_size + n.total()) * size +
                                           static_cast<double>(c.size * c.size) * low.step) /
                                          shrink
                                    : std::numeric_limits<double>::infinity();
    const double first = norm * (n.first * norm + gamma * n_size * size);
    double beta = 0;
    for (Index t = 0; t < c.size; ++t)
      beta = std::max(beta, std::abs(form.head.beta[static_cast<std::size_t>(c.first + t)]));
    Errors e(c.size);  // the whole matrix's error, shared out over its rows
    e.first.setConstant(beta * first / root(c.size)),
        e.rest.setConstant(beta * std::max(0.0, all - first) / root(c.size));
    Rows ut(c.ut, std::move(e));
    ut.round(units.step, low.step);
    ut.round(units.operand, low.operand);
    return ut;
  }
};

Errors rounded_input(const Array& x, const Units& units, const Underflow& low) {
  Errors e(x.cols());
  e.round(column_sizes(x), units.input, units.input > 0 ? low.operand * root(x.rows()) : 0);
  return e;
}

// What a product reads of a state: the copy's own error, beside that of the state.
Errors copied(const Vector& state, const Errors& error, double unit, const Underflow& low, Index rows) {
  Errors e(state.size());
  e.first = unit * state;
  e.rest = unit * error.total() + (unit > 0 ? low.operand * root(rows) : 0);
  return e;
}

// S <- through S + K'^T X, X wrong by `local` and coherently, by W S, by `coherent` times the error of S.
struct Update {
  const Rows& keys;
  double transition, through, through_error, through_lost, coherent;
};
Errors updated(const Update& step, const Vector& state, const Errors& error, const Vector& x,
               const Errors& local, const Units& units, const Underflow& low) {
  const Errors x_error = local + step.coherent * error;
  Errors e = step.transition * error + step.keys.norm * local +
             local_product(step.keys, x, x_error, units.gamma(step.keys.value.cols()), low.step);
  e.first += step.through_error * step.through * state;
  e.rest += step.through * (step.through_error * error.total() +
                            beyond_first(step.through_error) * (state + error.total())) +
            step.through_lost * (state + error.total()) + 2 * low.step * root(step.keys.value.rows());
  return e;
}

// What U = T (V - F S) may lose more than T V - W S: sums and rounding of the residual, seen through T.
Errors residual_first(const DeltaStages& c, const Chunk& chunk, const Array& state, const Vector& before,
                      const Errors& state_error, const Units& units, const Underflow& low) {
  const Index d = c.k.cols();
  const double keys = c.start_keys.stableNorm(), gamma = units.gamma(d + 1);
  const Vector wrong = state_error.total();
  Errors residual(before.size());
  residual.first = gamma * (column_sizes(c.v) + keys * before);
  residual.rest = gamma * keys * wrong + low.step * static_cast<double>(d + 1) * root(c.size);
  residual.rest += units.operand * keys * wrong;
  residual.round(column_sizes(c.v - c.start_keys * state), units.operand,
                 units.operand > 0 ? low.operand * root(c.size) : 0);
  Errors e = chunk.ut.norm * residual;
  e.rest += (chunk.ut.whole().total() + units.gamma(c.size) * chunk.ut.frobenius()) * residual.total();
  return e;
}

Array chunk_remainder(const FormError& form) {
  const Units& units = form.units;
  const Underflow low(units.contract);
  const Head<double>& head = form.head;
  const Index n = head.tokens(), d = head.q.cols(), columns = head.v.cols();
  Array state = to_array(initial_moment(head, "S", d, columns)), remainder = Array::Zero(n, columns);
  Errors error(columns);
  for (Index first = 0; first < n; first += form.width) {
    const DeltaStages c(form, first, std::min(form.width, n - first));
    const Chunk chunk(form, c, low);
    const Vector before = column_sizes(state);
    const Errors copy = copied(before, error, first == 0 ? units.operand : units.carried_state, low, d);
    // U = T V - W S
    const Array u = c.ut * c.v - c.w * state;
    const Vector u_size = column_sizes(u);
    const double row_sum = units.gamma(c.size + d);  // of U and of o
    const Errors v_error = rounded_input(c.v, units, low);
    Errors local = chunk.ut.norm * v_error + chunk.w.norm * copy;
    local += local_product(chunk.ut, column_sizes(c.v), v_error, row_sum, low.step);
    local += local_product(chunk.w, before, error + copy, row_sum, low.step);
    local.rest += chunk.scaled_lost;
    local += residual_first(c, chunk, state, before, error + copy, units, low);
    for (const auto& [unit, eta] :
         {std::pair(units.step, 0.0), std::pair(units.operand, low.operand * root(c.size))}) {
      local.rest += unit * chunk.w.norm * error.total();
      local.round(u_size, unit, unit > 0 ? eta : 0);
    }
    const Errors u_error = local + chunk.w.norm * error;
    // o = diag(g) Q S + P U
    const Array faded = c.faded_queries(), o = faded * state + c.scores * u;
    Grid grid(c.size, columns);
    read(grid, chunk.scores, u_size, local, Vector::Ones(c.size), row_sum, low.step);
    const Vector seen = row_sizes(faded - c.scores * c.w);  // how o reads the state itself, U included
    grid.first += outer(seen, error.first), grid.rest += outer(seen, error.rest);
    grid.rest +=
        outer(chunk.scores.error.total() + row_sum * (chunk.scores.size() + chunk.scores.error.total()),
              chunk.w.norm * error.total());
    for (Index t = 0; t < c.size; ++t) {
      const double relative = row_sum + units.input + c.gate_error(t + 1, 0) + units.step,
                   size = faded.row(t).stableNorm(), q_size = c.q.row(t).stableNorm();
      const Vector wrong = error.total() + copy.total();
      grid.first.row(t).array() += size * (copy.first + relative * before).transpose();
      grid.rest.row(t).array() +=
          (size * (copy.rest + relative * wrong + beyond_first(relative) * (before + wrong))).transpose();
      const double lost = chunk.lost(t + 1, 0) * q_size + (units.input > 0 ? low.operand * root(d) : 0);
      grid.rest.row(t).array() += low.step * static_cast<double>(d + 1) + lost * (before + wrong).transpose();
    }
    grid.round(o, units.step, 0);
    if (form.round_output) grid.round(o, units.output, low.output);
    remainder.middleRows(first, c.size) = grid.rest;
    // S <- through S + K'^T U
    const Update step{
        chunk.keys,  chunk.transition, c.through(), c.through_error(units), chunk.lost(c.size, 0),
        chunk.w.norm};
    error = updated(step, before, error, u_size, local, units, low);
    state = c.through() * state + c.keys.transpose() * u;
    error.round(column_sizes(state), units.step, 0);
    error.round(column_sizes(state), units.carry, units.carry > 0 ? low.state * root(d) : 0);
  }
  return remainder;
}

// ---- blocks: the state of a plain recurrence is one that nothing merges with, the log-linear ones keep a cover

struct Block {
  Index start;
  int log_size;
  Array value;
  Errors error;
  Vector size() const { return column_sizes(value); }
};

void round_blocks(std::vector<Block>& blocks, double unit, double eta) {
  if (unit > 0)
    for (Block& block : blocks) block.error.round(block.size(), unit, eta * root(block.value.rows()));
}

void add(Block& sum, const Block& more, double step) {
  sum.value += more.value;
  sum.error += more.error;
  sum.error.round(sum.size(), step, 0);
}

void merge(std::vector<Block>& cover, double step) {
  for (std::size_t i = 0; i + 1 < cover.size();) {
    const bool siblings =
        cover[i].log_size == cover[i + 1].log_size && (cover[i].start >> cover[i].log_size) % 2 == 0;
    if (!siblings) {
      ++i;
      continue;
    }
    add(cover[i], cover[i + 1], step);
    ++cover[i].log_size;
    cover.erase(cover.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
}

std::vector<Block> initial_blocks(const FormError& form) {
  const Head<double>& head = form.head;
  const Index columns = head.v.cols();
  if (!form.declaration.level_scales)
    return {{0, 0, to_array(initial_moment(head, "S", head.q.cols(), columns)), Errors(columns)}};
  std::vector<Block> blocks;
  for (const auto& block : initial_cover(head))
    blocks.push_back({block.start, block.log_size, to_array(block.state), Errors(columns)});
  return blocks;
}

double level_scale(const Head<double>& head, Index t, Index source) {
  return head.level_scales(t, fenwick_level(head.initial.position + t, source));
}

Vector level_sizes(const Head<double>& head, Index first, Index count, Index source) {
  Vector sizes(count);
  for (Index t = 0; t < count; ++t) sizes(t) = std::abs(level_scale(head, first + t, source));
  return sizes;
}

Array log_linear_chunk_remainder(const FormError& form) {
  const Units& units = form.units;
  const Underflow low(units.contract);
  const Head<double>& head = form.head;
  const Index n = head.tokens(), d = head.q.cols(), columns = head.v.cols();
  Array remainder = Array::Zero(n, columns);
  std::vector<Block> cover = initial_blocks(form);
  for (Index first = 0, size; first < n; first += size) {
    const Index position = head.initial.position + first;
    size = aligned_chunk(position, form.width, n - first);
    const DeltaStages c(form, first, size);
    const Chunk chunk(form, c, low);
    const double gamma = units.gamma(size);
    // (P T) o Lambda, diag(g) Q - P W and K'^T T
    Rows weights = product(chunk.scores, chunk.ut, gamma, low.step);
    for (Index t = 0; t < size; ++t) {
      double most = 0;
      for (Index s = 0; s <= t; ++s) {
        const double lambda = level_scale(head, first + t, position + s);
        weights.value(t, s) *= lambda, most = std::max(most, std::abs(lambda));
      }
      weights.error.first(t) *= most, weights.error.rest(t) *= most;
    }
    weights.round(units.step, low.step), weights.round(units.operand, low.operand);
    Rows removing = product(chunk.scores, chunk.w, gamma, low.step);
    const Array faded = c.faded_queries(), faded_error = c.faded_queries_error(units);
    Rows queries(faded - removing.value, std::move(removing.error));
    for (Index t = 0; t < size; ++t) {
      const double q_size = faded.row(t).stableNorm(), wrong = faded_error.row(t).stableNorm();
      queries.error.first(t) += wrong;
      queries.error.rest(t) += beyond_first(q_size > 0 ? wrong / q_size : 0) * q_size +
                               chunk.lost(t + 1, 0) * c.q.row(t).stableNorm() + 2 * low.step * root(d);
    }
    queries.round(units.step, 0), queries.round(units.operand, low.operand);
    Rows gain = product(chunk.keys, chunk.ut, gamma, low.step);
    gain.round(units.operand, low.operand);
    // o = weights V + sum over blocks of diag(lambda) queries S
    const Errors v_error = rounded_input(c.v, units, low);
    Grid grid(size, columns);
    Array o = weights.value * c.v;
    const double row_sum = units.gamma(size + std::ssize(cover) * d);
    read(grid, weights, column_sizes(c.v), v_error, Vector::Ones(size), row_sum, low.step);
    const Update step{
        chunk.keys,  chunk.transition, c.through(), c.through_error(units), chunk.lost(c.size, 0),
        chunk.w.norm};
    for (Block& block : cover) {
      const Vector before = block.size(), lambda = level_sizes(head, first, size, block.start);
      const Errors copy =
          copied(before, block.error, first == 0 ? units.operand : units.carried_state, low, d);
      read(grid, queries, before, block.error + copy, lambda, row_sum + units.step, low.step);
      for (Index t = 0; t < size; ++t)
        o.row(t) += level_scale(head, first + t, block.start) * (queries.value.row(t) * block.value);
      grid.round(o, units.step, 0);
      const Array removed = c.w * block.value;
      Errors local = chunk.w.norm * copy;
      local += local_product(chunk.w, before, block.error + copy, units.gamma(d), low.step);
      local.rest += units.operand * chunk.w.norm * block.error.total();
      local.round(column_sizes(removed), units.operand, units.operand > 0 ? low.operand * root(size) : 0);
      block.error = updated(step, before, block.error, column_sizes(removed), local, units, low);
      block.value = Array(c.through() * block.value - c.keys.transpose() * removed);
    }
    if (form.round_output) grid.round(o, units.output, low.output);
    remainder.middleRows(first, size) = grid.rest;
    round_blocks(cover, units.step, 0);
    for (Index done = 0; done < size;) {
      Index count = std::bit_floor(static_cast<std::uint64_t>(size - done));
      while ((position + done) % count != 0) count /= 2;
      const Array v = c.v.middleRows(done, count);
      const Rows part(gain.value.middleCols(done, count), gain.error);
      const Errors part_error = rounded_input(v, units, low);
      Errors e = part.norm * part_error;
      e += local_product(part, column_sizes(v), part_error, units.gamma(count), low.step);
      cover.push_back({position + done,
                       static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count))) - 1,
                       part.value * v, std::move(e)});
      done += count;
    }
    merge(cover, units.step);
    round_blocks(cover, units.carry, low.state);
  }
  return remainder;
}

// ---- stream and scan: the generic forms, run over segments that carry norms of errors

struct Norms {
  const FormError& form;
  Underflow low;
};

struct NormedSegment {
  const Norms* norms = nullptr;  // null: the identity
  Array phi;
  double phi_norm = 1;
  Part phi_error{0, 0};
  std::vector<Block> blocks;
  // The forms visit the moments of a segment to round them.
  template <class F>
  void visit(F&&) {
    if (norms) round_blocks(blocks, norms->form.units.carry, norms->low.state);
  }
};

// The 2-norm of 1 + |x|.
double one_more(const Array& x) { return (1 + x.cwiseAbs().array()).matrix().stableNorm(); }

struct NormedDelta {
  template <class S>
  using Segment = NormedSegment;
  template <class S>
  static NormedSegment identity(Dims) {
    return {};
  }

  static NormedSegment combine(const NormedSegment& a, const NormedSegment& b) {
    if (!a.norms) return b;
    if (!b.norms) return a;
    const Units& units = a.norms->form.units;
    const Index d = b.phi.rows();
    const double gamma = units.gamma_step(d), eta = a.norms->low.step, a_size = a.phi.stableNorm(),
                 b_size = b.phi.stableNorm();
    NormedSegment result{a.norms, b.phi * a.phi, a.phi_norm * b.phi_norm, {0, 0}, {}};
    const Part &x = b.phi_error, &y = a.phi_error;
    result.phi_error = {b.phi_norm * y.first + x.first * a.phi_norm + gamma * b_size * a_size,
                        b.phi_norm * y.rest + x.rest * a.phi_norm + x.total() * y.total() +
                            gamma * (b_size * y.total() + x.total() * (a_size + y.total())) +
                            eta * static_cast<double>(d * d)};
    Errors phi_rows(d);  // the whole error, shared out
    phi_rows.first.setConstant(x.first / root(d)), phi_rows.rest.setConstant(x.rest / root(d));
    Rows phi(b.phi, std::move(phi_rows));
    for (const Block& block : a.blocks) {
      Errors e = b.phi_norm * block.error;
      e += local_product(phi, block.size(), block.error, gamma, eta);
      result.blocks.push_back({block.start, block.log_size, b.phi * block.value, std::move(e)});
    }
    if (a.norms->form.declaration.level_scales) {
      result.blocks.insert(result.blocks.end(), b.blocks.begin(), b.blocks.end());
      merge(result.blocks, units.step);
    } else {
      add(result.blocks[0], b.blocks[0], units.step);
    }
    return result;
  }

  static NormedSegment token(const Norms& norms, Index t) {
    const FormError& form = norms.form;
    const Units& units = form.units;
    const Head<double>& head = form.head;
    const auto at = static_cast<std::size_t>(t);
    const Gates<double> gates = declared_gates(form);
    const double alpha = gates.alpha ? head.alpha[at] : 1, beta = head.beta[at],
                 gate = single_gate_error(units, gates, t);
    const Array k = rows_of(head.k, t, 1), v = rows_of(head.v, t, 1),
                identity = Array::Identity(k.cols(), k.cols());
    const Array square = std::abs(alpha * beta) * (k.transpose() * k).cwiseAbs();
    const double size = (std::abs(alpha) * identity + square).stableNorm(), relative = 4 * units.step + gate;
    NormedSegment result{&norms, alpha * (identity - beta * k.transpose() * k), 1, {0, 0}, {}};
    result.phi_norm = std::abs(alpha) * std::max(1.0, std::abs(1 - beta * k.squaredNorm())) * (1 + 1e-9);
    result.phi_error = {relative * size,
                        beyond_first(relative) * size + 4 * norms.low.step * static_cast<double>(k.cols()) *
                                                            (1 + std::abs(alpha)) * (1 + std::abs(beta)) *
                                                            (1 + k.squaredNorm())};
    const Array injected = beta * k.transpose() * v;
    Errors e(v.cols());
    e.first = 2 * units.step * column_sizes(injected);
    e.rest = beyond_first(2 * units.step) * column_sizes(injected) +
             2 * norms.low.step * (1 + std::abs(beta)) * one_more(k) *
                 (1 + v.cwiseAbs().row(0).transpose().array());
    result.blocks.push_back(
        {form.declaration.level_scales ? head.initial.position + t : 0, 0, injected, std::move(e)});
    return result;
  }

  // The stream's step: a S - a b k (k^T S) + b k v^T in any association.
  static void append(const Norms& norms, Index t, const NormedSegment& token, NormedSegment& prefix) {
    const FormError& form = norms.form;
    const Head<double>& head = form.head;
    const Index d = head.q.cols();
    const bool levels = form.declaration.level_scales;
    const Gates<double> gates = declared_gates(form);
    const double alpha = gates.alpha ? std::abs(head.alpha[static_cast<std::size_t>(t)]) : 1,
                 beta = std::abs(head.beta[static_cast<std::size_t>(t)]);
    const Array k = rows_of(head.k, t, 1).cwiseAbs(), v = rows_of(head.v, t, 1).cwiseAbs();
    const double relative =
        form.units.gamma_step(delta_step_roundings(d)) + single_gate_error(form.units, gates, t);
    const double moved = alpha * (1 + beta * k.squaredNorm()), keys = one_more(k),
                 lost = 4 * norms.low.step * (1 + alpha) * (1 + beta) * keys;
    for (Block& block : prefix.blocks) {
      const Array size = block.value.cwiseAbs();
      Array sizes = alpha * (size + beta * k.transpose() * Array(k * size));
      if (!levels) sizes += beta * k.transpose() * v;
      const Vector all = column_sizes(sizes), before = block.error.total();
      Errors e = token.phi_norm * block.error;
      e.first += relative * all;
      e.rest += beyond_first(relative) * all + std::expm1(relative) * moved * before +
                lost * (keys * (root(d) + block.size() + before) + 1 + v.row(0).transpose().array());
      block.value = token.phi * block.value;
      if (!levels) block.value += token.blocks[0].value;
      block.error = std::move(e);
    }
    if (!levels) return;
    prefix.blocks.push_back(token.blocks[0]);
    merge(prefix.blocks, form.units.step);
  }

  static NormedSegment initial(const Norms& norms) {
    const Index d = norms.form.head.q.cols();
    return {&norms, Array::Identity(d, d), 1, {0, 0}, initial_blocks(norms.form)};
  }

  // Row t of the remainder of o, read from a prefix that holds the token.
  static Array read(const Norms& norms, const NormedSegment& prefix, Index t) {
    const FormError& form = norms.form;
    const Units& units = form.units;
    const Index d = form.head.q.cols(), columns = form.head.v.cols();
    const Array q = rows_of(form.head.q, t, 1);
    const Block& block = prefix.blocks[0];
    Grid grid(1, columns);
    Rows y(q, Errors(1));
    if (units.query > 0) y.error.rest.setConstant(norms.low.step * root(d));  // a scaled query underflows
    attest::read(grid, y, block.size(), block.error, Vector::Ones(1),
                 units.gamma_step(d) + units.query * (1 + units.gamma_step(d)), norms.low.step);
    if (form.round_output) grid.round(q * block.value, units.output, norms.low.output);
    return grid.rest;
  }

  // The same of levels, from a prefix that does not hold the token yet: the blocks moved and then read, or kept in between,
  // or a row on them as they are.
  static Array read_levels(const Norms& norms, const NormedSegment& prefix, Index t) {
    const FormError& form = norms.form;
    const Units& units = form.units;
    const Head<double>& head = form.head;
    const auto at = static_cast<std::size_t>(t);
    const Gates<double> gates = declared_gates(form);
    const Index d = head.q.cols(), columns = head.v.cols();
    const double alpha = gates.alpha ? head.alpha[at] : 1, beta = head.beta[at],
                 lambda = level_scale(head, t, head.initial.position + t);
    const Array q = rows_of(head.q, t, 1), k = rows_of(head.k, t, 1), v = rows_of(head.v, t, 1);
    const Array q_size = q.cwiseAbs(), k_size = k.cwiseAbs(), v_size = v.cwiseAbs();
    const double along = q_size.row(0).dot(k_size.row(0)),
                 rounding =
                     units.gamma_step(delta_read_roundings(d, static_cast<Index>(prefix.blocks.size()))),
                 relative = rounding + units.query * (1 + rounding),
                 moved = relative + single_gate_error(units, gates, t);
    const Array y = alpha * (q - beta * q.row(0).dot(k.row(0)) * k);
    const double y_size = (std::abs(alpha) * (q_size + std::abs(beta) * along * k_size)).stableNorm(),
                 seen = y.stableNorm(), q_norm = q.stableNorm(), queries = one_more(q), keys = one_more(k),
                 lost = norms.low.step * (1 + std::abs(beta)) * queries * keys;
    const double stretch = std::abs(alpha) * (1 + std::abs(beta) * k.squaredNorm());
    Grid grid(1, columns);
    const auto add = [&grid](const Vector& first, const Vector& rest) {
      grid.first.row(0) += first.matrix().transpose(), grid.rest.row(0) += rest.matrix().transpose();
    };
    Array o = lambda * beta * q.row(0).dot(k.row(0)) * v;
    const Vector own = std::abs(lambda * beta) * along * v_size.row(0).transpose().array();
    add(relative * own, beyond_first(relative) * own +
                            5 * (1 + std::abs(lambda)) * lost * (1 + v_size.row(0).transpose().array()));
    // Kept in between: rounded to the state's format, what may be wrong before included.
    const auto keep = [&](double weight, const Vector& sizes, const Vector& error) {
      if (units.carry > 0)
        add(weight * q_norm * units.carry * sizes,
            weight * q_norm * (units.carry * error + norms.low.state * root(d)));
    };
    const Vector written = std::abs(beta) * k.stableNorm() * v_size.row(0).transpose().array();
    keep(std::abs(lambda), written, std::expm1(relative) * written);
    for (const Block& block : prefix.blocks) {
      const double scale = level_scale(head, t, block.start), size = std::abs(scale);
      const Vector state = block.size(), error = block.error.total();
      add(size * (seen * block.error.first + moved * y_size * state),
          size * (seen * block.error.rest + beyond_first(moved) * y_size * state +
                  std::expm1(moved) * y_size * error) +
              11 * (1 + size) * (1 + std::abs(alpha)) * keys * lost * (root(d) + state + error));
      keep(size, stretch * state, stretch * (std::expm1(moved) * state + (1 + moved) * error));
      o += scale * (y * block.value);
    }
    if (form.round_output) grid.round(o, units.output, norms.low.output);
    return grid.rest;
  }
};

// As forms/forms.hpp: stream and scan.
Array recurrence_remainder(const FormError& form, Form kind) {
  const Norms norms{form, Underflow(form.units.contract)};
  const Head<double>& head = form.head;
  const bool before_token = form.declaration.level_scales;
  Array remainder = Array::Zero(head.tokens(), head.v.cols());
  std::vector<NormedSegment> tokens;
  for (Index t = 0; t < head.tokens(); ++t) tokens.push_back(NormedDelta::token(norms, t));
  Arithmetic<double> exact;
  std::vector<NormedSegment> prefixes;
  if (kind == Form::scan) prefixes = exclusive_scan<NormedDelta>(exact, tokens, head.dims());
  const NormedSegment initial = NormedDelta::initial(norms);
  NormedSegment prefix = initial;
  for (Index t = 0; t < head.tokens(); ++t) {
    const auto at = static_cast<std::size_t>(t);
    if (kind == Form::scan) prefix = NormedDelta::combine(initial, prefixes[at]);
    if (before_token) remainder.row(t) = NormedDelta::read_levels(norms, prefix, t);
    if (kind == Form::scan)
      prefix = NormedDelta::combine(prefix, tokens[at]);
    else
      NormedDelta::append(norms, t, tokens[at], prefix);
    round_carried(exact, prefix);
    if (!before_token) remainder.row(t) = NormedDelta::read(norms, prefix, t);
  }
  return remainder;
}

}  // namespace

Array delta_remainder(const FormError& form, Form kind) {
  if (kind != Form::chunk) return recurrence_remainder(form, kind);
  return form.declaration.level_scales ? log_linear_chunk_remainder(form) : chunk_remainder(form);
}

}  // namespace attest
