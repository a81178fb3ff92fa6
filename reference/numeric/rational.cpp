#include "reference/numeric/rational.hpp"

#include <mpfr.h>

#include <cctype>

namespace attest {
namespace {

using Integer = boost::multiprecision::mpz_int;
constexpr int exponent_limit = 100000;

bool all_digits(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text)
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  return true;
}

Rational power_of_ten(int exponent) {
  const Rational power(boost::multiprecision::pow(Integer(10), static_cast<unsigned>(std::abs(exponent))));
  return exponent < 0 ? Rational(1) / power : power;
}

std::optional<Rational> parse_decimal(std::string_view text) {
  int exponent = 0;
  if (const auto mark = text.find_first_of("eE"); mark != std::string_view::npos) {
    std::string_view digits = text.substr(mark + 1);
    const bool negative = !digits.empty() && digits[0] == '-';
    if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
    if (!all_digits(digits) || digits.size() > 6) return std::nullopt;
    exponent = std::stoi(std::string(digits)) * (negative ? -1 : 1);
    if (std::abs(exponent) > exponent_limit) return std::nullopt;
    text = text.substr(0, mark);
  }
  const auto point = text.find('.');
  std::string digits(text.substr(0, point));
  if (point != std::string_view::npos) {
    const std::string_view fraction = text.substr(point + 1);
    digits += fraction;
    exponent -= static_cast<int>(fraction.size());
  }
  if (!all_digits(digits)) return std::nullopt;
  const auto first = digits.find_first_not_of('0');  // a leading zero would mean octal
  digits = first == std::string::npos ? "0" : digits.substr(first);
  return Rational(Integer(digits)) * power_of_ten(exponent);
}

}  // namespace

std::optional<Rational> parse_rational(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  std::optional<Rational> value;
  if (const auto slash = text.find('/'); slash != std::string_view::npos) {
    const auto numerator = text.substr(0, slash), denominator = text.substr(slash + 1);
    if (!all_digits(numerator) || !all_digits(denominator)) return std::nullopt;
    const auto below = parse_decimal(denominator);
    if (!below || *below == 0) return std::nullopt;
    value = *parse_decimal(numerator) / *below;
  } else {
    value = parse_decimal(text);
  }
  if (value && negative) *value = -*value;
  return value;
}

std::string to_text(const Rational& value) { return value.str(); }

Rational rational_from(double value) { return Rational(value); }

double nearest_double(const Rational& value) {
  mpfr_t rounded;
  mpfr_init2(rounded, 53);
  const mpfr_exp_t emin = mpfr_get_emin();
  mpfr_set_emin(-1073);
  int inexact = mpfr_set_q(rounded, value.backend().data(), MPFR_RNDN);
  mpfr_subnormalize(rounded, inexact, MPFR_RNDN);
  const double result = mpfr_get_d(rounded, MPFR_RNDN);
  mpfr_set_emin(emin);
  mpfr_clear(rounded);
  return result;
}

}  // namespace attest
