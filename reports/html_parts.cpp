#include "reports/html_parts.hpp"

#include <fmt/format.h>

#include <cmath>

#include "reports/escape.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reports/html_style.hpp"
#include "reports/summary.hpp"
#include "reports/theme.hpp"

namespace attest {

const char* mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "✓";
    case Verdict::suspect:
      return "!";
    case Verdict::fail:
      return "✕";
    case Verdict::undecided:
      return "?";
    case Verdict::not_run:
      return "–";
  }
  return "";
}

std::string badge(Verdict verdict) {
  return fmt::format("<span class=\"badge v-{}\">{} {}</span>", to_string(verdict), mark(verdict),
                     verdict_words(verdict));
}

std::string code(const std::string& text) { return fmt::format("<code>{}</code>", html_text(text)); }

std::string name_code(const std::string& name) {
  std::string html;
  for (const char c : html_text(name)) {
    html += c;
    if (c == '.' || c == '_') html += "<wbr/>";
  }
  return fmt::format("<code class=\"name\">{}</code>", html);
}

std::string replay_line(const std::string& line) {
  if (line.empty()) return "";
  return fmt::format("<div class=\"replay\">{}<button type=\"button\">Copy</button></div>\n", code(line));
}

std::string decimal(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : digits(value);
}

std::string number_with_bits(double value) {
  if (!std::isfinite(value)) return decimal(value);
  return fmt::format("{} <span class=\"bits\">({})</span>", decimal(value), code(to_hex_float(value)));
}

std::string index_words(const WorstElement& element) {
  if (element.index.size() != 4) return "";
  return fmt::format("batch {}, token {}, head {}, column {}", element.index[0], element.index[1],
                     element.index[2], element.index[3]);
}

std::string html_page(const std::string& title, const std::string& content, const std::string& style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>{}</title>\n<style>\n:root {{ {}}}\n"
      "@media (prefers-color-scheme: dark) {{ :root {{ {}}} "
      "}}{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      html_text(title), theme_light(), theme_dark(), html_style, style, content, html_script);
}

std::string where_words(const Locate& where) {
  std::string text;
  const auto part = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : " · ", name, html_text(value));
  };
  part("tokens", where.tokens);
  part("position in chunk", where.chunk_position);
  part("heads", where.heads);
  part("levels", where.levels);
  part("columns", where.columns);
  return text;
}

}  // namespace attest
