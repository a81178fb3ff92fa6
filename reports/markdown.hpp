// The report of a run as Markdown, for terminals and comments: facts, counts, a table of kernels, what did
// not pass.
#pragma once

#include <filesystem>
#include <string>

#include "reports/record.hpp"

namespace attest {

std::string render_markdown(const Records& records);

// GitHub shows no more of a job's summary.
inline constexpr std::size_t markdown_limit = std::size_t{1} << 20;
// `text` when it fits; otherwise whole lines of its beginning, and a last line that says how many were left out.
std::string fit_markdown(const std::string& text, std::size_t limit);

void write_markdown(const Records& records, const std::filesystem::path& path);  // throws BadInput
void write_markdown(const std::filesystem::path& records,
                    const std::filesystem::path& path);  // accepts an unfinished run

}  // namespace attest
