#include "gpu_checks/replay.hpp"

#include <cctype>
#include <string_view>

#include "gpu_checks/adapters/doors.hpp"

namespace attest {

std::string replay_start(const Kernel& kernel, const std::string& program) {
  std::string glob;  // that this name alone matches
  bool plain = true;
  for (const char c : kernel.name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) glob += '\\';
    glob += c;
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) ||
                      std::string_view("._-+:/@").find(c) != std::string_view::npos);
  }
  return program + " check " + (kernel.source.empty() ? "" : kernel.source + ' ') + "--kernel " +
         (plain ? glob : quoted_word(glob));
}

std::string replay_line(const Kernel& kernel, const Case& input, const std::string& program) {
  return replay_start(kernel, program) + " --case '" + to_text(input) + "'";
}

}  // namespace attest
