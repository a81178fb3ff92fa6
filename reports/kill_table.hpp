// The kill matrix as part of a page: deliberately wrong kernels by the checks that reject them, beside what the usual rules
// say of the same outputs. A plain table, filled by whoever ran the mutants.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/record.hpp"

namespace attest {

enum class RuleSays {
  rejects,
  accepts_ordinary,
  accepts_all
};  // on some input; on an ordinary one; on every input

struct KillRow {
  std::string mutant, op, wrong;  // name, operator, what is wrong with it in words
  int family = 0;
  std::vector<std::optional<Verdict>> checks;  // as KillTable::checks; none: not asked
  std::vector<RuleSays> rules;                 // as KillTable::rules
  std::string equivalent;  // why it computes the right values after all; "" if it does not

  bool killed() const;
};

struct KillTable {
  std::string command, effort;
  std::uint64_t seed = 0;
  std::vector<std::string> checks, rules;
  std::vector<KillRow> rows;
};

std::string kill_section(const KillTable& table);  // for a page that has more to say
std::string render_kill_page(const KillTable& table,
                             const std::string& title = "attest check: the kill matrix");

}  // namespace attest
