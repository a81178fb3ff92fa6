#include "reference/forms/certified_delta_recurrence.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "reference/forms/certified_delta_layers.hpp"
#include "reference/numeric/double_double.hpp"

namespace attest {
namespace {

constexpr Index kColumns = kDeltaColumns;

struct alignas(64) Line {  // of the cache
  double entries[8];
};

// Of the rows of one layer and all older ones, on the columns of a block.
struct Layer {
  double error[kColumns] = {}, norm[kColumns] = {};
};

// The state of one level on the columns of a block.
struct LevelState {
  std::vector<Line> storage;
  double *high = nullptr, *low = nullptr;  // (key_dim, kColumns); low null: plain
  double error[kColumns] = {}, norm[kColumns] = {};
  RowLayers rows;
  std::vector<Layer> layers;  // kLayers, or none
  bool live = false;

  void clear(Index key_dim, bool pair) {
    const auto size = static_cast<std::size_t>(key_dim * kColumns);
    storage.assign((pair ? 2 : 1) * size / 8, Line{});
    high = storage.data()->entries, low = pair ? high + size : nullptr;
    std::fill_n(error, kColumns, 0.0), std::fill_n(norm, kColumns, 0.0);
    std::ranges::fill(layers, Layer());
  }
};

class Block {
 public:
  Block(const CertifiedDelta& input, const std::vector<DeltaFactors>& factors, bool layers,
        const DeltaUnits& units, DeltaPrecision precision, const CertifiedKernels& kernels, Index first,
        CertifiedRows& rows)
      : input_(input),
        factors_(factors),
        has_layers_(layers),
        units_(units),
        kernels_(kernels),
        inflation_(norm_inflation(input.key_dim)),
        first_(first),
        columns_(std::min(kColumns, input.value_dim - first)),
        rows_(rows),
        pair_(precision == DeltaPrecision::pair) {
    const Index last = input.position + input.tokens;
    states_.resize(input.level_scales ? static_cast<std::size_t>(std::bit_width(u(last)) + 1) : 1);
    for (std::size_t level = 0; level < states_.size() && level < input.initial.size(); ++level)
      if (input.initial[level]) start(open(level), input.initial[level]);
    if (!input.level_scales && !states_[0].live) open(0);
  }

  void run() {
    for (Index t = 0; t < input_.tokens; ++t) {
      if (input_.level_scales) merge(input_.position + t);
      token(t);
    }
  }

 private:
  static std::uint64_t u(Index i) { return static_cast<std::uint64_t>(i); }

  LevelState& open(std::size_t level) {
    LevelState& state = states_[level];
    if (has_layers_) state.layers.resize(kLayers), state.rows = RowLayers(input_.key_dim);
    state.clear(input_.key_dim, pair_), state.live = true;
    return state;
  }
  void start(LevelState& state, const double* matrix) {
    if (has_layers_) state.rows = RowLayers(input_.key_dim, true);
    for (Index c = 0; c < columns_; ++c) {
      double squares = 0;
      for (Index a = 0; a < input_.key_dim; ++a) {
        const double x = matrix[a * input_.value_dim + first_ + c];
        state.high[a * kColumns + c] = x, squares += x * x;
      }
      state.norm[c] = norm_from(squares, inflation_);
    }
  }

  // Before the token at `position` its predecessors' block is complete: its levels become one, and level 0 the token's.
  void merge(Index position) {
    if (position > 0) {
      const auto level = static_cast<std::size_t>(std::countr_zero(u(position))) + 1;
      for (std::size_t lower = 0; lower < level; ++lower)
        if (states_[lower].live) move(states_[lower], level);
    }
    open(0);
  }
  void move(LevelState& from, std::size_t level) {
    LevelState& to = states_[level];
    if (!to.live) {
      std::swap(from, to);
    } else {
      kernels_.delta_add(to.high, to.low, from.high, from.low, input_.key_dim * kColumns);
      for (Index c = 0; c < kColumns; ++c) {
        const double norm = (to.norm[c] + from.norm[c]) * kDeltaUp;
        to.error[c] = (to.error[c] + from.error[c] + units_.add * norm + 0x1p-1000) * kDeltaUp;
        to.norm[c] = norm;
      }
      to.rows.add(from.rows);
      for (std::size_t l = 0; l < to.layers.size(); ++l) add(to.layers[l], from.layers[l]);
    }
    from.live = false;
  }
  void add(Layer& to, const Layer& from) const {
    for (Index c = 0; c < kColumns; ++c) {
      to.norm[c] = (to.norm[c] + from.norm[c]) * kDeltaUp;
      to.error[c] = (to.error[c] + from.error[c] + units_.add * to.norm[c] + 0x1p-1000) * kDeltaUp;
    }
  }

  void token(Index t) {
    const DeltaFactors& factors = factors_[static_cast<std::size_t>(t)];
    double v[kColumns] = {}, reach[kColumns] = {}, size[kColumns] = {};  // the last two times |q|
    std::copy_n(input_.v + t * input_.value_dim + first_, columns_, v);
    DoubleDouble o[kColumns];
    double scales = 0;
    bool meets = false;
    for (std::size_t level = 0; level < states_.size(); ++level) {
      LevelState& state = states_[level];
      if (!state.live) continue;
      advance(t, state, level == 0 ? v : nullptr, factors);
      const double lambda =
          input_.level_scales ? input_.level_scales[t * input_.levels + static_cast<Index>(level)] : 1;
      for (Index c = 0; c < kColumns; ++c) {
        const DoubleDouble part(o_high_[c], o_low_[c]);
        o[c] = input_.level_scales ? o[c] + part * lambda : part;
      }
      const auto meet = [&](double query, const double* error, const double* norm) {
        meets = meets || query > 0;
        const double by = product_up(std::abs(lambda), query);
        for (Index c = 0; query > 0 && c < kColumns; ++c) {
          reach[c] += product_up(by, error[c] + product_up(units_.dot, norm[c]));
          size[c] += product_up(by, norm[c]);
        }
      };
      std::array<double, kLayers + 1> query{factors.query};
      if (has_layers_) query = state.rows.queries(input_.q + t * input_.key_dim);
      meet(query[0], state.error, state.norm);
      for (std::size_t l = 0; l < state.layers.size(); ++l)
        meet(query[l + 1], state.layers[l].error, state.layers[l].norm);
      scales += std::abs(lambda);
    }
    store(t, o, reach, size, scales, meets);
  }

  // Before the errors and norms of the whole are those after the token.
  void advance_layers(LevelState& state, const DeltaFactors& factors, const double* k, bool value) const {
    std::vector<Layer>& layers = state.layers;
    if (factors.fade <= kClosed) {
      std::shift_right(layers.begin(), layers.end(), 1);
      std::copy_n(state.error, kColumns, layers[0].error), std::copy_n(state.norm, kColumns, layers[0].norm);
      state.rows.close();
    }
    state.rows.touch(k, value);
    for (Layer& layer : layers)
      for (Index c = 0; c < kColumns; ++c) {
        layer.error[c] =
            (factors.fade * layer.error[c] + factors.lost * layer.norm[c] + factors.floor) * kDeltaUp;
        layer.norm[c] = product_up(factors.fade, layer.norm[c]) * kDeltaUp;
      }
  }

  void advance(Index t, LevelState& state, const double* v, const DeltaFactors& factors) {
    const auto at = static_cast<std::size_t>(t);
    const bool gated = !input_.gates.high.empty();
    double squares[kColumns];
    kernels_.delta_step({.q = input_.q + t * input_.key_dim,
                         .k = input_.k + t * input_.key_dim,
                         .v = v,
                         .beta = input_.beta[t],
                         .gate_high = gated ? input_.gates.high[at] : 1,
                         .gate_low = gated ? input_.gates.low[at] : 0,
                         .key_dim = input_.key_dim,
                         .columns = kColumns,
                         .high = state.high,
                         .low = state.low,
                         .o_high = o_high_,
                         .o_low = o_low_,
                         .squares = squares});
    if (has_layers_) advance_layers(state, factors, input_.k + t * input_.key_dim, v != nullptr);
    for (Index c = 0; c < kColumns; ++c) {
      state.error[c] = next_error(factors, state.error[c], state.norm[c], v ? std::abs(v[c]) : 0);
      state.norm[c] = norm_from(squares[c], inflation_);
    }
  }

  void store(Index t, const DoubleDouble* o, const double* reach, const double* size, double scales,
             bool meets) {
    const DoubleDouble by(input_.scale, input_.scale_low);
    const DeltaScale scale{input_.scale, input_.scale_low, input_.scale_error,
                           delta_outer(static_cast<Index>(states_.size()))};
    const bool scaled = input_.scale != 1 || input_.scale_low != 0;
    for (Index c = 0; c < columns_; ++c) {
      const DoubleDouble value = scaled ? o[c] * by : o[c];
      const double radius = meets ? delta_radius(scale, 1, reach[c], size[c], scales) : 0;
      put_delta_entry(rows_, t * input_.value_dim + first_ + c, value.high, value.low, radius);
    }
  }

  const CertifiedDelta& input_;
  const std::vector<DeltaFactors>& factors_;
  const bool has_layers_;
  const DeltaUnits units_;
  const CertifiedKernels& kernels_;
  const double inflation_;
  const Index first_, columns_;
  CertifiedRows& rows_;
  const bool pair_;
  std::vector<LevelState> states_;
  double o_high_[kColumns] = {}, o_low_[kColumns] = {};
};

}  // namespace

void put_delta_entry(CertifiedRows& rows, Index i, double high, double low, double radius) {
  const auto at = static_cast<std::size_t>(i);
  const bool known =
      radius <= std::numeric_limits<double>::max() && std::isfinite(high) && std::isfinite(low);
  rows.high[at] = known ? high : 0, rows.low[at] = known ? low : 0;
  rows.radius[at] = known ? radius : INFINITY;
}

CertifiedRows empty_delta_rows(const CertifiedDelta& input) {
  CertifiedRows rows;
  rows.rows = input.tokens, rows.columns = input.value_dim;
  const auto size = static_cast<std::size_t>(input.tokens * input.value_dim);
  rows.high.resize(size), rows.low.resize(size), rows.radius.resize(size), rows.magnitude.resize(size);
  return rows;
}

CertifiedRows delta_recurrence(const CertifiedDelta& input, const DeltaOptions& options) {
  CertifiedRows rows = empty_delta_rows(input);
  const DeltaUnits units = delta_units(options.precision, input.key_dim);
  const std::vector<DeltaFactors> factors = delta_factors(input, units);
  const bool layers = keys_have_zeros(input);
  const CertifiedKernels& kernels = options.kernels ? *options.kernels : **certified_kernels();
  const Index blocks = (input.value_dim + kColumns - 1) / kColumns;
  std::atomic<Index> next{0};
  const auto work = [&] {
    for (Index b; (b = next++) < blocks;)
      Block(input, factors, layers, units, options.precision, kernels, b * kColumns, rows).run();
  };
  std::vector<std::thread> others;
  for (Index i = 1; i < std::min<Index>(options.threads, blocks); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return rows;
}

}  // namespace attest
