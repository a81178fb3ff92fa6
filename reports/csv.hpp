// The cases of a run as comma-separated values (RFC 4180: lines end with CR LF, quotes are doubled), a header line first,
// then a line per case with the figures of its worst tensor. Numbers are the shortest decimals that give the double back.
#pragma once

#include <string>

#include "reports/record.hpp"

namespace attest {

std::string render_csv(const Records& records);

}  // namespace attest
