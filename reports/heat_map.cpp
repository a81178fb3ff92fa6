#include "reports/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "reports/escape.hpp"

namespace attest {
namespace {

constexpr std::int64_t most_columns = 32, most_rows = 32;
constexpr int left = 96, cell_width = 12, cell_height = 14;

struct Cell {
  double ratio = -1;
  const std::string* kernel = nullptr;
};

// How dark a cell is: below a tenth of the bound, below half, up to it, beyond it (or NaN).
int shade(double ratio) {
  if (!(ratio <= 1)) return 3;
  return ratio < 0.1 ? 0 : ratio < 0.5 ? 1 : 2;
}
constexpr std::array<const char*, 4> shade_words = {"below 0.1", "0.1 to 0.5", "0.5 to 1", "above 1"};

struct Map {
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::int64_t, Cell>>
      rows;  // (batch, head) -> stretch
  std::int64_t tokens = 0, stretch = 1;
  std::size_t elements = 0, cases = 0;
};

bool in_output(const WorstElement& element) {
  return element.index.size() == 4 &&
         std::all_of(element.index.begin(), element.index.end(), [](auto i) { return i >= 0; });
}

Map map_of(std::span<const KernelSummary> kernels) {
  Map map;
  for (const auto& kernel : kernels) {
    const CaseRecord& record = *kernel.measured;
    map.tokens = std::max(map.tokens, record.tokens.value_or(0));
    for (const auto& element : record.worst)
      if (in_output(element)) map.tokens = std::max(map.tokens, element.index[1] + 1);
  }
  map.stretch = std::max<std::int64_t>(1, (map.tokens + most_columns - 1) / most_columns);
  for (const auto& kernel : kernels) {
    map.cases += !kernel.measured->worst.empty();
    for (const auto& element : kernel.measured->worst) {
      if (!in_output(element)) continue;
      ++map.elements;
      Cell& cell = map.rows[{element.index[0], element.index[2]}][element.index[1] / map.stretch];
      if (!cell.kernel || worse_number(element.ratio, cell.ratio))
        cell = {element.ratio, &kernel.kernel->name};
    }
  }
  return map;
}

std::string label(int x, int y, const std::string& text, const char* anchor) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, html_text(text));
}

std::string row(const Map& map, std::pair<std::int64_t, std::int64_t> batch_and_head,
                const std::map<std::int64_t, Cell>& cells, int y, std::int64_t columns) {
  const auto& [batch, head] = batch_and_head;
  const bool several = map.rows.rbegin()->first.first > 0;
  std::string svg =
      label(left - 8, y + cell_height - 3,
            several ? fmt::format("b {}, head {}", batch, head) : fmt::format("head {}", head), "end");
  for (std::int64_t column = 0; column < columns; ++column) {
    const int x = left + static_cast<int>(column) * cell_width;
    const auto cell = cells.find(column);
    if (cell == cells.end()) {
      svg += fmt::format("<rect class=\"h\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", x, y,
                         cell_width - 1, cell_height - 1);
      continue;
    }
    const auto first = column * map.stretch, last = std::min(first + map.stretch, map.tokens) - 1;
    svg += fmt::format(
        "<rect class=\"h h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>head {}, tokens {}..{}: "
        "error/bound {}, "
        "{}</title></rect>\n",
        shade(cell->second.ratio), x, y, cell_width - 1, cell_height - 1, head, first, last,
        digits(cell->second.ratio), html_text(*cell->second.kernel));
  }
  return svg;
}

std::string key(int y) {
  std::string svg;
  for (int s = 0; s < static_cast<int>(shade_words.size()); ++s) {
    const int x = left + s * 96;
    svg +=
        fmt::format("<rect class=\"h h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", s, x, y,
                    cell_width - 1, cell_height - 1) +
        label(x + cell_width + 4, y + cell_height - 3, shade_words.at(static_cast<std::size_t>(s)), "start");
  }
  return svg;
}

}  // namespace

std::string heat_map(std::span<const KernelSummary> kernels) {
  const Map map = map_of(kernels);
  if (map.rows.empty()) return "";
  const std::int64_t columns = (map.tokens + map.stretch - 1) / map.stretch;
  std::string svg;
  int y = 4;
  std::int64_t drawn = 0;
  for (const auto& [batch_and_head, cells] : map.rows) {
    if (++drawn > most_rows) break;
    svg += row(map, batch_and_head, cells, y, columns);
    y += cell_height;
  }
  svg += label(left, y + 16, "token 0", "start") +
         label(left + static_cast<int>(columns) * cell_width, y + 16, std::to_string(map.tokens - 1), "end") +
         key(y + 28);
  const std::string cut = map.rows.size() > static_cast<std::size_t>(most_rows)
                              ? fmt::format(" Drawn: the first {} of {} rows.", most_rows, map.rows.size())
                              : "";
  return fmt::format(
      "<figure>\n<h3>Worst elements by head and token</h3>\n<div class=\"plot heat\" role=\"img\" "
      "aria-label=\"Worst "
      "elements by head and token\"><svg viewBox=\"0 0 490 {}\">\n{}</svg></div>\n<figcaption>Error/bound of "
      "the {} worst "
      "elements that the records list, of the {} longest cases of these kernels, over stretches of {} "
      "token{}; a cell shows "
      "the largest of those that lie in it. An empty cell holds none of them, which does not say that it is "
      "exact; a head "
      "without any has no row.{}</figcaption>\n</figure>\n",
      y + 48, svg, map.elements, map.cases, map.stretch, map.stretch == 1 ? "" : "s", cut);
}

}  // namespace attest
