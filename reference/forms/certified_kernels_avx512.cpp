// The certified oracle's loops for AVX-512 (F, DQ). The target is set here, so the build needs no flag of its
// own.
#include "reference/forms/certified_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512dq"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512dq")
#endif

#include "reference/forms/certified_delta_step.hpp"  // for this target

namespace attest {
namespace {

using Pack = __m512d;
using Bits = __m512i;
constexpr Index kPack = 8;
constexpr int kRows = 4, kPacks = 2;

inline Pack load(const double* p) { return _mm512_loadu_pd(p); }
inline void store(double* p, Pack x) { _mm512_storeu_pd(p, x); }
inline Pack broadcast(double x) { return _mm512_set1_pd(x); }
inline Pack absolute(Pack x) { return _mm512_abs_pd(x); }
inline Pack multiply_add(Pack a, Pack b, Pack c) { return _mm512_fmadd_pd(a, b, c); }
inline Pack product_minus(Pack a, Pack b, Pack h) { return _mm512_fmsub_pd(a, b, h); }

#include "reference/forms/certified_delta_body.hpp"
#include "reference/forms/certified_kernels_body.hpp"

constexpr CertifiedKernels kTable{"avx512", multiply, normalise, weigh, advance, delta_step, delta_add};

}  // namespace

const CertifiedKernels* certified_kernels_avx512() { return &kTable; }

}  // namespace attest

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace attest {
const CertifiedKernels* certified_kernels_avx512() { return nullptr; }
}  // namespace attest
#endif
