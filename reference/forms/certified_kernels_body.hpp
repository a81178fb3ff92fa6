// The loops behind certified_kernels.hpp, written once over a pack of doubles. Each certified_kernels_*.cpp
// defines `Pack` (a GCC vector of doubles), `kPack`, and load, store, broadcast, absolute, two_product_error
// (the exact error of a product) and multiply_add (fused or not: the proof in certified.md allows both), then
// includes this file. Nothing here calls into the standard library: a function shared between instruction
// sets would be a trap.
#ifdef __FAST_MATH__
#error "the certified oracle needs strict floating point"
#endif

template <bool LeftPair, bool RightPair, int Rows, int Packs>
inline void multiply_block(const ConstTile& left, const ConstTile& right, const Tile& out, Index row,
                           Index column, Index depth) {
  Pack high[Rows][Packs], low[Rows][Packs], magnitude[Rows][Packs];
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Packs; ++p) {
      const Index at = (row + r) * out.stride + column + p * kPack;
      high[r][p] = load(out.high + at);
      low[r][p] = load(out.low + at);
      magnitude[r][p] = load(out.magnitude + at);
    }
  for (Index k = 0; k < depth; ++k) {
    const Index right_at = k * right.stride + column;
    Pack y[Packs], y_low[Packs], y_magnitude[Packs];
    for (int p = 0; p < Packs; ++p) {
      y[p] = load(right.high + right_at + p * kPack);
      if constexpr (RightPair) {
        y_low[p] = load(right.low + right_at + p * kPack);
        y_magnitude[p] = load(right.magnitude + right_at + p * kPack);
      } else {
        y_magnitude[p] = absolute(y[p]);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      const Index left_at = (row + r) * left.stride + k;
      const Pack x = broadcast(left.high[left_at]);
      Pack x_low, x_magnitude;
      if constexpr (LeftPair) {
        x_low = broadcast(left.low[left_at]);
        x_magnitude = broadcast(left.magnitude[left_at]);
      } else {
        x_magnitude = absolute(x);
      }
      for (int p = 0; p < Packs; ++p) {
        const Pack product = x * y[p];
        const Pack error = two_product_error(x, y[p], product);
        const Pack sum = high[r][p] + product;  // two_sum
        const Pack product_seen = sum - high[r][p];
        const Pack rest = (high[r][p] - (sum - product_seen)) + (product - product_seen);
        high[r][p] = sum;
        Pack tail = rest + error;
        if constexpr (LeftPair) tail = multiply_add(x_low, y[p], tail);
        if constexpr (RightPair) tail = multiply_add(x, y_low[p], tail);
        low[r][p] += tail;
        magnitude[r][p] = multiply_add(x_magnitude, y_magnitude[p], magnitude[r][p]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Packs; ++p) {
      const Index at = (row + r) * out.stride + column + p * kPack;
      store(out.high + at, high[r][p]);
      store(out.low + at, low[r][p]);
      store(out.magnitude + at, magnitude[r][p]);
    }
}

template <bool LeftPair, bool RightPair>
inline void multiply_pairs(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows,
                           Index columns, Index depth) {
  Index row = 0;
  for (; row + 2 <= rows; row += 2)
    for (Index column = 0; column < columns; column += kPacks * kPack)
      multiply_block<LeftPair, RightPair, 2, kPacks>(left, right, out, row, column, depth);
  for (; row < rows; ++row)
    for (Index column = 0; column < columns; column += 2 * kPack)
      multiply_block<LeftPair, RightPair, 1, 2>(left, right, out, row, column, depth);
}

void multiply(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows, Index columns,
              Index depth) {
  if (left.low && right.low) return multiply_pairs<true, true>(left, right, out, rows, columns, depth);
  if (left.low) return multiply_pairs<true, false>(left, right, out, rows, columns, depth);
  if (right.low) return multiply_pairs<false, true>(left, right, out, rows, columns, depth);
  multiply_pairs<false, false>(left, right, out, rows, columns, depth);
}

void normalise(double* high, double* low, double* magnitude, Index count, double inflate, double floor) {
  for (Index i = 0; i < count; i += kPack) {
    const Pack h = load(high + i), l = load(low + i);
    const Pack sum = h + l;
    const Pack low_seen = sum - h;
    store(high + i, sum);
    store(low + i, (h - (sum - low_seen)) + (l - low_seen));
    store(magnitude + i, load(magnitude + i) * broadcast(inflate) + broadcast(floor));
  }
}

// (high, low) *= (x, x_low): DWTimesDW2 of Joldes, Muller and Popescu.
inline void multiply_pair(double* high, double* low, Pack x, Pack x_low) {
  const Pack y = load(high), y_low = load(low);
  const Pack product = x * y;
  const Pack cross = multiply_add(x, y_low, x_low * y);
  const Pack tail = two_product_error(x, y, product) + cross;
  const Pack sum = product + tail;
  store(high, sum);
  store(low, tail - (sum - product));
}

void weigh(double* high, double* low, double* magnitude, const double* w_high, const double* w_low,
           Index count, double inflate, double floor) {
  for (Index i = 0; i < count; i += kPack) {
    const Pack w = load(w_high + i);
    multiply_pair(high + i, low + i, w, load(w_low + i));
    const Pack w_magnitude = absolute(w) * broadcast(inflate) + broadcast(floor);
    store(magnitude + i, load(magnitude + i) * w_magnitude * broadcast(inflate) + broadcast(floor));
  }
}

void advance(double* high, double* low, Index count, double factor_high, double factor_low) {
  for (Index i = 0; i < count; i += kPack)
    multiply_pair(high + i, low + i, broadcast(factor_high), broadcast(factor_low));
}
