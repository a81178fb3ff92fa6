#include "reports/write_file.hpp"

#include <fmt/format.h>

#include <fstream>

#include "reference/tensor/bad_input.hpp"

namespace attest {

std::filesystem::path partial_name(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  partial += ".partial";
  return partial;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  const auto partial = partial_name(path);
  std::ofstream file(partial, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (file && !error) return;
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  throw BadInput(
      fmt::format("{}: cannot be written: expected a path in a writable folder with room for {} bytes",
                  path.string(), text.size()));
}

}  // namespace attest
