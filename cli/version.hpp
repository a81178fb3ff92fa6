// What this program is, as of the last configuration of its build (CMakeLists.txt), and when it runs.
#pragma once
#include <string>

namespace attest {

struct BuildFacts {
  const char *version, *commit, *compiler, *flags;
};
const BuildFacts& build_facts();
std::string program_version();  // "0.1.0 (71627eabcdef)"
std::string time_now();         // "2026-05-31T12:00:00Z"

}  // namespace attest
