// Where a plug-in of the tests was built: beside the program, in plugins/.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace attest {

inline std::string plugin(const std::string& name) {
  return (std::filesystem::path(std::getenv("ATTEST_PROGRAM")).parent_path() / "plugins" / (name + ".so"))
      .string();
}

}  // namespace attest
