// The page of a hunt (attest fuzz --output): by kernel, what was asked and failed by check, the cells of the grid that were
// reached, by tokens and check, the largest error/bound and its input, and every cause of failure with its shrunk case.
#pragma once
#include <string>

#include "reports/hunt_json.hpp"

namespace attest {

std::string render_fuzz_page(const Hunts& hunts);

}  // namespace attest
