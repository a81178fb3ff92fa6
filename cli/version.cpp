#include "cli/version.hpp"

#include <fmt/chrono.h>

namespace attest {

const BuildFacts& build_facts() {
  static constexpr BuildFacts facts{ATTEST_VERSION, ATTEST_COMMIT, ATTEST_COMPILER, ATTEST_COMPILE_FLAGS};
  return facts;
}

std::string program_version() {
  return std::string(build_facts().version) + " (" + build_facts().commit + ")";
}

std::string time_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

}  // namespace attest
