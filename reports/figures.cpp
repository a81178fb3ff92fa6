#include "reports/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "reports/gnuplot.hpp"

namespace attest {
namespace {

constexpr std::size_t most_curves = 8;   // in one figure; more cannot be told apart
constexpr std::size_t most_rows = 14;    // in one bar figure
constexpr std::size_t most_steps = 200;  // of one curve of a distribution
constexpr std::size_t curve_groups =
    64;  // stretches of the axis of positions in a figure with several curves
constexpr int width = 480;
constexpr int right_margin = 20;  // half a label of the axis

// Okabe and Ito's colours, which colour-blind readers can tell apart; the points differ as well.
constexpr std::array<const char*, 8> colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d"};
constexpr std::array<int, 8> points = {7, 9, 5, 11, 13, 6, 8, 4};

const char* colour(std::size_t i) { return colours[i % colours.size()]; }
int point(std::size_t i) { return points[i % points.size()]; }

constexpr std::size_t longest_row_name = 34;
constexpr double symbol_width = 7.6;  // of the font of the figures, rather too wide than too narrow

std::size_t symbols(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// 0.01, 1, 100, 10⁻⁷: short, so that many labels fit on an axis.
std::string power_of_ten(int exponent) {
  if (exponent >= -3 && exponent <= 3)
    return fmt::format("{:.{}f}", std::pow(10.0, exponent), std::max(0, -exponent));
  constexpr std::array<const char*, 10> raised = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "10⁻" : "10";
  for (const char digit : std::to_string(std::abs(exponent)))
    text += raised.at(static_cast<std::size_t>(digit - '0'));
  return text;
}

// A logarithmic axis: numbers are drawn at their decimal logarithm on a linear axis with labels of our own, because
// gnuplot counts the ticks of its logarithmic axes one by one (minutes for 300 decades). Zero (exact) lies on the lower
// end, NaN and infinity on the upper, and the remark says so.
class LogAxis {
 public:
  void see(double value) {
    if (!(value > 0) || std::isinf(value)) {
      (value == 0 ? exact_ : not_finite_) = true;
      return;
    }
    least_ = std::min(least_, std::log10(value));
    most_ = std::max(most_, std::log10(value));
  }
  double low() const { return std::floor((empty() ? -1 : least_) - (exact_ ? 0.5 : 0.02)); }
  double high() const {
    return std::max(std::ceil((empty() ? 0 : most_) + (not_finite_ ? 0.5 : 0.02)), low() + 1);
  }
  double place(double value) const {
    if (value == 0) return low();
    if (!(value > 0) || std::isinf(value)) return high();
    return std::log10(value);
  }
  // A horizontal axis of `pixels` width, and a vertical one of `pixels` height.
  std::string across(double pixels) const {
    const auto widest = std::max(symbols(power_of_ten(static_cast<int>(low()))),
                                 symbols(power_of_ten(static_cast<int>(high()))));
    return range("x", pixels / (12 + symbol_width * static_cast<double>(std::max<std::size_t>(widest, 4))));
  }
  std::string up(double pixels) const { return range("y", pixels / 26); }
  std::string remark() const {
    std::string text;
    if (exact_) text += " Zeros (exact results) lie on the lower end of the axis.";
    if (not_finite_) text += " NaN and infinite values lie on the upper end of the axis.";
    return text;
  }

 private:
  bool empty() const { return least_ > most_; }
  // Labels every 1, 2, 5, 10, ... decades: the smallest step of which no more than `room` fit, so that they never touch.
  std::string range(const char* axis, double room) const {
    const int from = static_cast<int>(low()), to = static_cast<int>(high());
    int step = 1;
    for (int k = 0; (to - from) / step + 1 > room && step < to - from; ++k)
      step = k % 3 == 1 ? step / 2 * 5 : 2 * step;
    std::string labels;
    for (int decade = from; decade <= to; ++decade)
      if (decade % step == 0)
        labels += fmt::format("{}'{}' {}", labels.empty() ? "" : ", ", power_of_ten(decade), decade);
    if (labels.empty()) labels = fmt::format("'{}' {}", power_of_ten(from), from);
    return fmt::format("set {0}range [{1}:{2}]\nset {0}tics ({3})\n", axis, from, to, labels);
  }
  double least_ = std::numeric_limits<double>::infinity(), most_ = -std::numeric_limits<double>::infinity();
  bool exact_ = false, not_finite_ = false;
};

double quoted_ratio(const KernelSummary& kernel) {
  return kernel.extreme ? worst_tensor(*kernel.extreme)->second.ratio.max : -1;
}

// Indices of the kernels to draw, at most `limit`: the worst, in the order of the table.
std::vector<std::size_t> shortlist(std::span<const KernelSummary> kernels, std::size_t limit,
                                   auto&& drawable) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (drawable(kernels[i])) chosen.push_back(i);
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::size_t a, std::size_t b) {
    const int sa = severity(kernels[a].verdict), sb = severity(kernels[b].verdict);
    return sa != sb ? sa > sb : worse_number(quoted_ratio(kernels[a]), quoted_ratio(kernels[b]));
  });
  if (chosen.size() > limit) chosen.resize(limit);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::string left_out(std::size_t drawn, std::size_t of) {
  return drawn < of ? fmt::format(" Drawn: the worst {} of {} kernels.", drawn, of) : "";
}

// What the short names in a figure lack.
std::string shortened(std::span<const KernelSummary> kernels, const std::vector<std::string>& names) {
  const std::string& whole = kernels.front().kernel->name;
  const std::string common = whole.substr(0, whole.size() - names.front().size());
  return common.empty() ? "" : fmt::format(" Names lack their common beginning, {}", common);
}

std::size_t count_if_drawable(std::span<const KernelSummary> kernels, auto&& drawable) {
  return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(), drawable));
}

constexpr const char* bound_colour = "#b00020";
constexpr const char* bound_across =
    "set arrow from 0, graph 0 to 0, graph 1 nohead linecolor '#b00020' linewidth 1.5 dashtype 2\n";

// A drawing in the making: series, and a key below them that gives every entry its own line (gnuplot's own
// key drops entries where the drawing is low).
class Plot {
 public:
  // `how` draws the columns of `rows`; point 0 stands for a dashed line in the key.
  void add(const std::string& rows, const std::string& how, const std::string& label, const char* colour,
           int point) {
    const auto name = fmt::format("$d{}", count_++);
    data_ += fmt::format("{} << EOD\n{}EOD\n", name, rows);
    command(fmt::format("{} {}", name, how));
    keys_.push_back({label, colour, point});
  }
  void add_bound() {
    command(fmt::format("0 with lines linecolor '{}' linewidth 1.5 dashtype 2", bound_colour));
    keys_.push_back({"the bound", bound_colour, 0});
  }
  // In the key alone, where the bound is a vertical line (bound_across).
  void add_bound_in_key() { keys_.push_back({"the bound", bound_colour, 0}); }
  bool empty() const { return commands_.empty(); }

  // The whole script: `height` pixels of drawing, the settings that are this figure's own, the key below.
  std::string script(int height, const std::string& settings) const {
    const int below = 66 + key_line * static_cast<int>(keys_.size()), whole = height + below + 8;
    return fmt::format(
               "set terminal svg size {},{} dynamic noenhanced font 'sans-serif,13'\n"
               "set encoding utf8\n"
               "set border 3 linecolor '#555555'\n"
               "set tics nomirror out scale 0.5 textcolor '#222222'\n"
               "set grid linecolor '#dddddd' linewidth 0.7\n"
               "set tmargin at screen {:.5f}\nset bmargin at screen {:.5f}\nset rmargin at screen "
               "{:.5f}\nunset key\n",
               width, whole, 1 - 8.0 / whole, static_cast<double>(below) / whole,
               1 - static_cast<double>(right_margin) / width) +
           key(whole) + settings + data_ + commands_ + "\n";
  }

 private:
  struct Key {
    std::string label;
    std::string colour;
    int point;
  };
  static constexpr int key_line = 20;

  void command(const std::string& words) {
    commands_ += fmt::format("{}{} notitle", commands_.empty() ? "plot " : ", \\\n  ", words);
  }
  std::string key(int whole) const {
    std::string text;
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const double y = (key_line * static_cast<double>(keys_.size() - k) - 6) / whole;
      const auto& [label, colour, point] = keys_[k];
      text += fmt::format("set label {} at screen 0.11, screen {:.5f} left textcolor '#222222'\n",
                          gnuplot_text(label, 66), y);
      text += point
                  ? fmt::format(
                        "set label '' at screen 0.07, screen {:.5f} point linecolor '{}' pointtype {} "
                        "pointsize 0.8\n",
                        y, colour, point)
                  : fmt::format(
                        "set arrow from screen 0.045, screen {0:.5f} to screen 0.095, screen {0:.5f} nohead "
                        "linecolor '{1}' linewidth 1.5 dashtype 2\n",
                        y, colour);
    }
    return text;
  }

  std::string data_, commands_;
  std::vector<Key> keys_;
  int count_ = 0;
};

// Error against position.

struct Curve {
  std::string tensor;
  std::vector<CurvePoint> points;
};

// The curve of the worst tensor in the longest case that has one.
Curve curve_of(const KernelSummary& kernel, std::size_t groups) {
  Curve best;
  std::int64_t longest = -1;
  for (const auto* record : kernel.cases) {
    if (record->curve.empty()) continue;
    const std::int64_t length = record->tokens.value_or(0);
    if (length <= longest) continue;
    longest = length;
    const auto* worst = worst_tensor(*record);
    const auto has_curve = [&](const std::string& tensor) {
      return std::any_of(record->curve.begin(), record->curve.end(),
                         [&](const auto& p) { return p.tensor == tensor; });
    };
    best.tensor = worst && has_curve(worst->first) ? worst->first : record->curve.front().tensor;
    best.points.clear();
    for (const auto& p : record->curve)
      if (p.tensor == best.tensor) best.points.push_back(p);
  }
  best.points = thin_curve(best.points, groups);
  return best;
}

bool has_curve(const KernelSummary& kernel) {
  return std::any_of(kernel.cases.begin(), kernel.cases.end(),
                     [](const auto* record) { return !record->curve.empty(); });
}

std::map<std::int64_t, double> ratio_by_tokens(const KernelSummary& kernel) {
  std::map<std::int64_t, double> worst;
  for (const auto* record : kernel.cases) {
    const auto* tensor = worst_tensor(*record);
    if (!record->tokens || *record->tokens == 0 || !tensor) continue;
    const auto [at, fresh] = worst.emplace(*record->tokens, tensor->second.ratio.max);
    if (!fresh && worse_number(tensor->second.ratio.max, at->second)) at->second = tensor->second.ratio.max;
  }
  return worst;
}

bool has_several_lengths(const KernelSummary& kernel) { return ratio_by_tokens(kernel).size() >= 2; }

struct Drawn {
  std::size_t kernel;
  std::size_t slot;  // colour and point
};

// The kernels to draw as curves, where one kernel has the same colour in every figure of its operator.
std::vector<Drawn> drawn(std::span<const KernelSummary> kernels, auto&& drawable) {
  const auto common = shortlist(kernels, most_curves, [](const KernelSummary& kernel) {
    return has_curve(kernel) || has_several_lengths(kernel);
  });
  std::vector<Drawn> all;
  for (std::size_t slot = 0; slot < common.size(); ++slot)
    if (drawable(kernels[common[slot]])) all.push_back({common[slot], slot});
  return all;
}

std::vector<Figure> position_figure(std::span<const KernelSummary> kernels,
                                    const std::vector<std::string>& names) {
  const auto chosen = drawn(kernels, has_curve);
  if (chosen.empty()) return {};
  LogAxis axis;
  axis.see(1);
  std::vector<Curve> curves;
  for (const auto& [kernel, slot] : chosen) {
    curves.push_back(curve_of(kernels[kernel], curve_groups));
    for (const auto& p : curves.back().points) axis.see(p.ratio_max);
  }
  Plot plot;
  plot.add_bound();
  for (std::size_t c = 0; c < curves.size(); ++c) {
    std::string rows;
    for (const auto& p : curves[c].points)
      rows += fmt::format("{} {:.6g}\n", p.position, axis.place(p.ratio_max));
    const auto& [kernel, slot] = chosen[c];
    const auto label =
        curves[c].tensor == "o" ? names[kernel] : fmt::format("{} ({})", names[kernel], curves[c].tensor);
    plot.add(
        rows,
        fmt::format("using 1:2 with linespoints linecolor '{}' linewidth 1.4 pointtype {} pointsize 0.35",
                    colour(slot), point(slot)),
        label, colour(slot), point(slot));
  }
  return {{"Error against position",
           fmt::format("Largest error/bound among the elements at each position, over at most {} stretches "
                       "of the sequence. "
                       "A level curve below the dashed line is healthy; a curve that climbs accumulates "
                       "error, steps at regular "
                       "distances point at chunk borders, and anything above the line is a failure.{}{}{}",
                       curve_groups, left_out(chosen.size(), count_if_drawable(kernels, has_curve)),
                       axis.remark(), shortened(kernels, names)),
           plot.script(
               220, axis.up(220) +
                        "set autoscale xfix\nset xlabel 'position (token)'\nset ylabel 'error / bound'\n")}};
}

std::vector<Figure> absolute_figure(std::span<const KernelSummary> kernels) {
  const auto chosen = shortlist(kernels, 1, has_curve);
  if (chosen.empty()) return {};
  const Curve curve = curve_of(kernels[chosen[0]], curve_limit);
  LogAxis axis;
  std::string rows;
  for (const auto& p : curve.points) {
    axis.see(p.error_max);
    axis.see(p.bound_at_max);
  }
  for (const auto& p : curve.points)
    rows +=
        fmt::format("{} {:.6g} {:.6g}\n", p.position, axis.place(p.error_max), axis.place(p.bound_at_max));
  Plot plot;
  plot.add(rows, "using 1:3 with lines linecolor '#b00020' linewidth 1.5 dashtype 2", "bound of that element",
           bound_colour, 0);
  plot.add(rows, "using 1:2 with points linecolor '#0072b2' pointtype 7 pointsize 0.35",
           "error of the worst element", "#0072b2", 7);
  return {
      {"Error and bound in absolute size",
       fmt::format(
           "The worst kernel of this operator, {} (tensor {}): at each position the element with the largest "
           "error/bound, its error as a point and its bound as a line. The distance between them is the "
           "margin.{}",
           kernels[chosen[0]].kernel->name, curve.tensor, axis.remark()),
       plot.script(220,
                   axis.up(220) +
                       "set autoscale xfix\nset xlabel 'position (token)'\nset ylabel 'absolute size'\n")}};
}

std::vector<Figure> tokens_figure(std::span<const KernelSummary> kernels,
                                  const std::vector<std::string>& names) {
  const auto chosen = drawn(kernels, has_several_lengths);
  if (chosen.empty()) return {};
  LogAxis axis;
  axis.see(1);
  for (const auto& [kernel, slot] : chosen)
    for (const auto& [tokens, ratio] : ratio_by_tokens(kernels[kernel])) axis.see(ratio);
  Plot plot;
  plot.add_bound();
  for (const auto& [kernel, slot] : chosen) {
    std::string rows;
    for (const auto& [tokens, ratio] : ratio_by_tokens(kernels[kernel]))
      rows += fmt::format("{} {:.6g}\n", tokens, axis.place(ratio));
    plot.add(rows,
             fmt::format("using 1:2 with linespoints linecolor '{}' linewidth 1.4 pointtype {} pointsize 0.7",
                         colour(slot), point(slot)),
             names[kernel], colour(slot), point(slot));
  }
  return {{"Error/bound against T",
           fmt::format("Largest error/bound of each case against its number of tokens. A level line says "
                       "that the bound grows as the "
                       "error does; a rising line will cross the bound at some length.{}{}{}",
                       left_out(chosen.size(), count_if_drawable(kernels, has_several_lengths)),
                       axis.remark(), shortened(kernels, names)),
           plot.script(
               220, axis.up(220) +
                        "set logscale x 2\nset format x '%.0f'\nset offsets graph 0.03, graph 0.03, 0, 0\n" +
                        "set xlabel 'tokens T'\nset ylabel 'error / bound'\n")}};
}

// Forms side by side.

bool is_bounded(const CaseRecord& record) { return worst_tensor(record) != nullptr; }
bool has_magnitude(const CaseRecord& record) { return record.magnitude.has_value(); }

// The case that most kernels of the group ran, the longest of those: forms are compared on the same numbers.
std::string common_case(std::span<const KernelSummary> kernels, bool (*usable)(const CaseRecord&)) {
  std::map<std::string, std::pair<std::set<const KernelId*>, std::int64_t>> uses;
  for (const auto& kernel : kernels)
    for (const auto* record : kernel.cases) {
      if (!usable(*record)) continue;
      auto& [users, tokens] = uses[record->case_line];
      users.insert(kernel.kernel);
      tokens = record->tokens.value_or(0);
    }
  std::string best;
  std::pair<std::size_t, std::int64_t> rank{0, -1};
  for (const auto& [line, use] : uses)
    if (const std::pair<std::size_t, std::int64_t> r{use.first.size(), use.second}; r > rank)
      rank = r, best = line;
  return best;
}

const CaseRecord* run_of(const KernelSummary& kernel, const std::string& case_line,
                         bool (*usable)(const CaseRecord&)) {
  for (const auto* record : kernel.cases)
    if (record->case_line == case_line && usable(*record)) return record;
  return nullptr;
}

// Where the drawing begins beside the names of its rows, and the width that these leave to it.
double names_width(const std::vector<std::string>& rows) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, std::min(symbols(row), longest_row_name + 1));
  return 14 + symbol_width * static_cast<double>(longest);
}
double beside(const std::vector<std::string>& rows) { return width - names_width(rows) - right_margin; }

// Rows of a figure from the top down, with their names on the axis.
std::string row_names(const std::vector<std::string>& rows) {
  std::string tics;
  for (std::size_t r = 0; r < rows.size(); ++r)
    tics += fmt::format("{}{} {}", r ? ", " : "", gnuplot_text(rows[r], longest_row_name), rows.size() - r);
  return fmt::format(
      "set lmargin at screen {:.5f}\nset ytics ({}) scale 0\nset yrange [0.4:{}]\nunset grid\nset grid xtics "
      "linecolor "
      "'#dddddd' linewidth 0.7\n",
      names_width(rows) / width, tics, static_cast<double>(rows.size()) + 0.6);
}

std::vector<std::string> distinct(const std::vector<std::string>& all) {
  std::vector<std::string> rest;
  for (const auto& text : all)
    if (std::find(rest.begin(), rest.end(), text) == rest.end()) rest.push_back(text);
  return rest;
}

struct FormsTable {
  std::vector<const CaseRecord*> records;
  std::vector<std::string> forms, contracts;  // distinct, in order
  std::vector<std::string> labels;            // of the contracts
};

FormsTable forms_table(std::span<const KernelSummary> kernels) {
  FormsTable table;
  const auto line = common_case(kernels, is_bounded);
  for (const auto& kernel : kernels)
    if (const auto* record = run_of(kernel, line, is_bounded)) table.records.push_back(record);
  std::vector<std::string> forms, contracts;
  for (const auto* record : table.records) {
    forms.push_back(record->kernel.form);
    contracts.push_back(record->kernel.contract);
  }
  table.forms = distinct(forms);
  if (table.forms.size() > most_rows) table.forms.resize(most_rows);
  table.contracts = distinct(contracts);
  table.labels = contract_labels(table.contracts);
  return table;
}

Figure forms_figure(const FormsTable& table, const Quantiles Figures::*quantity, const char* title,
                    const char* unit, const std::string& caption, bool with_bound) {
  LogAxis axis;
  if (with_bound) axis.see(1);
  const auto each_row = [&](const std::string& contract, auto&& visit) {
    for (const auto* record : table.records) {
      const auto form = std::find(table.forms.begin(), table.forms.end(), record->kernel.form);
      if (record->kernel.contract == contract && form != table.forms.end())
        visit(*record, static_cast<double>(table.forms.end() - form));
    }
  };
  const auto plain_of = [&](const CaseRecord& record) -> const Figures* {
    const auto found = record.plain.find(worst_tensor(record)->first);
    return found == record.plain.end() ? nullptr : &found->second;
  };
  for (const auto* record : table.records) {
    const Quantiles& q = worst_tensor(*record)->second.*quantity;
    for (const double value : {q.p50, q.p99, q.max}) axis.see(value);
    if (const auto* plain = plain_of(*record)) axis.see((plain->*quantity).max);
  }
  Plot plot;
  std::string plain_rows;
  std::map<double, std::vector<const CaseRecord*>> in_row;
  for (const auto& contract : table.contracts)
    each_row(contract, [&](const CaseRecord& record, double row) { in_row[row].push_back(&record); });
  std::size_t most = 2;
  for (const auto& [row, records] : in_row) most = std::max(most, records.size());
  const int crowd = static_cast<int>(most);
  const auto height_of = [&](const CaseRecord& record, double row) {
    const auto& peers = in_row[row];
    const auto place = static_cast<double>(std::find(peers.begin(), peers.end(), &record) - peers.begin());
    return row + 0.75 / crowd * (static_cast<double>(peers.size() - 1) / 2 - place);
  };
  for (std::size_t c = 0; c < table.contracts.size(); ++c) {
    std::string rows;
    each_row(table.contracts[c], [&](const CaseRecord& record, double row) {
      const Quantiles& q = worst_tensor(record)->second.*quantity;
      rows += fmt::format("{:.6g} {:.4f} {:.6g} {:.6g}\n", axis.place(q.p99), height_of(record, row),
                          axis.place(q.p50), axis.place(q.max));
      if (const auto* plain = plain_of(record))
        plain_rows +=
            fmt::format("{:.6g} {:.4f}\n", axis.place((plain->*quantity).max), height_of(record, row));
    });
    if (rows.empty()) continue;
    plot.add(
        rows,
        fmt::format("using 1:2:3:4 with xerrorbars linecolor '{}' linewidth 1.6 pointtype {} pointsize 0.6",
                    colour(c), point(c)),
        table.labels[c], colour(c), point(c));
  }
  if (!plain_rows.empty())
    plot.add(plain_rows, "using 1:2 with points linecolor '#222222' pointtype 2 pointsize 0.7",
             "plain low-precision evaluation, max", "#222222", 2);
  const std::string bound = with_bound ? bound_across : "";
  const int rows = static_cast<int>(table.forms.size());
  return {title, caption + axis.remark(),
          plot.script(10 + rows * std::max(26, 13 * crowd), axis.across(beside(table.forms)) +
                                                                row_names(table.forms) + bound +
                                                                fmt::format("set xlabel '{}'\n", unit))};
}

std::vector<Figure> forms_figures(std::span<const KernelSummary> kernels) {
  const auto table = forms_table(kernels);
  if (table.records.size() < 2) return {};
  const bool subtracts = std::any_of(table.forms.begin(), table.forms.end(),
                                     [](const auto& f) { return f.find("algebra=") != f.npos; });
  const std::string cost = subtracts ? " Rows that differ in their algebra compute the same operator with "
                                       "and without a subtraction: what separates them here is what "
                                       "the cancellation costs."
                                     : "";
  return {forms_figure(table, &Figures::ulp, "Forms side by side: error in ulps",
                       "error (ulps of the output format)",
                       "One case through every form and contract that has a bound on it (" +
                           table.records.front()->case_line +
                           "). Each bar runs from the median to the "
                           "maximum, with its mark at the "
                           "99th percentile. Ulps measure the error itself, whatever bound was granted." +
                           cost,
                       false),
          forms_figure(table, &Figures::ratio, "Forms side by side: error/bound", "error / bound",
                       "The same bars measured against the bound that each form and contract earns (dashed "
                       "line at 1). Far to the left: "
                       "better than promised. Across the line: broken promise.",
                       true)};
}

// Shares of the bound.

const std::map<std::string, double>& stages_of(const KernelSummary& kernel) {
  for (const auto* record : kernel.cases)
    if (record == kernel.measured && !record->stages.empty()) return record->stages;
  for (const auto* record : kernel.cases)
    if (!record->stages.empty()) return record->stages;
  static const std::map<std::string, double> none;
  return none;
}

std::vector<Figure> stages_figure(std::span<const KernelSummary> kernels,
                                  const std::vector<std::string>& names) {
  const auto has_stages = [](const KernelSummary& kernel) { return !stages_of(kernel).empty(); };
  const auto chosen = shortlist(kernels, most_rows, has_stages);
  if (chosen.empty()) return {};
  std::map<std::string, double> total;
  for (const auto i : chosen)
    for (const auto& [stage, share] : stages_of(kernels[i])) total[stage] += share;
  std::vector<std::string> stages, rows;
  for (const auto& [stage, share] : total) stages.push_back(stage);
  std::stable_sort(stages.begin(), stages.end(),
                   [&](const auto& a, const auto& b) { return total[a] > total[b]; });
  for (const auto i : chosen) rows.push_back(names[i]);
  std::vector<double> reached(chosen.size(), 0.0);
  Plot plot;
  const auto draw = [&](const std::string& label, const char* fill, auto&& share_of) {
    std::string data;
    for (std::size_t r = 0; r < chosen.size(); ++r) {
      const double share = share_of(stages_of(kernels[chosen[r]])), from = reached[r],
                   y = static_cast<double>(chosen.size() - r);
      reached[r] += share;
      data += fmt::format("{0:.6g} {1} {2:.6g} {3:.6g} {4:.2f} {5:.2f}\n", 100 * (from + share / 2), y,
                          100 * from, 100 * reached[r], y - 0.33, y + 0.33);
    }
    plot.add(
        data,
        fmt::format(
            "using 1:2:3:4:5:6 with boxxyerror fillcolor rgb '{}' fillstyle solid 0.85 border rgb '#ffffff'",
            fill),
        label, fill, 5);
  };
  const auto share_of = [](const std::map<std::string, double>& shares, const std::string& stage) {
    const auto found = shares.find(stage);
    return found == shares.end() ? 0.0 : found->second;
  };
  const std::size_t own = stages.size() > most_curves ? most_curves - 1 : stages.size();
  for (std::size_t s = 0; s < own; ++s)
    draw(stages[s], colour(s), [&](const auto& shares) { return share_of(shares, stages[s]); });
  if (own < stages.size())
    draw("all other stages", colour(own), [&](const auto& shares) {
      double rest = 0;
      for (std::size_t s = own; s < stages.size(); ++s) rest += share_of(shares, stages[s]);
      return rest;
    });
  const double widest = std::max(1.0, *std::max_element(reached.begin(), reached.end()));
  return {{"Share of the bound by stage",
           "Which rounding the bound is made of: the share of each stage, largest stages first. The widest "
           "part is where more precision would "
           "pay." +
               left_out(chosen.size(), count_if_drawable(kernels, has_stages)) + shortened(kernels, names),
           plot.script(10 + 26 * static_cast<int>(chosen.size()),
                       row_names(rows) + "set xrange [0:" + fmt::format("{:.6g}", 100 * widest) +
                           "]\nset xlabel 'share of the bound (%)'\n")}};
}

// Cancellation.

struct MagnitudeRow {
  std::string label;
  Quantiles magnitude;
};

bool nearly(const Quantiles& a, const Quantiles& b) {
  const auto close = [](double x, double y) { return x == y || std::abs(x - y) <= 0.1 * std::abs(y); };
  return close(a.p50, b.p50) && close(a.p99, b.p99) && close(a.max, b.max);
}

// One row per operator on its common case, and up to two more for forms where its terms, and so M, differ by
// more than a tenth.
std::vector<MagnitudeRow> magnitude_rows(std::span<const KernelSummary> kernels) {
  const auto line = common_case(kernels, has_magnitude);
  const auto title = operator_title(*kernels.front().kernel);
  std::vector<MagnitudeRow> rows;
  for (const auto& kernel : kernels) {
    const auto* record = run_of(kernel, line, has_magnitude);
    if (!record) continue;
    const auto& q = *record->magnitude;
    const auto label = title + ", " + kernel.kernel->form;
    const auto same = [&](const MagnitudeRow& r) { return r.label == label || nearly(r.magnitude, q); };
    if (rows.size() < 3 && std::none_of(rows.begin(), rows.end(), same)) rows.push_back({label, q});
  }
  if (rows.size() == 1) rows.front().label = title;
  return rows;
}

}  // namespace

std::vector<std::string> short_names(std::span<const KernelSummary> kernels) {
  std::vector<std::string> names;
  for (const auto& kernel : kernels) names.push_back(kernel.kernel->name);
  if (names.size() < 2) return names;
  std::size_t shared = names[0].size();
  for (const auto& name : names) {
    std::size_t same = 0;
    while (same < std::min(shared, name.size()) && name[same] == names[0][same]) ++same;
    shared = same;
  }
  while (shared > 0 && std::string_view("./ :-_").find(names[0][shared - 1]) == std::string_view::npos)
    --shared;
  for (auto& name : names)
    if (name.size() > shared) name.erase(0, shared);
  return names;
}

std::vector<Figure> operator_figures(std::span<const KernelSummary> kernels) {
  const auto names = short_names(kernels);
  std::vector<Figure> figures;
  const auto take = [&](std::vector<Figure> more) {
    std::move(more.begin(), more.end(), std::back_inserter(figures));
  };
  take(forms_figures(kernels));
  take(position_figure(kernels, names));
  take(tokens_figure(kernels, names));
  take(absolute_figure(kernels));
  take(stages_figure(kernels, names));
  return figures;
}

namespace {
Figure glance_figure(const std::vector<std::span<const KernelSummary>>& groups) {
  struct Style {
    Verdict verdict;
    const char* colour;
    int point;
  };
  constexpr Style styles[] = {{Verdict::fail, "#b00020", 2},
                              {Verdict::suspect, "#e69f00", 9},
                              {Verdict::undecided, "#7a5195", 4},
                              {Verdict::pass, "#009e73", 7}};
  LogAxis axis;
  axis.see(1);
  std::vector<std::string> titles;
  std::map<Verdict, std::vector<std::pair<double, double>>> marks;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    titles.push_back(operator_title(*groups[g].front().kernel));
    for (const auto& kernel : groups[g])
      if (kernel.extreme) {
        const double ratio = worst_tensor(*kernel.extreme)->second.ratio.max;
        axis.see(ratio);
        marks[kernel.verdict].emplace_back(ratio, groups.size() - g);
      }
  }
  Plot plot;
  for (const auto& style : styles) {
    std::string rows;
    for (const auto& [ratio, row] : marks[style.verdict])
      rows += fmt::format("{:.6g} {}\n", axis.place(ratio), row);
    if (!rows.empty())
      plot.add(rows,
               fmt::format("using 1:2 with points linecolor '{}' linewidth 1.6 pointtype {} pointsize 0.8",
                           style.colour, style.point),
               verdict_words(style.verdict), style.colour, style.point);
  }
  if (plot.empty()) return {};
  return {"Every kernel at a glance",
          "Each mark is the largest error/bound of one kernel over all its cases, by operator. The dashed "
          "line is the bound: marks far to its left "
          "are better than promised, marks beyond it have broken their promise." +
              axis.remark(),
          plot.script(10 + 26 * static_cast<int>(groups.size()), axis.across(beside(titles)) +
                                                                     row_names(titles) + bound_across +
                                                                     "set xlabel 'error / bound'\n")};
}

std::vector<Figure> magnitude_figure(const std::vector<std::span<const KernelSummary>>& groups) {
  std::vector<MagnitudeRow> rows;
  for (const auto& group : groups)
    for (auto& row : magnitude_rows(group)) rows.push_back(std::move(row));
  if (rows.empty()) return {};
  LogAxis axis;
  std::vector<std::string> labels;
  for (const auto& row : rows) {
    labels.push_back(row.label);
    for (const double value : {row.magnitude.p50, row.magnitude.p99, row.magnitude.max}) axis.see(value);
  }
  std::string data;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& q = rows[r].magnitude;
    data += fmt::format("{:.6g} {} {:.6g} {:.6g}\n", axis.place(q.p99), rows.size() - r, axis.place(q.p50),
                        axis.place(q.max));
  }
  Plot plot;
  plot.add(data, "using 1:2:3:4 with xerrorbars linecolor '#0072b2' linewidth 1.6 pointtype 7 pointsize 0.6",
           "median to maximum, mark at the 99th percentile", "#0072b2", 7);
  return {
      {"Magnitudes and cancellation",
       "M/|o|, the sum of the absolute values of the terms over the size of the result, by operator, over "
       "the elements that are not zero. At "
       "1 nothing cancels; at 1000 three "
       "decimal digits are lost before any rounding is blamed. A bound made of M alone would be that "
       "much too wide." +
           axis.remark(),
       plot.script(10 + 26 * static_cast<int>(rows.size()),
                   axis.across(beside(labels)) + row_names(labels) + "set xlabel 'M / |o|'\n")}};
}

// How error/bound is distributed over the cases: for each size the share of the cases that stay below it.
std::vector<Figure> distribution_figure(const std::vector<std::span<const KernelSummary>>& groups) {
  struct Line {
    double Quantiles::*quantile;
    const char *label, *colour;
    int point;
  };
  constexpr Line lines[] = {{&Quantiles::p50, "median of the elements of a case", "#009e73", 7},
                            {&Quantiles::p99, "99th percentile of the elements", "#0072b2", 5},
                            {&Quantiles::max, "largest of the elements", "#d55e00", 9}};
  std::vector<const Quantiles*> ratios;
  for (const auto& group : groups)
    for (const auto& kernel : group)
      for (const auto* record : kernel.cases)
        if (const auto* tensor = worst_tensor(*record)) ratios.push_back(&tensor->second.ratio);
  if (ratios.size() < 2) return {};
  LogAxis axis;
  axis.see(1);
  for (const auto* ratio : ratios)
    for (const double value : {ratio->p50, ratio->p99, ratio->max}) axis.see(value);
  Plot plot;
  plot.add_bound_in_key();
  for (const auto& line : lines) {
    std::vector<double> values;
    for (const auto* ratio : ratios) values.push_back(ratio->*line.quantile);
    std::sort(values.begin(), values.end(), [](double a, double b) { return worse_number(b, a); });
    const std::size_t step = 1 + values.size() / most_steps;
    std::string rows;
    for (std::size_t i = 0; i < values.size(); i += step)
      rows += fmt::format("{:.6g} {:.6g}\n", axis.place(values[i]),
                          100.0 * static_cast<double>(i) / static_cast<double>(values.size()));
    rows += fmt::format("{:.6g} 100\n", axis.place(values.back()));
    plot.add(rows, fmt::format("using 1:2 with lines linecolor '{}' linewidth 1.8", line.colour), line.label,
             line.colour, line.point);
  }
  return {{"Distribution of error/bound over the cases",
           fmt::format("For each size of error/bound the share of the {} cases with a bound that stay below "
                       "it. The distance "
                       "between the curve of the largest elements and the dashed line is the margin of the "
                       "run; what lies "
                       "right of the line has broken its bound.{}",
                       ratios.size(), axis.remark()),
           plot.script(
               220, axis.across(width - 90) + bound_across +
                        "set yrange [0:100]\nset xlabel 'error / bound'\nset ylabel 'cases below (%)'\n")}};
}

}  // namespace

std::vector<Figure> run_figures(const std::vector<std::span<const KernelSummary>>& groups) {
  std::vector<Figure> figures;
  if (auto glance = glance_figure(groups); !glance.script.empty()) figures.push_back(std::move(glance));
  for (auto& figure : distribution_figure(groups)) figures.push_back(std::move(figure));
  for (auto& figure : magnitude_figure(groups)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace attest
