// The report of a run as JUnit XML, as Jenkins and the test reporters of GitHub and GitLab read it: a suite per operator,
// a test case per case. FAIL and SUSPECT are failures, UNDECIDED is an error (the test did not come to a result), NOT RUN
// is skipped; a run without cases or without an end is an error.
#pragma once

#include <string>

#include "reports/record.hpp"

namespace attest {

std::string render_junit(const Records& records);

}  // namespace attest
