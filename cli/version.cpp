#include "cli/version.hpp"

namespace attest {

const BuildFacts& build_facts() {
  static constexpr BuildFacts facts{ATTEST_VERSION, ATTEST_COMMIT, ATTEST_COMPILER, ATTEST_COMPILE_FLAGS};
  return facts;
}

std::string program_version() {
  return std::string(build_facts().version) + " (" + build_facts().commit + ")";
}

}  // namespace attest
