// A judged kernel as the record that reports read.
#pragma once

#include "gpu_checks/battery/battery.hpp"
#include "gpu_checks/check.hpp"
#include "reports/record.hpp"

namespace attest {

// `program` as a word of a shell, for the lines that repeat the case.
CaseRecord to_record(const Checked& checked, const std::string& program = "attest");

// A kernel judged by the battery: one record, a check for every check, each with its replay line.
CaseRecord to_record(const BatteryContext& context, const std::vector<BatteryEntry>& entries,
                     const std::string& program = "attest");

// "tokens 16..31, position in the chunk 0, head 1, column 3"; empty: nothing is known.
std::string in_words(const Locate& where);

}  // namespace attest
