// A hunt as JUnit XML (junit_parts.hpp): a suite per operator, a test case per kernel, whose failure has every cause with its
// shrunk input and the line that asks it again. A hunt that was interrupted is an error, and one that found nothing passes.
#pragma once
#include <string>

#include "reports/hunt_json.hpp"

namespace attest {

std::string render_hunt_junit(const Hunts& hunts);

}  // namespace attest
