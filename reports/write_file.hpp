// A file that is either whole or not there: written under a temporary name, renamed when all of it is on its
// way to the disk.
#pragma once

#include <filesystem>
#include <string_view>

namespace attest {

std::filesystem::path partial_name(const std::filesystem::path& path);      // "x.jsonl" -> "x.jsonl.partial"
void write_file(const std::filesystem::path& path, std::string_view text);  // throws BadInput

}  // namespace attest
