// A program that may crash, hang, flood or lie, held at arm's length. It runs in a process group of its own below a
// supervisor (`attest worker supervise`), which ends the group and removes the child's folder as soon as this process
// ends, however that happens: nothing of the group is left running or lying about. A process that makes a session or
// group of its own is not followed.
// Every wait has a deadline; what the child prints is read all the time, and its last lines are kept for messages.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attest {

using Deadline = std::chrono::steady_clock::time_point;

// The program that `worker supervise` and `worker plugin` are subcommands of: this one unless set.
std::filesystem::path worker_program();
void set_worker_program(const std::filesystem::path& path);

// An open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close() { *this = Descriptor(); }

 private:
  int number_;
};

// Lines of a stream: whole ones as they come, the last few kept. Nothing is kept of what a flood carries away.
class Transcript {
 public:
  void feed(std::string_view bytes);
  std::optional<std::string> take_reply();  // the rest of the oldest line with "@attest " in it
  bool has_reply() const { return !replies_.empty(); }
  const std::deque<std::string>& last_lines() const { return lines_; }
  const std::string& unfinished() const { return line_; }
  void forget_lines() { lines_.clear(); }

 private:
  void end_line();
  std::string line_;
  std::deque<std::string> lines_, replies_;
};

struct WorkerAnswer {
  enum Kind { given, ended, late } kind = late;
  std::string text;  // given: the answer; ended: how the child ended
};

// Thrown by what waits for a child. It says nothing about the child, which may be about to answer.
struct AnswerGivenUp {};
// While it lives, this thread waits for no child any longer once `unwanted` says so, which is asked twice a second.
class GiveUpAnswers {
 public:
  explicit GiveUpAnswers(std::function<bool()> unwanted);
  ~GiveUpAnswers();
  GiveUpAnswers(const GiveUpAnswers&) = delete;
  GiveUpAnswers& operator=(const GiveUpAnswers&) = delete;

 private:
  const std::function<bool()> unwanted_;
  const std::function<bool()>* outer_;
};

class Child {
 public:
  // `folder` is removed when the child has ended; empty: none. BadInput when nothing can be started.
  Child(const std::vector<std::string>& command, const std::filesystem::path& folder);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Packets to and from the socket that the child finds as file descriptor 3.
  bool send_packet(std::string_view packet, std::span<const int> descriptors = {});
  WorkerAnswer receive_packet(Deadline deadline);
  // A line to standard input; then the next reply line from standard output.
  bool write_line(std::string_view line, Deadline deadline);
  WorkerAnswer receive_reply(Deadline deadline);
  bool has_reply();  // already there, without waiting

  // `; it printed: "..."` with the last lines of standard output and error that were not yet given; or nothing.
  std::string printed();
  void kill();

 private:
  WorkerAnswer wait(bool packets, Deadline deadline);
  void drain(Descriptor& from, Transcript& into);
  std::string ending();
  void hear(int milliseconds);  // what the supervisor tells

  Descriptor input_, output_, errors_, control_, lifeline_;
  Transcript out_, err_;
  pid_t supervisor_ = -1, child_ = -1;
  std::optional<int> status_;
};

// The main function of `attest worker ...`, which only this program calls.
int worker_main(int argc, char** argv);
int plugin_worker(const char* library);  // in plugin_worker.cpp

}  // namespace attest
