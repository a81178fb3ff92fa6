#include "reference/cases/checksum.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr std::string_view prefix = "fnv1a64-";

class Fnv {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  }
  std::string text() const { return fmt::format("{}{:016x}", prefix, hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::string checksum_of(std::span<const std::byte> bytes) {
  Fnv hash;
  hash.add(bytes);
  return hash.text();
}

std::string file_checksum(const std::filesystem::path& path) {
  std::error_code unknown;
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path, unknown))
    throw BadInput(printable(path.native(), 200) + ": cannot be read, expected a safetensors file");
  Fnv hash;
  std::vector<char> buffer(1 << 16);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    hash.add(std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(file.gcount()))));
  return hash.text();
}

bool is_checksum(std::string_view text) {
  return text.size() == prefix.size() + 16 && text.starts_with(prefix) &&
         text.find_first_not_of("0123456789abcdef", prefix.size()) == std::string_view::npos;
}

}  // namespace attest
