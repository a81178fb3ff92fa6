// Helpers of the safetensors tests: a file put together from its header's text, and the place of test data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

namespace attest {

inline std::vector<std::byte> safetensors_text(std::string_view header, std::string_view data) {
  std::vector<std::byte> file(8 + header.size() + data.size());
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  if (!header.empty()) std::memcpy(file.data() + 8, header.data(), header.size());
  if (!data.empty()) std::memcpy(file.data() + 8 + header.size(), data.data(), data.size());
  return file;
}

// Tests run from the root of the repository.
inline std::filesystem::path tensor_test_data(std::string_view name) {
  return std::filesystem::path("tests/tensor/data") / name;
}

}  // namespace attest
