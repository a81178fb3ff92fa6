#include "fuzz/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gpu_checks/adapters/sha256.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view schema = "attest.hunt_journal/1";

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string key_of(const std::string& kernel, const std::string& task) {
  return sha256(kernel + '\n' + task);
}

std::string to_line(const HuntIdentity& one) {
  return dumped({{"schema", schema},
                 {"command", one.command},
                 {"seed", one.seed},
                 {"version", one.version},
                 {"kernels_sha256", one.kernels_sha256},
                 {"corpus", one.corpus}});
}

// The rank of "journal.3.jsonl".
std::optional<int> rank_of(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view before = "journal.", after = ".jsonl";
  if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  int rank = -1;
  const char* end = name.data() + name.size() - after.size();
  const auto [stop, error] = std::from_chars(name.data() + before.size(), end, rank);
  return error == std::errc() && stop == end && rank >= 0 ? std::optional(rank) : std::nullopt;
}

std::vector<fs::path> journals_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (rank_of(at->path())) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

// Complete lines.
std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line) && !stream.eof();) lines.push_back(line);
  return lines;
}

std::optional<HuntIdentity> parse_identity(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("schema", Json()) != schema) return std::nullopt;
  try {
    return HuntIdentity{json.at("command"), json.at("seed"), json.at("version"), json.at("kernels_sha256"),
                        json.at("corpus")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string difference(const std::optional<HuntIdentity>& found, const HuntIdentity& identity) {
  if (!found) return "is no journal of a hunt";
  if (found->version != identity.version) return "is of attest " + found->version;
  if (found->command != identity.command) return "is of another command, " + printable(found->command, 300);
  if (found->seed != identity.seed) return fmt::format("is of seed {}, not {}", found->seed, identity.seed);
  if (found->kernels_sha256 != identity.kernels_sha256) return "is of other kernels than there are now";
  return {};
}

// Whether a process writes to the file.
bool is_busy(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool busy = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(descriptor);
  return busy;
}

}  // namespace

std::optional<HuntIdentity> HuntJournal::identity_in(const fs::path& folder) {
  for (const fs::path& file : journals_of(folder))
    if (const auto lines = lines_of(file); !lines.empty())
      if (auto identity = parse_identity(lines[0])) return identity;
  return std::nullopt;
}

HuntJournal::HuntJournal(fs::path folder, HuntIdentity identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {}

void HuntJournal::make_folder() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_))
    throw BadInput(fmt::format("--output {}: cannot be made, expected a folder to write to",
                               in_quotes(folder_.native())));
}

std::vector<fs::path> HuntJournal::left() const {
  make_folder();
  std::vector<fs::path> files = journals_of(folder_);
  for (const fs::path& file : files)
    if (is_busy(file))
      throw BadInput(file.string() + ": another hunt writes to it, expected one that has ended");
  return files;
}

void HuntJournal::take_up() {
  for (const fs::path& file : left()) read(file);
}

std::size_t HuntJournal::start_anew() {
  std::error_code ignored;
  const auto files = left();
  for (const fs::path& file : files) fs::remove(file, ignored);
  return files.size();
}

HuntJournal::~HuntJournal() {
  if (descriptor_ >= 0) close(descriptor_);
}

void HuntJournal::read(const fs::path& file) {
  const auto lines = lines_of(file);
  if (lines.empty()) return;  // killed before it was of any use
  if (const std::string why = difference(parse_identity(lines[0]), identity_); !why.empty())
    throw BadInput(file.string() + ": " + why + ", expected that of this hunt: run without --resume");
  for (std::size_t i = 1; i < lines.size(); ++i) note(i + 1, lines[i], file, *rank_of(file));
}

// {"begin":KERNEL,"key":...,"task":"ask","number":7} or {"answer":KERNEL,"key":...,"task":"ask","number":7,"reply":{...}}
void HuntJournal::note(std::size_t number, const std::string& line, const fs::path& file, int rank) {
  const Json json = Json::parse(line, nullptr, false);
  const auto text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  const bool begins = json.is_object() && text("begin"), answers = json.is_object() && text("answer");
  if (!(begins || (answers && text("reply"))) || !text("key") || !text("task") || !json.contains("number") ||
      !json["number"].is_number_integer())
    throw BadInput(fmt::format("{}: line {}: {}: expected a task begun or answered: run without --resume",
                               file.string(), number, in_quotes(line)));
  const std::string key = json["key"];
  if (begins) return void(begun_[key] = {json["begin"], json["number"], json["task"], rank});
  parse_reply(json["reply"]);
  replies_[key] = json["reply"];
  if (json["task"] == "ask" && json["number"] > 0)
    answered_[json["answer"]].insert(json["number"].get<Index>());
}

void HuntJournal::write_as(int rank) {
  make_folder();
  const fs::path file = folder_ / fmt::format("journal.{}.jsonl", rank);
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
  if (descriptor_ < 0) throw BadInput(file.string() + ": cannot be written, expected a writable folder");
  flock(descriptor_, LOCK_EX | LOCK_NB);
  off_t complete = 0;
  for (const std::string& line : lines_of(file)) complete += static_cast<off_t>(line.size()) + 1;
  if (ftruncate(descriptor_, complete) != 0) throw BadInput(file.string() + ": cannot be written");
  if (complete == 0) write(to_line(identity_));
}

void HuntJournal::write(const std::string& line) {
  const std::string whole = line + '\n';
  for (std::size_t done = 0; done < whole.size();) {
    const ssize_t written = ::write(descriptor_, whole.data() + done, whole.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw BadInput(printable(folder_.native(), 200) +
                     ": the journal cannot be written, expected room for it");
    done += static_cast<std::size_t>(written);
  }
}

void HuntJournal::write_if_room(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!not_written_.empty()) return;  // what follows half a line could not be read
  try {
    write(line);
  } catch (const BadInput& error) {
    not_written_ = error.what();
  }
}

std::string HuntJournal::not_written() const {
  const std::lock_guard lock(mutex_);
  return not_written_;
}

std::optional<HuntReply> HuntJournal::known(const std::string& kernel, const HuntTask& task) const {
  if (replies_.empty()) return std::nullopt;
  const auto found = replies_.find(key_of(kernel, to_line(task)));
  return found == replies_.end() ? std::nullopt : std::optional(parse_reply(found->second));
}

namespace {

Json head(const char* what, const std::string& kernel, const HuntTask& task) {
  const bool asks = task.kind == HuntTask::Kind::ask;
  return {{what, kernel},
          {"task", asks ? "ask" : "settle"},
          {"number", task.number},
          {"key", key_of(kernel, to_line(task))}};
}

}  // namespace

void HuntJournal::begin(const std::string& kernel, const HuntTask& task) {
  write_if_room(dumped(head("begin", kernel, task)));
}

void HuntJournal::answer(const std::string& kernel, const HuntTask& task, const HuntReply& reply) {
  Json json = head("answer", kernel, task);
  json["reply"] = to_line(reply);
  write_if_room(dumped(json));
}

void HuntJournal::remove() {
  std::error_code ignored;
  for (const fs::path& file : journals_of(folder_)) fs::remove(file, ignored);
}

const std::set<Index>& HuntJournal::answered(const std::string& kernel) const {
  static const std::set<Index> none;
  const auto found = answered_.find(kernel);
  return found == answered_.end() ? none : found->second;
}

Index HuntJournal::answered_cases() const {
  Index cases = 0;
  for (const auto& [kernel, numbers] : answered_) cases += std::ssize(numbers);
  return cases;
}

std::vector<TaskBegun> HuntJournal::open() const {
  std::vector<TaskBegun> list;
  for (const auto& [key, one] : begun_)
    if (!replies_.contains(key)) list.push_back(one);
  std::sort(list.begin(), list.end(), [](const TaskBegun& a, const TaskBegun& b) {
    return std::tie(a.kernel, a.number) < std::tie(b.kernel, b.number);
  });
  return list;
}

HuntReply do_noted(HuntJournal* journal, const Subject& subject, const HuntTask& task, const HowToDo& how) {
  if (journal) journal->begin(subject.kernel.name, task);
  HuntReply reply = do_task(subject, task, how);
  // What was stopped is neither answered nor, when the hunt goes on, taken for an answer.
  const bool cut = !reply.shrinking_finished && how.late && how.late();
  const bool whole = reply.done && !cut && !(how.stop && how.stop());
  if (journal && whole) journal->answer(subject.kernel.name, task, reply);
  return reply;
}

}  // namespace attest
