#include "reference/numeric/hex_float.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace attest {

std::string to_hex_float(double value) {
  if (std::isnan(value)) return "nan";  // the sign and payload of a NaN mean nothing here
  return fmt::format("{:a}", value);
}

std::optional<double> from_hex_float(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!text.starts_with("0x") || text.find('p') == text.npos) return std::nullopt;
  text.remove_prefix(2);
  if (text.starts_with('-')) return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::hex);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace attest
