// Damaged text: one edit at a time of words, numbers, spans and single bits. The edits after begin(i) depend on the seed
// and i alone, so that any input can be made again without those before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

class Mutator {
 public:
  // words: what an edit may insert beside what the text already holds.
  Mutator(std::vector<std::string> words, std::uint64_t seed) : words_(std::move(words)), seed_(seed) {}

  void begin(std::uint64_t index);
  std::uint64_t draw(std::uint64_t below);  // 0 .. below - 1
  std::uint64_t border_number();            // 0, 2^31 - 1, 2^64 - 1 ...
  // One edit; `rest` is what follows the text unedited, of which only the length may change.
  void edit(std::string& text, std::string& rest);

 private:
  void edit_number(std::string& text);

  std::vector<std::string> words_;
  std::uint64_t seed_, state_ = 0;
};

// What JSON is made of, and what it must not hold.
std::vector<std::string> json_words();
// The words and numbers of a text, once each.
std::vector<std::string> words_of(std::string_view text);

}  // namespace attest
