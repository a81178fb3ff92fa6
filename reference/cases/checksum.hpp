// A checksum of the bytes of a file, so that a case line notices when its input is no longer what it was: FNV-1a, 64 bits
// (Fowler, Noll and Vo; draft-eastlake-fnv), "fnv1a64-0123456789abcdef". It finds accidents, not forgeries.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace attest {

std::string checksum_of(std::span<const std::byte> bytes);
std::string file_checksum(const std::filesystem::path& path);  // BadInput when it cannot be read
bool is_checksum(std::string_view text);

}  // namespace attest
