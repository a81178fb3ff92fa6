// A judged kernel as the record that reports read.
#pragma once

#include "gpu_checks/check.hpp"
#include "reports/record.hpp"

namespace attest {

CaseRecord to_record(const Checked& checked);

}  // namespace attest
