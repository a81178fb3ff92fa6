// Plots by the program gnuplot (terminal svg): a script goes in, an SVG element comes out that can stand
// beside others in a page.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attest {

// Runs `program` on the script and returns what it writes, an <svg> element whose ids start with `prefix` and
// which refers to nothing outside itself. Nothing: the program is missing, fails, or writes no SVG.
std::optional<std::string> gnuplot_svg(const std::string& program, const std::string& script,
                                       const std::string& prefix);

// The text as a gnuplot string constant. Characters that could end it or start a command are replaced.
std::string gnuplot_text(std::string_view text, std::size_t longest = 60);

// A number as gnuplot reads it; NaN and infinities are missing values.
std::string gnuplot_number(double value);

// The SVG element alone, without declarations and namespaces (HTML knows them), with `prefix` before every id
// and reference.
std::optional<std::string> embeddable_svg(std::string svg, const std::string& prefix);

}  // namespace attest
