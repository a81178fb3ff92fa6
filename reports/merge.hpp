// Several record files as one run: the cases one after the other, with the file and line that each came from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/record.hpp"

namespace attest {

struct Origin {
  std::string file;
  std::int64_t line = 0;  // from 1
};

struct MergedRecords {
  Records records;
  std::vector<Origin> origins;  // one for each case
};

// The records at a path: of a folder that `attest check --output` made, its records.jsonl; else the path itself.
std::filesystem::path records_at(const std::filesystem::path& path);

// Facts of a run beside those that are there; the seed stays where it is the same.
void add_run(Run& all, const Run& run);

// Facts of the runs that differ stand beside one another, separated by "; ". Unfinished runs are accepted, and the whole
// is unfinished if one of them is. Throws BadInput as read_records.
MergedRecords read_merged(const std::vector<std::filesystem::path>& paths);

}  // namespace attest
