// Figures in the colours of the page: gnuplot writes fixed colours, which become the custom properties of the page's
// style, so that one drawing follows the light and the dark theme.
#pragma once

#include <string>

namespace attest {

// The SVG with every colour that the figures use replaced by `var(--…)`.
std::string themed_svg(std::string svg);

// The custom properties behind these names, as CSS declarations.
std::string theme_light();
std::string theme_dark();

}  // namespace attest
