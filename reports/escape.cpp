#include "reports/escape.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attest {
namespace {

struct Symbol {
  char32_t code;     // the replacement character where the bytes are not UTF-8
  std::size_t size;  // bytes taken
};

Symbol next_symbol(std::string_view text) {
  constexpr Symbol bad{0xFFFD, 1};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return bad;
  char32_t code = first & (0x7F >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return bad;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool outside = code > 0x10FFFF || (code >= 0xD800 && code < 0xE000);
  return overlong || outside ? bad : Symbol{code, size};
}

// Control characters, and the marks that reorder the text around them.
bool invisible(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x2028 || code == 0x2029 || code == 0xFFFE ||
         code == 0xFFFF;
}

std::string_view html_entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const auto [code, size] = next_symbol(text);
    if (code == '\n' || code == '\t' || code == '\r')
      clean += ' ';
    else if (code == 0xFFFD || invisible(code))
      clean += "\xEF\xBF\xBD";
    else
      clean += text.substr(0, size);
    text.remove_prefix(code == 0xFFFD && size == 1 ? 1 : size);
  }
  return clean;
}

std::string html_text(std::string_view text) {
  std::string escaped;
  for (const char c : clean_text(text)) {
    const auto entity = html_entity(c);
    if (entity.empty())
      escaped += c;
    else
      escaped += entity;
  }
  return escaped;
}

std::string markdown_text(std::string_view text) {
  std::string escaped;
  for (const char c : clean_text(text)) {
    if (c == '<' || c == '&')
      escaped += html_entity(c);
    else if (std::string_view("\\`*_{}[]()#|~>@!").find(c) != std::string_view::npos)
      (escaped += '\\') += c;
    else
      escaped += c;
  }
  return escaped;
}

std::string markdown_code(std::string_view text) {
  std::string code = clean_text(text);
  std::replace(code.begin(), code.end(), '`', '\'');
  std::string escaped;
  for (const char c : code) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return fmt::format("`{}`", escaped);
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace attest
