#include "reference/forms/certified.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <future>
#include <string>

#include "reference/forms/certified_error.hpp"
#include "reference/numeric/double_double.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr Index kRowBlock = 64;   // rows whose scores are held at once
constexpr Index kStrip = 128;     // rows that share a packed tile of keys and values; whole row blocks
constexpr Index kTokenTile = 64;  // keys per tile; a multiple of kRowBlock, which is one of kTileAlign
// Lemma 1 of tests/forms/certified.md.
double sum_error(Index depth, Index tiles) {
  const double k = static_cast<double>(depth), j = static_cast<double>(tiles);
  return (24 * (k + 4) * (k + 4) + (j + 2) * (2 * j + 24 * k + 24)) * kU2 * kUp;
}

Index round_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// Rows start on cache lines, an odd multiple of two lines apart, so that a column of packs spreads over the
// cache.
struct Block {
  static constexpr std::size_t line = 64 / sizeof(double);
  std::vector<double>
      storage;  // from the first cache line of it on: aligned allocations leave holes in glibc's heap
  Index size = 0, stride = 0;

  Block(Index rows, Index columns) : stride(round_up(columns, 2 * kTileAlign) + kTileAlign) {
    size = rows * stride;
    storage.resize(static_cast<std::size_t>(3 * size) + line - 1);
  }
  Tile tile() {
    const auto at = reinterpret_cast<std::uintptr_t>(storage.data()) / sizeof(double);
    double* start = storage.data() + (line - at % line) % line;
    return {start, start + size, start + 2 * size, stride};
  }
  ConstTile view(bool pair) {
    const Tile t = tile();
    return {t.high, pair ? t.low : nullptr, t.magnitude, t.stride};
  }
};

// (count, columns) at source, transposed in squares that fit the cache; zeros up to `filled` columns of the
// target.
void transpose(const double* source, Index count, Index columns, double* target, Index stride, Index filled) {
  constexpr Index kSquare = 8;
  for (Index s = 0; s < count; s += kSquare)
    for (Index c = 0; c < columns; c += kSquare) {
      const double* from = source + s * columns + c;
      double* to = target + c * stride + s;
      if (s + kSquare <= count && c + kSquare <= columns) {
        for (Index j = 0; j < kSquare; ++j)
          for (Index i = 0; i < kSquare; ++i) to[j * stride + i] = from[i * columns + j];
      } else {
        for (Index j = 0; j < std::min(kSquare, columns - c); ++j)
          for (Index i = 0; i < std::min(kSquare, count - s); ++i) to[j * stride + i] = from[i * columns + j];
      }
    }
  for (Index c = 0; c < columns; ++c)
    std::fill(target + c * stride + count, target + c * stride + filled, 0.0);
}

// (count, columns) of the operand from row `first` on, transposed or not, into a zero-padded block.
template <bool Transposed>
void pack(const CertifiedOperand& from, Index first, Index count, Block& block) {
  const Tile to = block.tile();
  const auto move = [&](const double* operand, double* target) {
    const double* source = operand + first * from.columns;
    if constexpr (Transposed)
      transpose(source, count, from.columns, target, to.stride, round_up(count, kTileAlign));
    else
      for (Index s = 0; s < count; ++s)
        std::copy_n(source + s * from.columns, from.columns, target + s * to.stride);
  };
  move(from.high, to.high);
  if (from.low) {
    move(from.low, to.low);
    move(from.magnitude, to.magnitude);
  } else {
    for (Index i = 0; i < block.size; ++i) to.magnitude[i] = std::fabs(to.high[i]);
  }
}

Tile rows_from(const Tile& tile, Index row) {
  const Index i = row * tile.stride;
  return {tile.high + i, tile.low + i, tile.magnitude + i, tile.stride};
}

ConstTile rows_from(const ConstTile& tile, Index row) {
  const Index i = row * tile.stride;
  return {tile.high + i, tile.low ? tile.low + i : nullptr, tile.magnitude + i, tile.stride};
}

// w_ts of one row at a time: powers of the decay, or gate products carried from row to row, and level scales.
class RowWeights {
 public:
  RowWeights(const CertifiedWeights& weights, Index tokens, Index first_row, const CertifiedKernels& kernels)
      : weights_(weights), tokens_(tokens), kernels_(kernels) {
    const auto size = static_cast<std::size_t>(round_up(tokens, kTokenTile) + kTokenTile);
    if (weights.gate_high) {
      high_.assign(size, 0), low_.assign(size, 0);
      for (Index t = 0; t < first_row; ++t) step(t, 0, round_up(t + 1, kTileAlign));
    } else if (has_decay()) {
      high_.assign(size + kTokenTile, 0), low_.assign(size + kTokenTile, 0);
      DoubleDouble w = 1;
      for (Index distance = 0; distance < tokens;
           ++distance, w *= DoubleDouble{weights.decay.high, weights.decay.low})
        set(tokens - distance, w);
    }
    if (weights.level_scales) scales_.assign(kTokenTile, 0), zeros_.assign(kTokenTile, 0);
    if (weights.gate_high)
      error_ = power_error(kPairProduct + weights.gate_error * kUp, tokens);
    else if (has_decay())
      error_ = power_error(kPairProduct + weights.decay.error * kUp, tokens);
  }

  // Relative error of a weighted score beyond that of the score: the weight's own, and up to two products.
  double error() const { return any() ? product_error(error_, 3 * kPairProduct, 0) : 0; }
  bool any() const { return !high_.empty() || !scales_.empty(); }

  // Weighs the scores of row t against tokens [s, s + kTokenTile). Rows ascend within every tile.
  void apply(Index t, Index s, double* high, double* low, double* magnitude) {
    const double inflate = weight_inflation(error_);
    if (weights_.gate_high) {
      step(t, s, kTokenTile);
      kernels_.weigh(high, low, magnitude, &high_[at(s)], &low_[at(s)], kTokenTile, inflate, kFloor);
    } else if (has_decay()) {
      const std::size_t from = at(tokens_ - t + s);
      kernels_.weigh(high, low, magnitude, &high_[from], &low_[from], kTokenTile, inflate, kFloor);
    }
    if (!weights_.level_scales) return;
    for (Index i = 0; i < kTokenTile && s + i <= t; ++i) {
      const auto level = std::bit_width(static_cast<std::uint64_t>(t ^ (s + i)));
      scales_[at(i)] = weights_.level_scales[t * weights_.levels + level];
    }
    kernels_.weigh(high, low, magnitude, scales_.data(), zeros_.data(), kTokenTile, inflate, kFloor);
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  bool has_decay() const {
    return weights_.decay.high != 1 || weights_.decay.low != 0 || weights_.decay.error != 0;
  }
  void set(Index i, DoubleDouble w) { high_[at(i)] = w.high, low_[at(i)] = w.low; }
  // From row t - 1 to row t on tokens [s, s + count).
  void step(Index t, Index s, Index count) {
    const DoubleDouble alpha = two_sum(weights_.gate_high[t], weights_.gate_low ? weights_.gate_low[t] : 0.0);
    kernels_.advance(&high_[at(s)], &low_[at(s)], count, alpha.high, alpha.low);
    if (t < s + count) set(t, 1);
  }

  const CertifiedWeights& weights_;
  Index tokens_;
  const CertifiedKernels& kernels_;
  std::vector<double> high_, low_, scales_, zeros_;
  double error_ = 0;
};

// Rows [first, last) of Lin(Q, K, V) into the output from row first - origin on; returns the error of
// certified.md.
double masked_linear_rows(const CertifiedOperand& q, const CertifiedOperand& k, const CertifiedOperand& v,
                          Index tokens, const CertifiedWeights& weights, const CertifiedKernels& kernels,
                          Index first, Index last, Index origin, CertifiedTable& output) {
  RowWeights row_weights(weights, tokens, first, kernels);
  const Index columns = round_up(v.columns, kTileAlign);
  Block queries(kStrip, q.columns), keys(q.columns, kTokenTile), values(kTokenTile, columns);
  Block scores(kRowBlock, kTokenTile), sums(kStrip, columns);
  const auto next = [&](Index row, Index step) { return std::min(last, row / step * step + step); };
  // Scores of rows [row, stop) against the packed tokens [s, s + count), and what they add to the sums.
  const auto visit = [&](Index top, Index row, Index stop, Index s, Index count) {
    const ConstTile query = rows_from(queries.view(q.low), row - top);
    const Tile score = scores.tile(), sum = rows_from(sums.tile(), row - top);
    const Index rows = stop - row;
    const bool past = s + kTokenTile <= row + 1;
    const Index step = past ? rows : kTileAlign;  // few scores of the future are computed, none is read
    for (Index r = 0; r < rows; r += step) {
      const Index wanted = round_up(std::min(count, row + r + step - s), kTileAlign);
      kernels.multiply(rows_from(query, r), keys.view(k.low), rows_from(score, r), std::min(step, rows - r),
                       wanted, q.columns, false);
    }
    for (Index r = 0; r < rows; ++r) {
      const Tile line = rows_from(score, r);
      kernels.normalise(line.high, line.low, line.magnitude, kTokenTile, sum_inflation(q.columns), kFloor);
      if (row_weights.any()) row_weights.apply(row + r, s, line.high, line.low, line.magnitude);
    }
    if (past)
      return kernels.multiply(scores.view(true), values.view(v.low), sum, rows, columns, kTokenTile, s > 0);
    for (Index r = 0; r < rows; ++r)  // the diagonal: a row never touches a later token
      kernels.multiply(rows_from(scores.view(true), r), values.view(v.low), rows_from(sum, r), 1, columns,
                       std::min(kTokenTile, row + r + 1 - s), s > 0);
  };
  for (Index top = first; top < last;) {
    const Index bottom = next(top, kStrip);
    pack<false>(q, top, bottom - top, queries);
    for (Index s = 0; s < bottom; s += kTokenTile) {
      const Index count = std::min(kTokenTile, bottom - s);
      pack<true>(k, s, count, keys);
      pack<false>(v, s, count, values);
      for (Index row = top; row < bottom; row = next(row, kRowBlock))
        if (s < next(row, kRowBlock)) visit(top, row, next(row, kRowBlock), s, count);
    }
    for (Index row = top; row < bottom; ++row) {
      const Tile line = rows_from(sums.tile(), row - top);
      kernels.normalise(line.high, line.low, line.magnitude, columns, sum_inflation(tokens), kFloor);
      const Index to = (row - origin) * v.columns;
      std::copy_n(line.high, v.columns, output.high.data() + to);
      std::copy_n(line.low, v.columns, output.low.data() + to);
      std::copy_n(line.magnitude, v.columns, output.magnitude.data() + to);
    }
    top = bottom;
  }
  const double score_error = product_error(q.error, k.error, sum_error(q.columns, 1));
  const double weighted = product_error(score_error, row_weights.error(), 0);
  return product_error(weighted, v.error, sum_error(kTokenTile, (tokens + kTokenTile - 1) / kTokenTile));
}

void check_unit(double high, double low, double error, const std::string& what) {
  if (!(high >= 0 && high <= 1 && std::fabs(low) <= kUnitRoundoff && error >= 0))
    throw BadInput(what + ": expected a number in [0, 1]");
}

void check_weights(const CertifiedWeights& weights, Index tokens) {
  check_unit(weights.decay.high, weights.decay.low, weights.decay.error, "decay");
  if (weights.gate_high && (weights.decay.high != 1 || weights.decay.low != 0))
    throw BadInput("gates: a decay is given too, expected one of them");
  for (Index t = 0; weights.gate_high && t < tokens; ++t)
    check_unit(weights.gate_high[t], weights.gate_low ? weights.gate_low[t] : 0.0, weights.gate_error,
               "gate of token " + std::to_string(t));
  const Index needed = tokens > 0 ? std::bit_width(static_cast<std::uint64_t>(tokens - 1)) + 1 : 0;
  if (weights.level_scales && weights.levels < needed)
    throw BadInput("level_scales: " + std::to_string(weights.levels) + " levels, expected at least " +
                   std::to_string(needed) + " for " + std::to_string(tokens) + " tokens");
}

struct Rows {
  Index first, last;
};

Rows checked_rows(const CertifiedOptions& options, Index tokens) {
  const Rows rows{options.first_row, options.last_row < 0 ? tokens : options.last_row};
  if (rows.first < 0 || rows.first > rows.last || rows.last > tokens)
    throw BadInput("rows " + std::to_string(rows.first) + ":" + std::to_string(rows.last) +
                   ": expected a range within " + std::to_string(tokens) + " tokens");
  return rows;
}

// gamma^power, whose error is that of as many products.
CertifiedWeights with_decay_power(const CertifiedScalar& decay, int power) {
  DoubleDouble value = 1;
  for (int i = 0; i < power; ++i) value *= DoubleDouble{decay.high, decay.low};
  const bool exact =
      decay.error == 0 && (power == 1 || (decay.low == 0 && (decay.high == 1 || decay.high == 0)));
  CertifiedWeights weights;
  weights.decay = {value.high, value.low, exact ? 0 : power_error(decay.error * kUp + kPairProduct, power)};
  return weights;
}

// Everything that the operators share: checks, stages on the rows they need, scale, radius.
class Composition {
 public:
  Composition(const CertifiedInput& input, const CertifiedOptions& options, bool decay_alone)
      : input_(input), outer_(options), inner_(options), rows_(checked_rows(options, input.tokens)) {
    if (input.tokens < 0 || input.key_dim < 0 || input.value_dim < 0) throw BadInput("negative shape");
    if (decay_alone && (input.weights.gate_high || input.weights.level_scales))
      throw BadInput("gates and level scales: expected the decay alone for this operator");
    check_weights(input.weights, input.tokens);
    inner_.first_row = 0;
    inner_.last_row = rows_.last;
  }

  CertifiedOperand q() const { return {input_.q, input_.key_dim}; }
  CertifiedOperand k() const { return {input_.k, input_.key_dim}; }
  CertifiedOperand v() const { return {input_.v, input_.value_dim}; }

  CertifiedTable inner(const CertifiedOperand& a, const CertifiedOperand& b,
                       const CertifiedOperand& c) const {
    return certified_masked_linear(a, b, c, rows_.last, with_decay_power(input_.weights.decay, 1), inner_);
  }
  CertifiedTable outer(const CertifiedOperand& a, const CertifiedOperand& b, const CertifiedOperand& c,
                       int power) const {
    CertifiedOptions options = outer_;
    options.last_row = rows_.last;
    return certified_masked_linear(a, b, c, rows_.last, with_decay_power(input_.weights.decay, power),
                                   options);
  }
  CertifiedTable weighted() const {
    return certified_masked_linear(q(), k(), v(), input_.tokens, input_.weights, outer_);
  }

  CertifiedRows finish(CertifiedTable table, int factors_of_q) const {
    apply_scale(table, factors_of_q);
    CertifiedRows result{table.rows,
                         table.columns,
                         std::move(table.high),
                         std::move(table.low),
                         {},
                         std::move(table.magnitude)};
    result.radius.resize(result.high.size());
    for (std::size_t i = 0; i < result.high.size(); ++i) {
      const double radius = table.error * result.magnitude[i] * kUp;
      const bool certified =
          std::isfinite(result.high[i]) && std::isfinite(result.low[i]) && std::isfinite(radius);
      result.radius[i] = certified ? radius : std::numeric_limits<double>::infinity();
    }
    return result;
  }

 private:
  void apply_scale(CertifiedTable& table, int power) const {
    const CertifiedScalar& scale = input_.scale;
    if (scale.high == 1 && scale.low == 0 && scale.error == 0) return;
    const DoubleDouble factor{scale.high, scale.low};
    const double error = power_error(scale.error * kUp + kPairProduct, power);
    for (std::size_t i = 0; i < table.high.size(); ++i) {
      DoubleDouble value{table.high[i], table.low[i]};
      for (int p = 0; p < power; ++p) {
        value *= factor;
        const double grown = std::fabs(factor.high) * (1 + 2 * error + 0x1p-48) + kFloor;
        table.magnitude[i] = table.magnitude[i] * grown * (1 + 0x1p-48) + kFloor;
      }
      table.high[i] = value.high, table.low[i] = value.low;
    }
    table.error = product_error(table.error, error, 0);
  }

  const CertifiedInput& input_;
  CertifiedOptions outer_, inner_;
  Rows rows_;
};

}  // namespace

CertifiedTable certified_masked_linear(const CertifiedOperand& q, const CertifiedOperand& k,
                                       const CertifiedOperand& v, Index tokens,
                                       const CertifiedWeights& weights, const CertifiedOptions& options) {
  if (q.columns != k.columns)
    throw BadInput("q has " + std::to_string(q.columns) + " columns, k has " + std::to_string(k.columns) +
                   ": expected the same");
  check_weights(weights, tokens);
  const Rows rows = checked_rows(options, tokens);
  CertifiedTable output{rows.last - rows.first, v.columns, {}, {}, {}, 0};
  const auto size = static_cast<std::size_t>(output.rows * output.columns);
  output.high.resize(size), output.low.resize(size), output.magnitude.resize(size);
  if (options.engine && options.engine->masked_linear(q, k, v, tokens, weights, rows.first, output))
    return output;

  const CertifiedKernels& kernels = options.kernels ? *options.kernels : *certified_kernels()[0];
  const auto run = [&](Index first, Index last) {
    return masked_linear_rows(q, k, v, tokens, weights, kernels, first, last, rows.first, output);
  };
  // Row t costs t: equal areas. Errors agree, since each is that of all the tokens.
  const int threads = std::clamp<int>(options.threads, 1, 256);
  const auto cut = [&](int i) {
    const double low = static_cast<double>(rows.first), high = static_cast<double>(rows.last);
    const double edge = std::sqrt(low * low + (high * high - low * low) * i / threads);
    return i == threads ? rows.last
                        : std::clamp(static_cast<Index>(edge) / kRowBlock * kRowBlock, rows.first, rows.last);
  };
  std::vector<std::future<double>> others;
  for (int i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, run, cut(i), cut(i + 1)));
  output.error = run(rows.first, threads == 1 ? rows.last : cut(1));
  for (auto& other : others) output.error = std::max(output.error, other.get());
  return output;
}

// In each operator the last stage is named, so that the tables it reads are gone when the radius is written.

CertifiedRows certified_linear(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, false);
  return c.finish(c.weighted(), 1);
}

CertifiedRows certified_hla2(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, true);
  CertifiedTable o = c.outer(c.q(), c.inner(c.q(), c.k(), c.k()), c.v(), 2);
  return c.finish(std::move(o), 2);
}

CertifiedRows certified_ahla(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, true);
  CertifiedTable o = c.outer(c.q(), c.k(), c.inner(c.q(), c.k(), c.v()), 1);
  return c.finish(std::move(o), 2);
}

CertifiedRows certified_hla3(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, true);
  CertifiedTable o = c.outer(c.q(), c.inner(c.q(), c.k(), c.k()), c.inner(c.q(), c.k(), c.v()), 3);
  return c.finish(std::move(o), 3);
}

CertifiedRows certified_hla2_unmasked(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, true);
  CertifiedTable o = c.outer(c.inner(c.q(), c.k(), c.k()), c.q(), c.v(), 1);
  return c.finish(std::move(o), 2);
}

CertifiedRows certified_hla3_unmasked(const CertifiedInput& input, const CertifiedOptions& options) {
  const Composition c(input, options, true);
  CertifiedTable o = c.outer(c.inner(c.inner(c.q(), c.k(), c.k()), c.q(), c.q()), c.k(), c.v(), 1);
  return c.finish(std::move(o), 3);
}

}  // namespace attest
