#include "reports/merge.hpp"

#include "reports/record_file.hpp"

namespace attest {
namespace {

void add_fact(std::string& facts, const std::string& fact) {
  if (fact.empty() || ("; " + facts + "; ").find("; " + fact + "; ") != std::string::npos) return;
  facts += (facts.empty() ? "" : "; ") + fact;
}

}  // namespace

void add_run(Run& all, const Run& run) {
  for (std::string Run::*fact :
       {&Run::command, &Run::commit, &Run::compiler, &Run::flags, &Run::gpu, &Run::driver, &Run::started})
    add_fact(all.*fact, run.*fact);
  for (const auto& [name, version] : run.libraries) add_fact(all.libraries[name], version);
  if (all.seed != run.seed) all.seed.reset();
}

std::filesystem::path records_at(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? path / "records.jsonl" : path;
}

MergedRecords read_merged(const std::vector<std::filesystem::path>& paths) {
  MergedRecords merged;
  Records& all = merged.records;
  for (const std::filesystem::path& path : paths) {
    Records records = read_records(path, Incomplete::accept);
    if (&path == &paths.front()) all.run.seed = records.run.seed;
    add_run(all.run, records.run);
    all.complete = all.complete && records.complete;
    add_fact(all.end.finished, records.end.finished);
    std::int64_t line = 1;  // the run stands in the first one
    for (CaseRecord& record : records.cases) {
      all.end.count(record.verdict);
      merged.origins.push_back({path.string(), ++line});
      all.cases.push_back(std::move(record));
    }
  }
  return merged;
}

}  // namespace attest
