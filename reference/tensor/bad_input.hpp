// The one exception for input that a user can get wrong: a file, a field, an option, an output path.
// Its message is one line, "what: where: found, expected"; the program prints it and exits with 2. Whatever
// an input contributed to the message is escaped and shortened here, so that no file can forge or flood a
// terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace attest {

namespace detail {

// Length in bytes of the well-formed UTF-8 character at the start of `text` (RFC 3629); 0 where there is
// none.
inline std::size_t utf8_length(std::string_view text, std::uint32_t& code) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  code = length == 1 ? lead : lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool impossible = (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
  return overlong || impossible ? 0 : length;
}

// Controls, line and paragraph separators, and the marks that reorder text on a terminal.
inline bool is_unprintable(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

inline std::string hex_escape(unsigned char byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace detail

inline bool is_valid_utf8(std::string_view text) {
  for (std::uint32_t code = 0; !text.empty();) {
    const std::size_t length = detail::utf8_length(text, code);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// `text` with every byte of an unprintable or malformed character as \xNN; if it has more than `limit`
// characters, both ends are kept and the middle becomes "...". Takes no more memory than it returns.
inline std::string printable(std::string_view text, std::size_t limit) {
  std::uint32_t code = 0;
  const auto length_at = [&](std::size_t at) { return detail::utf8_length(text.substr(at), code); };
  const auto step = [](std::size_t length) { return length == 0 ? std::size_t{1} : length; };
  std::size_t characters = 0;
  for (std::size_t at = 0; at < text.size(); at += step(length_at(at))) ++characters;

  std::string result;
  for (std::size_t at = 0, index = 0; at < text.size(); ++index) {
    const std::size_t length = length_at(at), end = at + step(length);
    const bool kept = characters <= limit || index < limit / 2 || index >= characters - limit / 2;
    if (!kept && index == limit / 2) result += "...";
    if (kept && length != 0 && !detail::is_unprintable(code)) {
      result += text.substr(at, length);
    } else if (kept) {
      for (std::size_t i = at; i < end; ++i)
        result += detail::hex_escape(static_cast<unsigned char>(text[i]));
    }
    at = end;
  }
  return result;
}

// A name that comes from an input, in quotes, fit for a message.
inline std::string in_quotes(std::string_view name) { return '"' + printable(name, 80) + '"'; }

struct BadInput : std::runtime_error {
  explicit BadInput(std::string_view message) : std::runtime_error(printable(message, 2000)) {}
};

}  // namespace attest
