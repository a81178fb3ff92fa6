// Floating-point values as text that loses nothing: "-0x1.8p+1", "0x0p+0", "inf", "-inf", "nan". Independent
// of the locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attest {

std::string to_hex_float(double value);
std::optional<double> from_hex_float(std::string_view text);  // nothing: the text is not one of the above

}  // namespace attest
