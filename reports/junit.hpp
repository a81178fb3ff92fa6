// The report of a run as JUnit XML (junit_parts.hpp): a suite per operator, a test case per case; a run without cases or
// without an end is an error.
#pragma once

#include <string>

#include "reports/record.hpp"

namespace attest {

std::string render_junit(const Records& records);

}  // namespace attest
