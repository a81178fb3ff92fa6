// One token of a delta rule on one column s of its state, and the sum of two states, in double or in double-double:
//   s <- a s + c k,  c = b (v - a (k . s))
// Written once for packs of columns (certified_kernels_*.cpp) and for the threads of a GPU: `Ops` names the type Real and
//   product(x, y)   multiply_add(x, y, z), fused or not   product_minus(x, y, p) = x y - p, exact for p = product(x, y)
// all but sums, so that no compiler contracts them. How far each operation errs: tests/forms/certified_delta.md.
#pragma once

#ifdef __CUDACC__
#define ATTEST_ON_BOTH __host__ __device__ inline
#else
#define ATTEST_ON_BOTH inline
#endif

namespace attest::delta {

template <class Ops>
struct Plain {
  using Real = typename Ops::Real;
  static constexpr int chains = 4;  // sums that run beside one another
  static constexpr bool pair = false;
  struct Value {
    Real high;
  };
  struct Sum {
    Real sum{};
    ATTEST_ON_BOTH void add(Real x, Value y) { sum = Ops::multiply_add(x, y.high, sum); }
    ATTEST_ON_BOTH void join(const Sum& other) { sum = sum + other.sum; }
    ATTEST_ON_BOTH Value value() const { return {sum}; }
  };
  static ATTEST_ON_BOTH Value coefficient(Real b, Real v, Value a, Value x) {
    const Real ax = Ops::product(a.high, x.high);
    return {Ops::product(b, v - ax)};
  }
  static ATTEST_ON_BOTH Value advance(Value a, Value s, Value c, Real k) {
    return {Ops::multiply_add(c.high, k, Ops::product(a.high, s.high))};
  }
  static ATTEST_ON_BOTH Value sum(Value x, Value y) { return {x.high + y.high}; }
};

template <class Ops>
struct Pair {
  using Real = typename Ops::Real;
  static constexpr int chains = 2;
  static constexpr bool pair = true;
  struct Value {
    Real high, low;
  };
  static ATTEST_ON_BOTH Value two_sum(Real x, Real y) {
    const Real s = x + y, y_seen = s - x;
    return {s, (x - (s - y_seen)) + (y - y_seen)};
  }
  struct Sum {
    Real sum{}, rest{};
    ATTEST_ON_BOTH void add(Real x, Value y) {
      const Real p = Ops::product(x, y.high), lost = Ops::product_minus(x, y.high, p);
      const Value s = two_sum(sum, p);
      sum = s.high;
      rest = Ops::multiply_add(x, y.low, rest + (s.low + lost));
    }
    ATTEST_ON_BOTH void add(Value x, Value y) {
      add(x.high, y);
      rest = Ops::multiply_add(x.low, y.high, rest);
    }
    ATTEST_ON_BOTH void join(const Sum& other) {
      const Value s = two_sum(sum, other.sum);
      sum = s.high;
      rest = (rest + other.rest) + s.low;  // the same for both orders
    }
    ATTEST_ON_BOTH Value value() const { return two_sum(sum, rest); }
  };
  static ATTEST_ON_BOTH Value product(Value a, Value x) {
    const Real p = Ops::product(a.high, x.high);
    const Real cross = Ops::multiply_add(a.high, x.low, Ops::product(a.low, x.high));
    return two_sum(p, Ops::product_minus(a.high, x.high, p) + cross);
  }
  static ATTEST_ON_BOTH Value product(Real b, Value x) {
    const Real p = Ops::product(b, x.high);
    return two_sum(p, Ops::multiply_add(b, x.low, Ops::product_minus(b, x.high, p)));
  }
  static ATTEST_ON_BOTH Value coefficient(Real b, Real v, Value a, Value x) {
    const Value ax = product(a, x), s = two_sum(v, -ax.high), rest = two_sum(s.high, s.low - ax.low);
    return product(b, rest);
  }
  static ATTEST_ON_BOTH Value advance(Value a, Value s, Value c, Real k) {
    const Real kept = Ops::product(a.high, s.high), added = Ops::product(c.high, k);
    const Real cross = Ops::multiply_add(a.high, s.low, Ops::product(a.low, s.high));
    const Real kept_low = Ops::product_minus(a.high, s.high, kept) + cross;
    const Real added_low = Ops::multiply_add(c.low, k, Ops::product_minus(c.high, k, added));
    const Value high = two_sum(kept, added);
    return two_sum(high.high, high.low + (kept_low + added_low));
  }
  static ATTEST_ON_BOTH Value sum(Value x, Value y) {
    const Value high = two_sum(x.high, y.high);
    return two_sum(high.high, high.low + (x.low + y.low));
  }
};

}  // namespace attest::delta
