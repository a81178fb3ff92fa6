#include "fuzz/targets/mutator.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

namespace attest {
namespace {

constexpr std::array<std::uint64_t, 12> border_numbers{
    0,    1, 2, 3, 255, 65536, 0x7fffffff, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
    ~0ull};

}  // namespace

void Mutator::begin(std::uint64_t index) {
  state_ = seed_;
  state_ = draw(~0ull) + index;
  state_ = draw(~0ull);
}

// SplitMix64 (Steele, Lea, Flood 2014); the bias of the remainder does not matter here.
std::uint64_t Mutator::draw(std::uint64_t below) {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (z ^ z >> 31) % below;
}

std::uint64_t Mutator::border_number() { return border_numbers[draw(border_numbers.size())]; }

void Mutator::edit(std::string& text, std::string& rest) {
  const std::size_t at = draw(text.size() + 1), span = draw(std::min<std::size_t>(text.size() - at, 24) + 1);
  switch (draw(10)) {
    case 0:
      text.insert(at, words_[draw(words_.size())]);
      break;
    case 1:
      text.replace(at, span, words_[draw(words_.size())]);
      break;
    case 2:
      text.erase(at, span);
      break;
    case 3:
      text.insert(draw(text.size() + 1), text.substr(at, span));
      break;
    case 4:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << draw(8));
      break;
    case 5:
      if (at < text.size()) text[at] = static_cast<char>(draw(256));
      break;
    case 6:
      rest.resize(draw(rest.size() + 9), '\x7f');
      break;
    case 7:
      if (draw(64) == 0) text.insert(at, std::string(draw(20000), "[{"[draw(2)]));
      break;
    default:
      edit_number(text);
      break;
  }
}

// Replaces one number by a border case, a neighbour, itself plus a power of two, or another number of the text.
void Mutator::edit_number(std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = text.find_first_of("0123456789", i);
    if (begin == std::string::npos) break;
    i = std::min(text.find_first_not_of("0123456789", begin), text.size());
    runs.emplace_back(begin, i - begin);
  }
  if (runs.empty()) return;
  const auto [begin, length] = runs[draw(runs.size())];
  std::uint64_t value = 0;
  for (const char digit : text.substr(begin, length))
    value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  std::string number;
  switch (draw(4)) {
    case 0:
      number = std::to_string(border_number());
      break;
    case 1:
      number = std::to_string(value + draw(5) - 2);
      break;
    case 2:
      number = std::to_string(value + (1ull << draw(64)));
      break;
    default: {
      const auto other = runs[draw(runs.size())];
      number = text.substr(other.first, other.second);
    }
  }
  text.replace(begin, length, number);
}

std::vector<std::string> json_words() {
  return {"{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "\\",
          "null",
          "true",
          "-1",
          "1.5",
          "1e9",
          "-0",
          "0",
          "[]",
          "{}",
          " ",
          "\"\\u0000\"",
          "\"\\ud800\"",
          "\xff",
          "\xc0\xaf",
          "\xe2\x80\xa8",
          "/**/",
          "NaN",
          "[[[[[[[["};
}

std::vector<std::string> words_of(std::string_view text) {
  const auto inside = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  };
  std::set<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    if (!inside(text[at])) {
      ++at;
      continue;
    }
    const auto end = static_cast<std::size_t>(
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), inside) - text.begin());
    if (end - at <= 40) words.emplace(text.substr(at, end - at));
    at = end;
  }
  return {words.begin(), words.end()};
}

}  // namespace attest
