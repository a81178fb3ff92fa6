#include "reports/gnuplot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>

#include "reports/escape.hpp"

namespace attest {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string all_of(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 1 << 14> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file))
    text.append(buffer.data(), n);
  return text;
}

// The script by way of standard input, the drawing by way of standard output, both through unnamed files: no
// pipe can fill up.
// "-d": no start-up files of the user; the environment is fixed, so that the drawing depends on the script
// alone.
bool run(const std::string& program, std::FILE* input, std::FILE* output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(output), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program, option = "-d", locale = "LC_ALL=C.UTF-8",
              path = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* const arguments[] = {name.data(), option.data(), nullptr};
  char* const environment[] = {locale.data(), path.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, name.c_str(), &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void remove_between(std::string& text, const std::string& first, const std::string& last) {
  const auto start = text.find(first);
  if (start == text.npos) return;
  const auto end = text.find(last, start + first.size());
  if (end != text.npos) text.erase(start, end + last.size() - start);
}

}  // namespace

std::optional<std::string> embeddable_svg(std::string svg, const std::string& prefix) {
  const auto start = svg.find("<svg"), end = svg.rfind("</svg>");
  if (start == svg.npos || end == svg.npos || end < start) return std::nullopt;
  svg = svg.substr(start, end + 6 - start);
  for (const char* name : {"xmlns", "xmlns:xlink"}) remove_between(svg, fmt::format("{}=\"", name), "\"");
  remove_between(svg, "<title>", "</title>");  // a browser would show it wherever the mouse rests
  remove_between(svg, "<desc>", "</desc>");
  replace_all(svg, "xlink:href=", "href=");
  for (const char* before : {" id='", " id=\"", "href='#", "href=\"#", "url(#", "url('#"})
    replace_all(svg, before, before + prefix);
  return svg;
}

std::optional<std::string> gnuplot_svg(const std::string& program, const std::string& script,
                                       const std::string& prefix) {
  const File input(std::tmpfile()), output(std::tmpfile());
  if (!input || !output) return std::nullopt;
  std::fwrite(script.data(), 1, script.size(), input.get());
  std::fflush(input.get());
  std::rewind(input.get());
  if (!run(program, input.get(), output.get())) return std::nullopt;
  return embeddable_svg(all_of(output.get()), prefix);
}

std::string gnuplot_text(std::string_view text, std::size_t longest) {
  std::string safe;
  std::size_t symbols = 0;
  for (const char c : clean_text(text)) {
    const bool starts_symbol = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (starts_symbol && ++symbols > longest) {
      safe += "…";
      break;
    }
    if (c == '\'' || c == '"')
      safe += "’";
    else if (c == '`')
      safe += "‘";
    else if (c == '\\')
      safe += '/';
    else
      safe += c;
  }
  return fmt::format("'{}'", safe);
}

std::string gnuplot_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "NaN";
}

}  // namespace attest
