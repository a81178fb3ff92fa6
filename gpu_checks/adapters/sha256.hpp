// SHA-256 of a text or of a file, in hexadecimal. Source: FIPS 180-4, sections 4.1.2, 4.2.2 and 6.2.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace attest {

std::string sha256(std::string_view bytes);
std::string sha256_of_file(const std::filesystem::path& path);  // empty when it cannot be read

}  // namespace attest
