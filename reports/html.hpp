// The report of a run as one self-contained HTML page, made from its records alone: no script, style, font or
// picture is loaded. Plots are drawn by gnuplot and stand in the page as SVG; without gnuplot the page says
// so and keeps its tables.
#pragma once

#include <filesystem>
#include <string>

#include "reports/record.hpp"

namespace attest {

struct HtmlOptions {
  std::string title = "attest report";
  std::string gnuplot = "gnuplot";  // the program that draws; empty: no plots
};

std::string render_html(const Records& records, const HtmlOptions& options = {});

// Both throw BadInput when the page cannot be written. The second also accepts records of a run that did not
// finish; the page says that they are incomplete.
void write_html(const Records& records, const std::filesystem::path& page, const HtmlOptions& options = {});
void write_html(const std::filesystem::path& records, const std::filesystem::path& page,
                const HtmlOptions& options = {});

}  // namespace attest
