// The delta rules of the certified oracle (reference/forms/certified_delta.hpp) on a GPU, in double-double. A token waits for
// the one before it, so chunks of kChunk tokens run side by side, a warp for every column:
//   1 transitions  every chunk on the unit vectors (Phi, its transition) and on zero with the values (B, what it adds)
//   2 scan         the states at the starts of the chunks, S <- Phi S + B, in sequence; with level scales one S for every
//                  block of chunks that is complete, siblings added (SPEC section 6)
//   3 rows         every chunk again from its states; with level scales once more for the blocks inside it
// Each carries its error in the l2 norm as the processor does; what 2 adds is in radius.md. A `Warp` names how many lanes
// share a column, and their sums: 32 on the device, one where the tests run the same functions on the processor.
#pragma once
#include <cmath>
#include <cstdint>

#include "reference/forms/certified_delta_error.hpp"

namespace attest::gpu_oracle {

inline constexpr int kChunk = 64;

struct ScalarOps {
  using Real = double;
  static ATTEST_ON_BOTH double product(double x, double y) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(x, y);  // never contracted with a sum
#else
    return x * y;
#endif
  }
  static ATTEST_ON_BOTH double multiply_add(double x, double y, double z) { return fma(x, y, z); }
  static ATTEST_ON_BOTH double product_minus(double x, double y, double p) { return fma(x, y, -p); }
};
using Number = delta::Pair<ScalarOps>;
using Value = Number::Value;
using Sum = Number::Sum;

// All of a head, in memory of the machine that computes.
struct DeltaHead {
  const double *q, *k, *v, *beta, *gate_high, *gate_low, *level_scales;  // gates and level_scales may be null
  const DeltaFactors* factors;
  int64_t tokens;
  int key_dim, value_dim, levels;
  double dot, inflation;  // delta_units, norm_inflation
  DeltaScale scale;
};

// Columns with their errors and norms: column i of group g at (g columns + i) key_dim, key_dim doubles.
struct DeltaColumns {
  double *high, *low, *error, *norm;
  int columns;
};

// How a state at the start of a chunk comes about: the sum of `count` states from first on (indices of other states),
// through the transition of `chunk`, and with what that adds; no chunk: as it is given.
struct DeltaLink {
  int64_t chunk;
  int first, count;
  bool adds;
};

// The part of a column that a lane holds: entries lane, lane + lanes, ...
template <class Warp>
struct Column {
  Value s[Warp::entries];
  double error = 0, norm = 0;

  ATTEST_ON_BOTH void clear() {
    for (int e = 0; e < Warp::entries; ++e) s[e] = {0, 0};
    error = norm = 0;
  }
  ATTEST_ON_BOTH void load(const DeltaColumns& from, int64_t index, int key_dim) {
    for (int e = 0; e < Warp::entries; ++e) {
      const int i = e * Warp::lanes + Warp::lane();
      const int64_t at = index * key_dim + i;
      s[e] = i < key_dim ? Value{from.high[at], from.low[at]} : Value{0, 0};
    }
    error = from.error[index], norm = from.norm[index];
  }
  ATTEST_ON_BOTH void store(const DeltaColumns& to, int64_t index, int key_dim) const {
    for (int e = 0; e < Warp::entries; ++e) {
      const int i = e * Warp::lanes + Warp::lane();
      if (i < key_dim) to.high[index * key_dim + i] = s[e].high, to.low[index * key_dim + i] = s[e].low;
    }
    if (Warp::lane() == 0) to.error[index] = error, to.norm[index] = norm;
    Warp::sync();
  }
  ATTEST_ON_BOTH double norm_of_entries(double inflation) const {
    double squares = 0;
    for (int e = 0; e < Warp::entries; ++e) squares = fma(s[e].high, s[e].high, squares);
    return norm_from(Warp::add(squares), inflation);
  }
};

// The token t on a column whose value is v; with Read, q . s afterwards.
template <class Warp, bool Read>
ATTEST_ON_BOTH Value advance(const DeltaHead& head, int64_t t, double v, Column<Warp>& column) {
  const double *k = head.k + t * head.key_dim, *q = head.q + t * head.key_dim;
  Sum along, read;
  for (int e = 0; e < Warp::entries; ++e)
    if (const int i = e * Warp::lanes + Warp::lane(); i < head.key_dim) along.add(k[i], column.s[e]);
  Warp::join(along);
  const Value gate{head.gate_high ? head.gate_high[t] : 1, head.gate_low ? head.gate_low[t] : 0};
  const Value c = Number::coefficient(head.beta[t], v, gate, along.value());
  for (int e = 0; e < Warp::entries; ++e)
    if (const int i = e * Warp::lanes + Warp::lane(); i < head.key_dim) {
      column.s[e] = Number::advance(gate, column.s[e], c, k[i]);
      if constexpr (Read) read.add(q[i], column.s[e]);
    }
  column.error = next_error(head.factors[t], column.error, column.norm, fabs(v));
  column.norm = column.norm_of_entries(head.inflation);
  if constexpr (Read) Warp::join(read);
  return read.value();
}

ATTEST_ON_BOTH int64_t chunk_end(const DeltaHead& head, int64_t chunk) {
  const int64_t end = (chunk + 1) * kChunk;
  return end < head.tokens ? end : head.tokens;
}

// 1: column `index` of a chunk, one of the key_dim unit vectors or of the values after them.
template <class Warp>
ATTEST_ON_BOTH void transition(const DeltaHead& head, int64_t chunk, int index, const DeltaColumns& phi,
                               const DeltaColumns& added) {
  const bool unit = index < head.key_dim;
  const int value = index - head.key_dim;
  Column<Warp> column;
  column.clear();
  for (int e = 0; e < Warp::entries; ++e)
    if (unit && e * Warp::lanes + Warp::lane() == index) column.s[e] = {1, 0};
  if (unit) column.norm = 1;
  for (int64_t t = chunk * kChunk; t < chunk_end(head, chunk); ++t)
    advance<Warp, false>(head, t, unit ? 0 : head.v[t * head.value_dim + value], column);
  if (unit)
    column.store(phi, chunk * head.key_dim + index, head.key_dim);
  else
    column.store(added, chunk * head.value_dim + value, head.key_dim);
}

// 2: value column `column` of all states, in the order of the links. `chunks`: growth, state and value of next_error().
template <class Warp>
ATTEST_ON_BOTH void scan(const DeltaHead& head, int column, const DeltaLink* links, const int* sources,
                         int64_t states, const DeltaFactors* chunks, double unit_of_sum,
                         const DeltaColumns& phi, const DeltaColumns& added, const DeltaColumns& state) {
  for (int64_t n = 0; n < states; ++n) {
    const DeltaLink link = links[n];
    if (link.chunk < 0) continue;
    Column<Warp> from, more;
    from.clear();
    for (int i = 0; i < link.count; ++i) {
      more.load(state, int64_t{sources[link.first + i]} * head.value_dim + column, head.key_dim);
      const double norm = (from.norm + more.norm) * kDeltaUp;
      for (int e = 0; e < Warp::entries; ++e) from.s[e] = Number::sum(from.s[e], more.s[e]);
      from.error = (from.error + more.error + (i > 0 ? unit_of_sum * norm + 0x1p-1000 : 0)) * kDeltaUp;
      from.norm = norm;
    }
    Column<Warp> to;
    to.clear();
    if (link.adds) to.load(added, link.chunk * head.value_dim + column, head.key_dim);
    Sum sums[Warp::entries];
    for (int e = 0; e < Warp::entries; ++e) sums[e].sum = to.s[e].high, sums[e].rest = to.s[e].low;
    for (int source = 0; link.count > 0 && source < Warp::entries; ++source)
      for (int lane = 0; lane < Warp::lanes; ++lane) {
        const int i = source * Warp::lanes + lane;
        if (i >= head.key_dim) break;
        const Value s = Warp::broadcast(from.s[source], lane);
        for (int e = 0; e < Warp::entries; ++e) {
          const int row = e * Warp::lanes + Warp::lane();
          const int64_t at = (link.chunk * head.key_dim + i) * head.key_dim + row;
          if (row < head.key_dim) sums[e].add(Value{phi.high[at], phi.low[at]}, s);
        }
      }
    for (int e = 0; e < Warp::entries; ++e) to.s[e] = sums[e].value();
    to.error = (next_error(chunks[link.chunk], from.error, from.norm, to.norm) + to.error) * kDeltaUp;
    to.norm = to.norm_of_entries(head.inflation);
    to.store(state, n * head.value_dim + column, head.key_dim);
  }
}

// What a lane holds of the rows of a chunk: those of tokens lane, lane + lanes, ...
template <class Warp>
struct Rows {
  static constexpr int count = kChunk / Warp::lanes;
  Value o[count];
  double reach[count], size[count], scales[count];
};

// A walk through a chunk: where period is 0, values go in as `values` says and every token is read; otherwise the column is
// cleared every `period` tokens, values go in during the first half and tokens are read during the second (a period of
// 1: both). What is read counts lambda^level times, and once without level scales.
struct Walk {
  int period, level;
  bool values;
};

template <class Warp>
ATTEST_ON_BOTH void walk(const DeltaHead& head, int64_t chunk, int column_index, const Walk& walk,
                         Column<Warp>& column, Rows<Warp>& rows) {
  for (int64_t t = chunk * kChunk; t < chunk_end(head, chunk); ++t) {
    const int local = static_cast<int>(t - chunk * kChunk), phase = walk.period ? local % walk.period : 0;
    if (walk.period && phase == 0) column.clear();
    const bool first = phase < (walk.period + 1) / 2, values = walk.period ? first : walk.values;
    const double v = values ? head.v[t * head.value_dim + column_index] : 0;
    const Value read = advance<Warp, true>(head, t, v, column);
    if (walk.period > 1 && first) continue;
    const double lambda = head.level_scales ? head.level_scales[t * head.levels + walk.level] : 1;
    const Value part = Number::product(lambda, read);
    for (int i = 0; i < Rows<Warp>::count; ++i) {
      if (i * Warp::lanes + Warp::lane() != local) continue;
      rows.o[i] = Number::sum(rows.o[i], part);
      rows.reach[i] += product_up(fabs(lambda), column.error + head.dot * column.norm);
      rows.size[i] += product_up(fabs(lambda), column.norm);
      rows.scales[i] += fabs(lambda);
    }
  }
}

// 3: the rows of a chunk and a value column. Its states are those from first_state[chunk] to first_state[chunk + 1], each
// at the level of its own. high, low and radius: (tokens, value_dim).
template <class Warp>
ATTEST_ON_BOTH void rows_of_chunk(const DeltaHead& head, int64_t chunk, int column_index,
                                  const DeltaColumns& state, const int64_t* first_state,
                                  const int* level_of_state, double* high, double* low, double* radius) {
  Rows<Warp> rows;
  for (int i = 0; i < Rows<Warp>::count; ++i)
    rows.o[i] = {0, 0}, rows.reach[i] = rows.size[i] = rows.scales[i] = 0;
  Column<Warp> column;
  for (int64_t n = first_state[chunk]; n < first_state[chunk + 1]; ++n) {
    column.load(state, n * head.value_dim + column_index, head.key_dim);
    walk<Warp>(head, chunk, column_index, {0, level_of_state[n], head.level_scales == nullptr}, column, rows);
  }
  for (int level = 0; head.level_scales && (1 << level) <= kChunk; ++level)
    walk<Warp>(head, chunk, column_index, {1 << level, level, true}, column, rows);
  for (int i = 0; i < Rows<Warp>::count; ++i) {
    const int64_t t = chunk * kChunk + i * Warp::lanes + Warp::lane();
    if (t >= head.tokens) continue;
    const Value value = Number::product(Value{head.scale.high, head.scale.low}, rows.o[i]);
    const int64_t at = t * head.value_dim + column_index;
    high[at] = value.high, low[at] = value.low;
    radius[at] = delta_radius(head.scale, head.factors[t].query, rows.reach[i], rows.size[i], rows.scales[i]);
  }
}

}  // namespace attest::gpu_oracle
