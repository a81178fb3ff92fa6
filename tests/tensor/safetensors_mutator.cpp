#include "tests/tensor/safetensors_mutator.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "tests/tensor/safetensors_text.hpp"

namespace attest {
namespace {

// JSON, and the names and values of this format.
std::vector<std::string> header_words() {
  std::vector<std::string> words = json_words();
  for (const char* word :
       {"\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "\"F64\"", "\"F32\"", "\"BF16\"",
        "\"F8_E4M3\"", "\"BOOL\"", "\"I64\"", "\"C64\"", "\"shape\":[1],", "\"dtype\":\"U8\",", "\"a\":{},"})
    words.emplace_back(word);
  return words;
}

struct Parts {
  std::string header, data;
};

}  // namespace

SafetensorsMutator::SafetensorsMutator(std::vector<std::vector<std::byte>> valid_files, std::uint64_t seed)
    : valid_files_(std::move(valid_files)), mutator_(header_words(), seed) {}

std::vector<std::byte> SafetensorsMutator::make(std::uint64_t index) {
  mutator_.begin(index);
  const auto draw = [&](std::uint64_t below) { return mutator_.draw(below); };
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
    for (std::uint64_t edits = 1 + draw(4); edits > 0; --edits) mutator_.edit(parts.header, parts.data);
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
      const std::uint64_t length = draw(2) ? parts.header.size() + draw(9) - 4 : mutator_.border_number();
      std::memcpy(file.data(), &length, 8);
      break;
    }
    default:
      break;
  }
  return file;
}

}  // namespace attest
