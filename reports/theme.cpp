#include "reports/theme.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace attest {
namespace {

struct Colour {
  std::uint32_t drawn;  // what the scripts of the figures say, and the colour of the light theme
  const char* name;
  const char* dark;
};

// Okabe and Ito's colours on white; on dark their lighter relatives, still far apart for colour-blind readers.
constexpr Colour colours[] = {{0x0072b2, "--blue", "#4b9bf0"},      {0xd55e00, "--vermilion", "#ff8b4a"},
                              {0x009e73, "--green", "#3ccf9f"},     {0xcc79a7, "--pink", "#eaa3cb"},
                              {0xe69f00, "--orange", "#f5b93a"},    {0x56b4e9, "--sky", "#a4dcff"},
                              {0x7a5195, "--violet", "#b795dd"},    {0x4d4d4d, "--grey", "#b4bcc4"},
                              {0xb00020, "--bound", "#ff7a7a"},     {0x222222, "--words", "#e4e8ec"},
                              {0x555555, "--axis", "#9aa5b1"},      {0xdddddd, "--grid", "#343d47"},
                              {0xffffff, "--background", "#1a2027"}};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void remove_all(std::string& text, const std::string& first, const std::string& last) {
  for (auto start = text.find(first); start != text.npos; start = text.find(first, start)) {
    const auto end = text.find(last, start);
    if (end == text.npos) return;
    text.erase(start, end + last.size() - start);
  }
}

}  // namespace

std::string themed_svg(std::string svg) {
  remove_all(svg, "<filter", "</filter>");  // of boxes behind text, which no figure has
  for (const auto& [drawn, name, dark] : colours) {
    const auto variable = fmt::format("var({})", name);
    const auto red = drawn >> 16, green = drawn >> 8 & 255, blue = drawn & 255;
    replace_all(svg, fmt::format("rgb({:3}, {:3}, {:3})", red, green, blue), variable);
    replace_all(svg, fmt::format("rgb({},{},{})", red, green, blue), variable);
    for (const char* hex : {"#{:06x}", "#{:06X}"})
      replace_all(svg, fmt::format(fmt::runtime(hex), drawn), variable);
  }
  for (const char quote : {'"', '\''}) {  // gnuplot's own defaults
    replace_all(svg, fmt::format("{0}black{0}", quote), fmt::format("{0}var(--words){0}", quote));
    replace_all(svg, fmt::format("{0}gray{0}", quote), fmt::format("{0}var(--axis){0}", quote));
    replace_all(svg, fmt::format("{0}white{0}", quote), fmt::format("{0}var(--background){0}", quote));
  }
  return svg;
}

std::string theme_light() {
  std::string css;
  for (const auto& colour : colours) css += fmt::format("{}: #{:06x}; ", colour.name, colour.drawn);
  return css;
}

std::string theme_dark() {
  std::string css;
  for (const auto& colour : colours) css += fmt::format("{}: {}; ", colour.name, colour.dark);
  return css;
}

}  // namespace attest
