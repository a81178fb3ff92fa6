// Damaged safetensors files for the fuzzer: one to four edits of a valid file. The edit number i of seed s
// depends on (s, i) alone, so that any input can be made again without those before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attest {

class SafetensorsMutator {
 public:
  SafetensorsMutator(std::vector<std::vector<std::byte>> valid_files, std::uint64_t seed);
  std::vector<std::byte> make(std::uint64_t index);

 private:
  struct Parts;
  std::uint64_t draw(std::uint64_t below);
  void edit(Parts& parts);
  void edit_number(Parts& parts);

  std::vector<std::vector<std::byte>> valid_files_;
  std::uint64_t seed_, state_ = 0;
};

}  // namespace attest
