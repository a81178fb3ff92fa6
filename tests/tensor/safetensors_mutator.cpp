#include "tests/tensor/safetensors_mutator.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tests/tensor/safetensors_text.hpp"

namespace attest {
namespace {

constexpr std::array<std::string_view, 40> tokens{"{",
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
                                                  "\"dtype\"",
                                                  "\"shape\"",
                                                  "\"data_offsets\"",
                                                  "\"__metadata__\"",
                                                  "\"F64\"",
                                                  "\"F32\"",
                                                  "\"BF16\"",
                                                  "\"F8_E4M3\"",
                                                  "\"BOOL\"",
                                                  "\"I64\"",
                                                  "\"C64\"",
                                                  "\"\\u0000\"",
                                                  "\"\\ud800\"",
                                                  "\xff",
                                                  "\xc0\xaf",
                                                  "\xe2\x80\xa8",
                                                  "/**/",
                                                  "NaN",
                                                  "\"shape\":[1],",
                                                  "\"dtype\":\"U8\",",
                                                  "\"a\":{},",
                                                  "[[[[[[[["};

constexpr std::array<std::uint64_t, 12> numbers{
    0,    1, 2, 3, 255, 65536, 0x7fffffff, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
    ~0ull};

}  // namespace

struct SafetensorsMutator::Parts {
  std::string header, data;
};

SafetensorsMutator::SafetensorsMutator(std::vector<std::vector<std::byte>> valid_files, std::uint64_t seed)
    : valid_files_(std::move(valid_files)), seed_(seed) {}

// SplitMix64 (Steele, Lea, Flood 2014); the bias of the remainder does not matter here.
std::uint64_t SafetensorsMutator::draw(std::uint64_t below) {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (z ^ z >> 31) % below;
}

std::vector<std::byte> SafetensorsMutator::make(std::uint64_t index) {
  state_ = seed_;
  state_ = draw(~0ull) + index;
  state_ = draw(~0ull);
  const auto pick = [&] {
    const auto& file = valid_files_[draw(valid_files_.size())];
    std::uint64_t length;
    std::memcpy(&length, file.data(), 8);
    const char* text = reinterpret_cast<const char*>(file.data()) + 8;
    return Parts{{text, length}, {text + length, file.size() - 8 - length}};
  };
  Parts parts = pick();
  const std::uint64_t kind = draw(16);
  if (kind == 0) parts.header = pick().header;  // the header of one file before the data of another
  if (kind == 1) {                              // half of one header, half of another
    const std::string other = pick().header;
    parts.header =
        parts.header.substr(0, draw(parts.header.size() + 1)) + other.substr(draw(other.size() + 1));
  }
  if (kind > 1) {
    for (std::uint64_t edits = 1 + draw(4); edits > 0; --edits) edit(parts);
  }
  std::vector<std::byte> file = safetensors_text(parts.header, parts.data);
  switch (draw(16)) {
    case 0:
      file.resize(draw(file.size() + 1));
      break;
    case 1:
      file.resize(file.size() + 1 + draw(16));
      break;
    case 2:
      file[draw(file.size())] ^= static_cast<std::byte>(1u << draw(8));
      break;
    case 3: {
      const std::uint64_t length =
          draw(2) ? parts.header.size() + draw(9) - 4 : numbers[draw(numbers.size())];
      std::memcpy(file.data(), &length, 8);
      break;
    }
    default:
      break;
  }
  return file;
}

void SafetensorsMutator::edit(Parts& parts) {
  std::string& text = parts.header;
  const std::size_t at = draw(text.size() + 1), span = draw(std::min<std::size_t>(text.size() - at, 24) + 1);
  switch (draw(10)) {
    case 0:
      text.insert(at, tokens[draw(tokens.size())]);
      break;
    case 1:
      text.replace(at, span, tokens[draw(tokens.size())]);
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
      parts.data.resize(draw(parts.data.size() + 9), '\x7f');
      break;
    case 7:
      if (draw(64) == 0) text.insert(at, std::string(draw(20000), "[{"[draw(2)]));
      break;
    default:
      edit_number(parts);
      break;
  }
}

// Replaces one number of the header by a border case, a neighbour, itself plus a power of two, or another
// number.
void SafetensorsMutator::edit_number(Parts& parts) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t i = 0; i < parts.header.size();) {
    const std::size_t begin = parts.header.find_first_of("0123456789", i);
    if (begin == std::string::npos) break;
    i = std::min(parts.header.find_first_not_of("0123456789", begin), parts.header.size());
    runs.emplace_back(begin, i - begin);
  }
  if (runs.empty()) return;
  const auto [begin, length] = runs[draw(runs.size())];
  std::uint64_t value = 0;
  for (const char digit : parts.header.substr(begin, length))
    value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  std::string text;
  switch (draw(4)) {
    case 0:
      text = std::to_string(numbers[draw(numbers.size())]);
      break;
    case 1:
      text = std::to_string(value + draw(5) - 2);
      break;
    case 2:
      text = std::to_string(value + (1ull << draw(64)));
      break;
    default: {
      const auto other = runs[draw(runs.size())];
      text = parts.header.substr(other.first, other.second);
    }
  }
  parts.header.replace(begin, length, text);
}

}  // namespace attest
