// Bytes as a safetensors file: examine_safetensors.hpp says what must hold.
#include <span>

#include "fuzz/targets/examine_safetensors.hpp"
#include "fuzz/targets/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto outcome = attest::examine<attest::SafetensorsFile>(std::as_bytes(std::span(bytes, size)));
  attest::require(outcome.fault.empty(), "safetensors: " + outcome.fault);
  return 0;
}
