// The loops behind certified_kernels.hpp, written once over a pack of doubles. Each certified_kernels_*.cpp
// defines `Pack` (a GCC vector of kPack doubles), `Bits` (the same of 64-bit integers), the block kRows x
// kPacks that fits its registers, and load, store, broadcast, absolute, multiply_add (fused or not:
// tests/forms/certified.md allows both) and product_minus(x, y, h) = x y - h with one rounding, h near x y;
// then it includes this file. Nothing here calls into the standard library: a function shared between
// instruction sets would be a trap.
#ifdef __FAST_MATH__
#error "the certified oracle needs strict floating point"
#endif

// 12 * 2^e with 2^e <= x < 2^(e+1), or 0 below 2^-1022: where sums bounded by 2 x are cut into multiples of
// one ulp.
inline Pack anchor(Pack x) {
  const Bits exponent = Bits{} + 0x7ff0000000000000;
  return (Pack)((Bits)x & exponent) * broadcast(12);
}

// First the sum of magnitudes, which bounds every partial sum; then, anchored there, each product x y is cut
// exactly into a multiple of the anchor's ulp, summed without any rounding, and a small rest.
template <bool LeftPair, bool RightPair, int Rows, int Packs>
inline void multiply_block(const ConstTile& left, const ConstTile& right, const Tile& out, Index row,
                           Index column, Index depth, bool accumulate) {
  Pack magnitude[Rows][Packs] = {}, sum[Rows][Packs], rest[Rows][Packs] = {};
  for (Index k = 0; k < depth; ++k) {
    const double* y = right.magnitude + k * right.stride + column;
    for (int r = 0; r < Rows; ++r) {
      const Pack x = broadcast(left.magnitude[(row + r) * left.stride + k]);
      for (int p = 0; p < Packs; ++p) magnitude[r][p] = multiply_add(x, load(y + p * kPack), magnitude[r][p]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Packs; ++p) sum[r][p] = anchor(magnitude[r][p]);
  for (Index k = 0; k < depth; ++k) {
    const Index right_at = k * right.stride + column;
    Pack y[Packs], y_low[Packs];
    for (int p = 0; p < Packs; ++p) {
      y[p] = load(right.high + right_at + p * kPack);
      if constexpr (RightPair) y_low[p] = load(right.low + right_at + p * kPack);
    }
    for (int r = 0; r < Rows; ++r) {
      const Index left_at = (row + r) * left.stride + k;
      const Pack x = broadcast(left.high[left_at]);
      Pack x_low;
      if constexpr (LeftPair) x_low = broadcast(left.low[left_at]);
      for (int p = 0; p < Packs; ++p) {
        const Pack next = multiply_add(x, y[p], sum[r][p]);
        Pack tail = product_minus(x, y[p], next - sum[r][p]);
        sum[r][p] = next;
        if constexpr (LeftPair) tail = multiply_add(x_low, y[p], tail);
        if constexpr (RightPair) tail = multiply_add(x, y_low[p], tail);
        rest[r][p] += tail;
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Packs; ++p) {
      const Index at = (row + r) * out.stride + column + p * kPack;
      const Pack high = accumulate ? load(out.high + at) : Pack{}, term = sum[r][p] - anchor(magnitude[r][p]);
      const Pack total = high + term;  // two_sum
      const Pack term_seen = total - high;
      const Pack lost = (high - (total - term_seen)) + (term - term_seen);
      store(out.high + at, total);
      store(out.low + at, (accumulate ? load(out.low + at) : Pack{}) + (lost + rest[r][p]));
      store(out.magnitude + at, (accumulate ? load(out.magnitude + at) : Pack{}) + magnitude[r][p]);
    }
}

template <bool LeftPair, bool RightPair>
inline void multiply_pairs(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows,
                           Index columns, Index depth, bool accumulate) {
  const Index blocked = rows / kRows * kRows;
  for (Index column = 0; column < columns;
       column += kPacks * kPack)  // these columns of right stay in the L1 cache
    for (Index row = 0; row < blocked; row += kRows)
      multiply_block<LeftPair, RightPair, kRows, kPacks>(left, right, out, row, column, depth, accumulate);
  for (Index row = blocked; row < rows; ++row)
    for (Index column = 0; column < columns; column += 2 * kPack)
      multiply_block<LeftPair, RightPair, 1, 2>(left, right, out, row, column, depth, accumulate);
}

void multiply(const ConstTile& left, const ConstTile& right, const Tile& out, Index rows, Index columns,
              Index depth, bool accumulate) {
  if (left.low && right.low)
    return multiply_pairs<true, true>(left, right, out, rows, columns, depth, accumulate);
  if (left.low) return multiply_pairs<true, false>(left, right, out, rows, columns, depth, accumulate);
  if (right.low) return multiply_pairs<false, true>(left, right, out, rows, columns, depth, accumulate);
  multiply_pairs<false, false>(left, right, out, rows, columns, depth, accumulate);
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
  const Pack tail = product_minus(x, y, product) + cross;
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
