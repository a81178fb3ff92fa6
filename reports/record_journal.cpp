#include "reports/record_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/tensor/bad_input.hpp"
#include "reports/record_file.hpp"

namespace attest {
namespace {

constexpr std::string_view schema = "attest.journal/1";

std::string to_line(const RunIdentity& run) {
  return nlohmann::ordered_json{{"schema", schema},
                                {"command", run.command},
                                {"seed", run.seed},
                                {"version", run.version},
                                {"cases_sha256", run.cases_sha256}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<RunIdentity> parse_identity(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !text("schema") || json["schema"] != schema || !text("command") ||
      !text("version") || !text("cases_sha256") || !json.contains("seed") ||
      !json["seed"].is_number_unsigned())
    return std::nullopt;
  return RunIdentity{json["command"], json["seed"], json["version"], json["cases_sha256"]};
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<std::uint64_t> RecordJournal::seed_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto identity = parse_identity(line);
  return identity ? std::optional(identity->seed) : std::nullopt;
}

RecordJournal::RecordJournal(std::filesystem::path path, const RunIdentity& identity, bool resume)
    : path_(std::move(path)) {
  if (!resume || !open_old(identity)) create(identity);
}

RecordJournal::~RecordJournal() {
  struct stat mine {
  }, there{};
  if (descriptor_ < 0) return;
  const bool same = fstat(descriptor_, &mine) == 0 && stat(path_.c_str(), &there) == 0 &&
                    mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  std::error_code ignored;
  if (same) std::filesystem::remove(path_, ignored);  // another run may have put its own in this place
  close(descriptor_);
}

void RecordJournal::refuse(const std::string& why) const { throw BadInput(path_.string() + ": " + why); }

void RecordJournal::create(const RunIdentity& identity) {
  if (const int old = open(path_.c_str(), O_RDWR | O_CLOEXEC); old >= 0) {
    const bool busy = flock(old, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(old);
    if (busy) refuse("another run writes to it, expected one that has ended or another folder");
  }
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse("cannot be written, expected a writable folder");
  flock(descriptor_, LOCK_EX | LOCK_NB);
  write(to_line(identity) + '\n');
}

bool RecordJournal::open_old(const RunIdentity& identity) {
  const int descriptor = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return false;
  const auto refused = [&](const std::string& why) {
    close(descriptor);
    refuse(why);
  };
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    refused("another run writes to it, expected one that has ended");
  const std::string content = content_of(path_);
  const std::size_t first = content.find('\n');
  if (first == std::string::npos) {  // killed before it was of any use
    close(descriptor);
    return false;
  }
  const auto old = parse_identity(content.substr(0, first));
  if (!old) refused("is no journal of attest check, expected one or none");
  if (old->version != identity.version)
    refused(fmt::format("is of attest {}, this is {}: run without --resume", old->version, identity.version));
  if (old->command != identity.command)
    refused(fmt::format("is of another command, {}: run that, or without --resume",
                        printable(old->command, 300)));
  if (old->seed != identity.seed)
    refused(fmt::format("is of seed {}, not {}: run without --resume", old->seed, identity.seed));
  if (old->cases_sha256 != identity.cases_sha256)
    refused("is of other kernels or inputs than there are now: run without --resume");
  std::size_t at = first + 1;
  for (std::size_t number = 2; at < content.size(); ++number) {
    const std::size_t end = content.find('\n', at);
    if (end == std::string::npos) break;  // torn
    std::int64_t index = -1;
    const auto [stop, error] = std::from_chars(content.data() + at, content.data() + end, index);
    const auto record = static_cast<std::size_t>(stop - content.data()) + 1;
    if (error != std::errc() || index < 0 || record >= end || *stop != ' ' || content[record] != '{')
      refused(fmt::format("line {}: expected an index and a record: run without --resume", number));
    lines_[index] = {static_cast<std::int64_t>(record), static_cast<std::int64_t>(end - record)};
    at = end + 1;
  }
  descriptor_ = descriptor, end_ = static_cast<std::int64_t>(at);
  if (ftruncate(descriptor_, end_) != 0) refuse("cannot be written, expected a writable file");
  return true;
}

void RecordJournal::write(const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = pwrite(descriptor_, line.data() + done, line.size() - done, end_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse("cannot be written, expected room for the records");
    done += static_cast<std::size_t>(written), end_ += written;
  }
}

CaseRecord RecordJournal::read(std::int64_t index) const {
  const Line& line = lines_.at(index);
  std::string text(static_cast<std::size_t>(line.length), '\0');
  if (pread(descriptor_, text.data(), text.size(), line.at) != line.length) refuse("cannot be read");
  return parse_case_record(text, fmt::format("{}: case {}", path_.string(), index));
}

void RecordJournal::add(std::int64_t index, const CaseRecord& record) {
  const std::string number = std::to_string(index) + ' ', text = to_json_line(record);
  const std::int64_t at = end_ + static_cast<std::int64_t>(number.size());
  write(number + text + '\n');
  lines_[index] = {at, static_cast<std::int64_t>(text.size())};
}

}  // namespace attest
