// What did not pass as SARIF 2.1.0 (OASIS), for code scanning: FAIL is an error, SUSPECT a warning, UNDECIDED an open
// question. Results lie where their record lies, a line of a records file, and name the kernel as a logical location.
#pragma once

#include <string>

#include "reports/merge.hpp"

namespace attest {

std::string render_sarif(const MergedRecords& merged);

}  // namespace attest
