// Binary floating formats as values, and one correct rounding into them (subnormals, ties, overflow).
//
//   value = ± m · 2^(e - p + 1),  0 <= m < 2^p,  emin <= e <= emax;  m < 2^(p-1) only at e = emin
//   (subnormals)
//
// p counts the hidden bit: unit roundoff u = 2^-p, smallest subnormal 2^(emin - p + 1). Sources: IEEE
// 754-2019 (fp64, fp32, fp16), OCP 8-bit Floating Point Specification 1.0 (e4m3: no infinity, largest value
// 448, NaN S.1111.111; e5m2), and bf16 and tf32 as fp32 with 8 and 11 significand bits. Overflow does not
// saturate: it gives infinity, and in e4m3 a NaN.
#pragma once

#include <gmp.h>
#include <mpfr.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

namespace attest {

// The exact power of two, within the normal range of double.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

struct Format {
  std::string_view name;
  int precision;  // p, significand bits with the hidden one
  int emin;       // the smallest normal is 2^emin
  int emax;       // the largest finite value lies in [2^emax, 2^(emax+1))
  int width;      // bits of an encoding, sign included
  bool has_infinity;

  constexpr double unit_roundoff() const { return power_of_two(-precision); }
  constexpr double smallest_normal() const { return power_of_two(emin); }
  constexpr double smallest_subnormal() const {
    return precision == 53 ? std::numeric_limits<double>::denorm_min() : power_of_two(emin - precision + 1);
  }
  // Without an infinity the largest pattern is the NaN.
  constexpr double max_finite() const {
    return (2 - power_of_two((has_infinity ? 1 : 2) - precision)) * power_of_two(emax);
  }
  constexpr double overflow() const {
    return has_infinity ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  constexpr bool operator==(const Format&) const = default;
};

inline constexpr Format fp64{"fp64", 53, -1022, 1023, 64, true};
inline constexpr Format fp32{"fp32", 24, -126, 127, 32, true};
inline constexpr Format tf32{"tf32", 11, -126, 127, 19, true};
inline constexpr Format fp16{"fp16", 11, -14, 15, 16, true};
inline constexpr Format bf16{"bf16", 8, -126, 127, 16, true};
inline constexpr Format fp8_e4m3{"fp8_e4m3", 4, -6, 8, 8, false};
inline constexpr Format fp8_e5m2{"fp8_e5m2", 3, -14, 15, 8, true};
inline constexpr std::array<const Format*, 7> formats{&fp64, &fp32,     &tf32,    &fp16,
                                                      &bf16, &fp8_e4m3, &fp8_e5m2};

// The format of that name, or nullptr.
const Format* find_format(std::string_view name);

// Toward zero, a finite value beyond the largest one becomes the largest one (IEEE 754 §7.4).
enum class Rounding { nearest_even, toward_zero };

// The value of the format next to x. NaN stays NaN, zeros keep their sign.
double round_to(const Format& format, double x, Rounding rounding = Rounding::nearest_even);

// The same for values that no double holds, without a second rounding: hi + lo (any two doubles), MPFR,
// rational.
double round_to(const Format& format, double hi, double lo, Rounding rounding = Rounding::nearest_even);
double round_to(const Format& format, mpfr_srcptr x, Rounding rounding = Rounding::nearest_even);
double round_to(const Format& format, mpq_srcptr x, Rounding rounding = Rounding::nearest_even);

// Bit patterns, sign first; tf32 has 19 bits (those of fp32 without the last 13). encode rounds to nearest
// even first and gives the positive quiet NaN for every NaN.
std::uint64_t encode(const Format& format, double x);
double decode(const Format& format, std::uint64_t bits);

namespace detail {

template <const Format& f>
inline constexpr std::uint32_t dropped_bits = 24 - f.precision;

// fp32 pattern of a non-negative float, for comparisons: patterns order like values.
constexpr std::uint32_t pattern(double magnitude) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
}

inline constexpr std::uint32_t sign_bit = 0x80000000u;
inline constexpr std::uint32_t infinity_pattern = 0x7f800000u;
inline constexpr std::uint32_t nan_pattern = 0x7fc00000u;

}  // namespace detail

// round_to for floats, inline and free of branches, for formats within fp32.
template <const Format& f>
inline float round_float(float x) {
  static_assert(f.precision < 24 && f.emin >= -126 && f.emax <= 127);
  constexpr std::uint32_t dropped = detail::dropped_bits<f>;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & ~detail::sign_bit;
  const std::uint32_t odd = (magnitude >> dropped) & 1u;
  std::uint32_t rounded = (magnitude + ((1u << (dropped - 1)) - 1u) + odd) >> dropped << dropped;
  if constexpr (f.emin > -126) {
    // Below the smallest normal the spacing is fixed: it is the spacing of the floats from `anchor` on.
    constexpr float anchor = static_cast<float>(f.smallest_subnormal() * power_of_two(23));
    const float small = (std::bit_cast<float>(magnitude) + anchor) - anchor;
    rounded =
        magnitude < detail::pattern(f.smallest_normal()) ? std::bit_cast<std::uint32_t>(small) : rounded;
  }
  if constexpr (f.emax < 127) {
    constexpr std::uint32_t overflow = f.has_infinity ? detail::infinity_pattern : detail::nan_pattern;
    rounded = rounded > detail::pattern(f.max_finite()) ? overflow : rounded;
  }
  rounded = magnitude > detail::infinity_pattern ? detail::nan_pattern : rounded;
  return std::bit_cast<float>((bits & detail::sign_bit) | rounded);
}

inline float round_tf32(float x) { return round_float<tf32>(x); }
inline float round_fp16(float x) { return round_float<fp16>(x); }
inline float round_bf16(float x) { return round_float<bf16>(x); }
inline float round_fp8_e4m3(float x) { return round_float<fp8_e4m3>(x); }
inline float round_fp8_e5m2(float x) { return round_float<fp8_e5m2>(x); }

// fp32 toward zero.
inline float truncate_fp32(double x) {
  const float nearest = static_cast<float>(x);
  const double magnitude = x < 0 ? -x : x;
  const float nearest_magnitude = nearest < 0 ? -nearest : nearest;
  const bool grew = nearest_magnitude > magnitude;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - (grew ? 1u : 0u));
}

// sum + term rounded once, to fp32 toward zero: the step of an accumulator that truncates (term: an exact
// product).
inline float add_toward_zero(float sum, double term) {
  const double s = sum + term;
  const double term_part = s - sum;
  const double error = (sum - (s - term_part)) + (term - term_part);  // two-sum: s + error is exact
  const bool grew = (error < 0 && s > 0) || (error > 0 && s < 0);
  return truncate_fp32(std::bit_cast<double>(std::bit_cast<std::uint64_t>(s) - (grew ? 1u : 0u)));
}

}  // namespace attest
