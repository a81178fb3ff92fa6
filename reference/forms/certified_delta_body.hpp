// The loops over certified_delta_step.hpp, for the Pack, load, store, broadcast, multiply_add and product_minus of the
// certified_kernels_*.cpp that includes this file. Columns come in multiples of kTileAlign: no loop has a remainder.

struct PackOps {
  using Real = Pack;
  static Pack product(Pack x, Pack y) { return x * y; }
  static Pack multiply_add(Pack x, Pack y, Pack z) { return attest::multiply_add(x, y, z); }
  static Pack product_minus(Pack x, Pack y, Pack p) { return attest::product_minus(x, y, p); }
};

// One pack of columns of the state.
template <class Number>
struct Column {
  double *high, *low;
  Index stride;
  typename Number::Value at(Index row) const {
    if constexpr (Number::pair)
      return {load(high + row * stride), load(low + row * stride)};
    else
      return {load(high + row * stride)};
  }
  void set(Index row, typename Number::Value value) const {
    store(high + row * stride, value.high);
    if constexpr (Number::pair) store(low + row * stride, value.low);
  }
};

template <class Number>
inline typename Number::Value value_of(double high, double low) {
  if constexpr (Number::pair)
    return {broadcast(high), broadcast(low)};
  else
    return {broadcast(high)};
}

// f(0) ... f(count - 1), unrolled, so that what it indexes stays in registers.
template <int count, class F>
inline __attribute__((always_inline)) void unrolled(const F& f) {
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) f(i);
}

// term(chain, row) of all rows, in Number::chains sums that run beside one another.
template <class Number, class Term>
inline void for_rows(Index rows, const Term& term) {
  constexpr int chains = Number::chains;
  Index row = 0;
  for (; row + chains <= rows; row += chains)
    unrolled<chains>([&](int chain) __attribute__((always_inline)) { term(chain, row + chain); });
  for (; row < rows; ++row) term(0, row);
}

template <class Number, int Packs>
inline void delta_step_block(const DeltaStep step, Index column) {
  constexpr int chains = Number::chains;
  using Sum = typename Number::Sum;
  const auto state = [&](int p) __attribute__((always_inline)) {
    const Index at = column + p * kPack;
    return Column<Number>{step.high + at, Number::pair ? step.low + at : nullptr, step.columns};
  };
  Sum along[chains][Packs] = {};
  for_rows<Number>(
      step.key_dim, [&](int chain, Index row) __attribute__((always_inline)) {
        const Pack k = broadcast(step.k[row]);
        unrolled<Packs>([&](int p)
                            __attribute__((always_inline)) { along[chain][p].add(k, state(p).at(row)); });
      });
  const auto gate = value_of<Number>(step.gate_high, step.gate_low);
  typename Number::Value c[Packs];
  unrolled<Packs>([&](int p) __attribute__((always_inline)) {
    unrolled<chains - 1>([&](int chain)
                             __attribute__((always_inline)) { along[0][p].join(along[chain + 1][p]); });
    const Pack v = step.v ? load(step.v + column + p * kPack) : Pack{};
    c[p] = Number::coefficient(broadcast(step.beta), v, gate, along[0][p].value());
  });
  Sum read[chains][Packs] = {};
  Pack squares[chains][Packs] = {};
  for_rows<Number>(
      step.key_dim, [&](int chain, Index row) __attribute__((always_inline)) {
        const Pack k = broadcast(step.k[row]), q = broadcast(step.q[row]);
        unrolled<Packs>([&](int p) __attribute__((always_inline)) {
          const auto s = Number::advance(gate, state(p).at(row), c[p], k);
          state(p).set(row, s);
          read[chain][p].add(q, s);
          squares[chain][p] = multiply_add(s.high, s.high, squares[chain][p]);
        });
      });
  unrolled<Packs>([&](int p) __attribute__((always_inline)) {
    unrolled<chains - 1>([&](int chain) __attribute__((always_inline)) {
      read[0][p].join(read[chain + 1][p]), squares[0][p] += squares[chain + 1][p];
    });
    const auto o = read[0][p].value();
    const Index at = column + p * kPack;
    store(step.o_high + at, o.high);
    if constexpr (Number::pair) store(step.o_low + at, o.low);
    store(step.squares + at, squares[0][p]);
  });
}

template <class Number>
inline void delta_step_columns(const DeltaStep& step) {
  for (Index column = 0; column < step.columns; column += 2 * kPack)
    delta_step_block<Number, 2>(step, column);
}

void delta_step(const DeltaStep& step) {
  if (step.low)
    delta_step_columns<delta::Pair<PackOps>>(step);
  else
    delta_step_columns<delta::Plain<PackOps>>(step);
}

template <class Number>
inline void delta_add_all(double* high, double* low, double* more_high, double* more_low, Index count) {
  const Column<Number> to{high, low, kPack}, from{more_high, more_low, kPack};
  for (Index row = 0; row < count / kPack; ++row) to.set(row, Number::sum(to.at(row), from.at(row)));
}

void delta_add(double* high, double* low, double* more_high, double* more_low, Index count) {
  if (low)
    delta_add_all<delta::Pair<PackOps>>(high, low, more_high, more_low, count);
  else
    delta_add_all<delta::Plain<PackOps>>(high, low, more_high, more_low, count);
}
