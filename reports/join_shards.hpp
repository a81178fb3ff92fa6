// The parts that --shard 1/n .. n/n of one run left behind, joined as the run would have left them whole: record files,
// ledgers of `attest prove`, kill matrices. BadInput says which part does not fit and why: another version, command,
// seed, number of shards or set of cases; a part or a case twice or in no file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/record.hpp"

namespace attest {

// Of the runs, the first start and the last end; facts that may differ (gpu, driver, libraries) beside one another.
Records join_records(const std::vector<std::filesystem::path>& paths);

// Documents of a schema whose cases are the member `list`, dealt one after another.
nlohmann::ordered_json join_documents(const std::vector<std::filesystem::path>& paths, const char* list);

// Documents of a schema, in the order of their shards: every shard of one run once.
std::vector<nlohmann::ordered_json> shard_documents(const std::vector<std::filesystem::path>& paths,
                                                    const char* list);

// The member "schema" of a document, or of the first line of records.
std::string schema_of(const std::filesystem::path& path);

}  // namespace attest
