// The certified oracle's loops without FMA: the error of a product by Veltkamp's splitting (Dekker, 1971),
// two lanes of plain C++ vectors. A factor above 2^996 overflows in the splitting and shows as a NaN: not
// certified, never wrong.
#include "reference/forms/certified_delta_step.hpp"
#include "reference/forms/certified_kernels.hpp"

namespace attest {
namespace {

typedef double Pack __attribute__((vector_size(16)));
typedef long long Bits __attribute__((vector_size(16)));
constexpr Index kPack = 2;
constexpr int kRows = 1, kPacks = 2;

inline Pack load(const double* p) { return Pack{p[0], p[1]}; }
inline void store(double* p, Pack x) { p[0] = x[0], p[1] = x[1]; }
inline Pack broadcast(double x) { return Pack{x, x}; }
inline Pack absolute(Pack x) { return Pack{__builtin_fabs(x[0]), __builtin_fabs(x[1])}; }
inline Pack multiply_add(Pack a, Pack b, Pack c) { return a * b + c; }

inline Pack upper_half(Pack a) {
  const Pack scaled = 0x1.0000002p27 * a;
  return scaled - (scaled - a);
}

inline Pack product_minus(Pack a, Pack b, Pack h) {
  const Pack product = a * b;
  const Pack a_high = upper_half(a), b_high = upper_half(b);
  const Pack a_low = a - a_high, b_low = b - b_high;
  const Pack error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
  return (product - h) + error;
}

#include "reference/forms/certified_delta_body.hpp"
#include "reference/forms/certified_kernels_body.hpp"

constexpr CertifiedKernels kTable{"baseline", multiply, normalise, weigh, advance, delta_step, delta_add};

}  // namespace

const CertifiedKernels& certified_kernels_baseline() { return kTable; }

const CertifiedKernels* const* certified_kernels() {
  static const CertifiedKernels* usable[4] = {};
  static const bool ready = [] {
    int count = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
      usable[count++] = certified_kernels_avx512();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      usable[count++] = certified_kernels_avx2();
#endif
    usable[count] = &kTable;
    return true;
  }();
  (void)ready;
  return usable;
}

}  // namespace attest
