// Records as a run would leave them, with every verdict and the awkward values, for the tests of the reports.
#pragma once

#include "reports/record.hpp"

namespace attest {

Records sample_records();
Records empty_records();
Records many_records(std::size_t count);  // of 14 kernels, with a few of every verdict
CaseRecord hostile_case();  // names that try to break out of HTML, Markdown and gnuplot
Records records_of(std::vector<CaseRecord> cases);

}  // namespace attest
