// Helpers of the safetensors tests: a file put together from its header's text, and the folder of test data.
#pragma once

#include <cstddef>
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

// The source folder is found from the one the test runs in, or from the name under which this file was
// compiled.
inline std::filesystem::path tensor_test_data(std::string_view name) {
  const std::filesystem::path relative = std::filesystem::path("tests/tensor/data") / name;
  for (std::filesystem::path folder :
       {std::filesystem::current_path(), std::filesystem::absolute(__FILE__)}) {
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      if (exists(folder / relative)) return folder / relative;
    }
  }
  return relative;
}

}  // namespace attest
