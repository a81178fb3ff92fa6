// Exact rational numbers over GMP: the scalar in which a verdict about an identity is final.
#pragma once
#include <boost/multiprecision/gmp.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace attest {

using Rational =
    boost::multiprecision::number<boost::multiprecision::gmp_rational, boost::multiprecision::et_off>;

// Reads "3/4", "-2", "0.1" (one tenth) or "1e-3" exactly; nothing when the text is not such a number.
std::optional<Rational> parse_rational(std::string_view text);

// "3/4", "-2": the reduced fraction.
std::string to_text(const Rational& value);

// The exact value of a finite double.
Rational rational_from(double value);

// The nearest double, ties to even.
double nearest_double(const Rational& value);

}  // namespace attest
