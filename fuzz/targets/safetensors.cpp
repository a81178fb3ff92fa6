#include "tests/tensor/fuzz_safetensors.hpp"

#include <cstdio>
#include <cstdlib>

namespace attest {

int fuzz_safetensors(const std::uint8_t* bytes, std::size_t size) {
  const FuzzOutcome outcome = examine<SafetensorsFile>(std::as_bytes(std::span(bytes, size)));
  if (outcome.fault.empty()) return 0;
  std::fprintf(stderr, "safetensors: %s\n", outcome.fault.c_str());
  std::abort();
}

}  // namespace attest
