#include "gpu_checks/adapters/doors.hpp"

#include <iterator>

namespace attest {

std::vector<Kernel> open_doors(const DoorOptions& options) {
  std::vector<Kernel> all;
  const auto add = [&](std::vector<Kernel> kernels) {
    all.insert(all.end(), std::make_move_iterator(kernels.begin()), std::make_move_iterator(kernels.end()));
  };
  for (const std::string& plugin : options.plugins) add(open_plugin(plugin, options));
  for (const std::string& command : options.processes) add(open_process(command, options));
  return all;
}

std::string quoted_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text)
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  return word + "'";
}

}  // namespace attest
