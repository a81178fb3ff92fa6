// The report of a run as Markdown, for terminals and comments: facts, counts, a table of kernels, what did
// not pass.
#pragma once

#include <filesystem>
#include <string>

#include "reports/record.hpp"

namespace attest {

std::string render_markdown(const Records& records);
void write_markdown(const Records& records, const std::filesystem::path& path);  // throws BadInput
void write_markdown(const std::filesystem::path& records,
                    const std::filesystem::path& path);  // accepts an unfinished run

}  // namespace attest
