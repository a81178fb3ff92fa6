// What a hunt has answered, so that one that was killed goes on: a file journal.RANK.jsonl for each process that does tasks
// (schema attest.hunt_journal/1), a line of JSON when a task is begun and one when it is answered, written at once.
// Given the seed, the inputs depend on the answers alone: a hunt that finds them here draws what it drew before.
// A last line without its end is dropped; any other that cannot be read is refused. Where there is no room for a line the
// hunt goes on, and from there on nothing is noted.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "fuzz/task.hpp"

namespace attest {

// What has to agree before a hunt goes on.
struct HuntIdentity {
  std::string command;  // without --resume, and where results go
  std::uint64_t seed = 0;
  std::string version;  // of the program
  std::string kernels_sha256;
  std::vector<std::string>
      corpus;  // files that it asks first: it adds to them, and goes on with those that were there
};

struct TaskBegun {
  std::string kernel;
  Index number = 0;
  std::string task;  // "ask", "settle"
  int rank = 0;
};

class HuntJournal {
 public:
  // What the journals of a folder say of their hunt; none where there are none.
  static std::optional<HuntIdentity> identity_in(const std::filesystem::path& folder);
  HuntJournal(std::filesystem::path folder, HuntIdentity identity);
  ~HuntJournal();
  HuntJournal(const HuntJournal&) = delete;
  HuntJournal& operator=(const HuntJournal&) = delete;

  // The journals that are there, of every rank: read, those of another hunt are BadInput; or removed. BadInput where another
  // process writes to them.
  void take_up();
  std::size_t start_anew();  // how many were removed
  // From now on this process writes.
  void write_as(int rank);
  std::optional<HuntReply> known(const std::string& kernel, const HuntTask& task) const;
  void begin(const std::string& kernel, const HuntTask& task);
  void answer(const std::string& kernel, const HuntTask& task, const HuntReply& reply);
  // Empty, or why what this process does is noted no longer.
  std::string not_written() const;
  // The hunt is finished: there is nothing to go on with.
  void remove();

  // Numbers of the cases that were answered before.
  const std::set<Index>& answered(const std::string& kernel) const;
  Index answered_cases() const;
  Index kernels() const { return std::ssize(answered_); }  // of which any was
  // Begun and not answered: what the processes were at when they ended.
  std::vector<TaskBegun> open() const;

 private:
  void make_folder() const;
  std::vector<std::filesystem::path> left() const;
  void read(const std::filesystem::path& file);
  void note(std::size_t number, const std::string& line, const std::filesystem::path& file, int rank);
  void write(const std::string& line);  // BadInput where there is no room
  void write_if_room(const std::string& line);

  std::filesystem::path folder_;
  HuntIdentity identity_;
  std::map<std::string, std::string> replies_;  // by checksum of kernel and task
  std::map<std::string, TaskBegun> begun_;
  std::map<std::string, std::set<Index>> answered_;
  mutable std::mutex mutex_;
  std::string not_written_;
  int descriptor_ = -1;
};

// With a journal, what is begun and answered is noted there.
HuntReply do_noted(HuntJournal* journal, const Subject& subject, const HuntTask& task, const HowToDo& how);

}  // namespace attest
