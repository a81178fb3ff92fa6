// Damaged safetensors files for the fuzzer: one to four edits of a valid file. The edit number i of seed s
// depends on (s, i) alone, so that any input can be made again without those before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/targets/mutator.hpp"

namespace attest {

class SafetensorsMutator {
 public:
  SafetensorsMutator(std::vector<std::vector<std::byte>> valid_files, std::uint64_t seed);
  std::vector<std::byte> make(std::uint64_t index);

 private:
  std::vector<std::vector<std::byte>> valid_files_;
  Mutator mutator_;
};

}  // namespace attest
