// A judged kernel as the record that reports read.
#pragma once

#include "gpu_checks/check.hpp"
#include "reports/record.hpp"

namespace attest {

// `program` as a word of a shell, for the lines that repeat the case.
CaseRecord to_record(const Checked& checked, const std::string& program = "attest");

}  // namespace attest
