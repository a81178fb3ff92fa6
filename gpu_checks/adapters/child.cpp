#include "gpu_checks/adapters/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "gpu_checks/adapters/devices.hpp"
#include "reference/tensor/bad_input.hpp"

extern char** environ;

namespace attest {
namespace {

constexpr std::string_view prefix = "@attest ";
constexpr std::size_t longest_line = 1 << 20, lines_kept = 6, line_kept = 240;
constexpr int control_number = 3, lifeline_number = 4;

std::filesystem::path& program_path() {
  static std::filesystem::path path = "/proc/self/exe";
  return path;
}

[[noreturn]] void no_child(const char* what) {
  throw BadInput(fmt::format("no process could be started for a kernel: {}: {}", what, std::strerror(errno)));
}

// Above the numbers that a child is given, and closed in every other child.
Descriptor high(int number) {
  if (number < 0) no_child("no file descriptor");
  const Descriptor low(number);
  Descriptor moved(fcntl(number, F_DUPFD_CLOEXEC, 10));
  if (!moved) no_child("no file descriptor");
  return moved;
}

std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) no_child("pipe");
  return {high(ends[0]), high(ends[1])};
}

std::pair<Descriptor, Descriptor> make_socket() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) no_child("socketpair");
  return {high(ends[0]), high(ends[1])};
}

void unblocking(const Descriptor& d) { fcntl(d.get(), F_SETFL, fcntl(d.get(), F_GETFL) | O_NONBLOCK); }

// Starts `command` with the given descriptors as 0, 1, ..., in a process group of its own and with default signals.
pid_t spawn(const std::vector<std::string>& command, std::span<const int> descriptors) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  for (std::size_t i = 0; i < descriptors.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, descriptors[i], static_cast<int>(i));
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) errno = error;
  return error == 0 ? pid : -1;
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

std::string status_words(int status) {
  if (WIFEXITED(status)) return fmt::format("ended itself with exit code {}", WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("died of signal {} ({})",
                     name ? "SIG" + std::string(name) : std::to_string(WTERMSIG(status)),
                     strsignal(WTERMSIG(status)));
}

// No SIGPIPE in this thread while it lives: a child that is gone is a return value here, not the end of the program.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

// What a supervisor says over the lifeline: which process it started, and the status with which that ended.
struct Told {
  enum What { started, ended } what;
  int value;
};
void tell(const Told& told) { send(lifeline_number, &told, sizeof told, MSG_NOSIGNAL); }

// Between attest and a child: waits for the child's end, or for attest's, and leaves nothing behind.
// A device before the program is the only one that the child sees (devices.hpp).
int supervise(const char* folder, std::vector<std::string> command) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  fcntl(lifeline_number, F_SETFD, FD_CLOEXEC);
  if (*folder) setenv("ATTEST_FOLDER", folder, 1);
  for (; command.size() > 1 && command[0].starts_with(visible_devices_setting);
       command.erase(command.begin()))
    setenv("CUDA_VISIBLE_DEVICES", command[0].c_str() + std::strlen(visible_devices_setting), 1);
  const pid_t child = spawn(command, std::array{0, 1, 2, 3});
  for (int number = 0; number <= control_number; ++number) close(number);
  tell({Told::started, child});
  int status = 127 << 8;
  if (child > 0) {
    std::thread([child] {
      char byte = 0;
      while (read(lifeline_number, &byte, 1) < 0 && errno == EINTR) {
      }
      ::kill(-child, SIGKILL);
    }).detach();
    siginfo_t info;
    while (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    ::kill(-child, SIGKILL);  // what it started
    waitpid(child, &status, 0);
  }
  std::error_code ignored;
  if (*folder) std::filesystem::remove_all(folder, ignored);
  tell({Told::ended, status});
  _exit(0);
}

}  // namespace

std::filesystem::path worker_program() { return program_path(); }
void set_worker_program(const std::filesystem::path& path) { program_path() = path; }

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  Descriptor closing(std::exchange(other.number_, -1));
  return *this;
}
Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

void Transcript::end_line() {
  if (const auto at = line_.find(prefix); at != std::string::npos) {
    if (replies_.size() < 100) replies_.push_back(line_.substr(at + prefix.size()));
    line_.clear();
    return;
  }
  if (line_.size() > line_kept) line_.resize(line_kept);
  if (line_.find_first_not_of(" \t\r") != std::string::npos) lines_.push_back(std::move(line_));
  if (lines_.size() > lines_kept) lines_.pop_front();
  line_.clear();
}

void Transcript::feed(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    line_ += bytes.substr(at, end - at);
    if (end < bytes.size() || line_.size() > longest_line) end_line();
    at = end + 1;
  }
}

std::optional<std::string> Transcript::take_reply() {
  if (replies_.empty()) return std::nullopt;
  std::string reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

Child::Child(const std::vector<std::string>& command, const std::filesystem::path& folder) {
  auto [input_there, input_here] = make_pipe();
  auto [output_here, output_there] = make_pipe();
  auto [errors_here, errors_there] = make_pipe();
  auto [control_here, control_there] = make_socket();
  auto [lifeline_here, lifeline_there] = make_socket();
  std::vector<std::string> supervised{worker_program().string(), "worker", "supervise", folder.string()};
  supervised.insert(supervised.end(), command.begin(), command.end());
  supervisor_ = spawn(supervised, std::array{input_there.get(), output_there.get(), errors_there.get(),
                                             control_there.get(), lifeline_there.get()});
  if (supervisor_ < 0) no_child(supervised[0].c_str());
  for (const Descriptor* d : {&input_here, &output_here, &errors_here, &control_here}) unblocking(*d);
  input_ = std::move(input_here), output_ = std::move(output_here), errors_ = std::move(errors_here);
  control_ = std::move(control_here), lifeline_ = std::move(lifeline_here);
}

Child::~Child() { kill(); }

void Child::kill() {
  if (supervisor_ < 0) return;
  hear(0);
  lifeline_.close();
  while (waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (child_ > 0 && !status_) ::kill(-child_, SIGKILL);  // a child that ended its supervisor
  supervisor_ = -1;
}

void Child::hear(int milliseconds) {
  pollfd ready{lifeline_.get(), POLLIN, 0};
  for (Told told{}; !status_ && poll(&ready, 1, milliseconds) > 0;) {
    if (recv(lifeline_.get(), &told, sizeof told, MSG_DONTWAIT) != sizeof told) return;
    if (told.what == Told::started)
      child_ = told.value;
    else
      status_ = told.value;
  }
}

bool Child::send_packet(std::string_view packet, std::span<const int> descriptors) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 4)> rights{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = rights.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(control_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

namespace {
thread_local const std::function<bool()>* unwanted_now = nullptr;
constexpr int between_questions = 500;  // milliseconds
bool is_unwanted() { return unwanted_now && (*unwanted_now)(); }
}  // namespace

GiveUpAnswers::GiveUpAnswers(std::function<bool()> unwanted)
    : unwanted_(std::move(unwanted)), outer_(unwanted_now) {
  unwanted_now = &unwanted_;
}
GiveUpAnswers::~GiveUpAnswers() { unwanted_now = outer_; }

bool Child::write_line(std::string_view line, Deadline deadline) {
  const WithoutSigpipe quietly;
  std::string rest = std::string(line) + '\n';
  while (!rest.empty()) {
    const ssize_t written = write(input_.get(), rest.data(), rest.size());
    if (written > 0) {
      rest.erase(0, static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    // A child that prints much before it reads must not wait for us.
    drain(output_, out_), drain(errors_, err_);
    if (is_unwanted()) throw AnswerGivenUp{};
    pollfd ready{input_.get(), POLLOUT, 0};
    if (poll(&ready, 1, std::min(milliseconds_until(deadline), 50)) == 0 && milliseconds_until(deadline) == 0)
      return false;
  }
  return true;
}

void Child::drain(Descriptor& from, Transcript& into) {
  std::array<char, 1 << 16> buffer;
  for (int rounds = 0; from && rounds < 64; ++rounds) {
    const ssize_t got = read(from.get(), buffer.data(), buffer.size());
    if (got > 0) into.feed({buffer.data(), static_cast<std::size_t>(got)});
    if (got == 0) from.close();
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

WorkerAnswer Child::wait(bool packets, Deadline deadline) {
  std::vector<char> packet(1 << 20);
  while (true) {
    if (!packets)
      if (auto reply = out_.take_reply()) return {WorkerAnswer::given, std::move(*reply)};
    if (!packets && !output_) return {WorkerAnswer::ended, ending()};
    std::array<pollfd, 3> fds{pollfd{output_.get(), POLLIN, 0}, pollfd{errors_.get(), POLLIN, 0},
                              pollfd{packets ? control_.get() : -1, POLLIN, 0}};
    const int left = milliseconds_until(deadline);
    const bool unwanted = is_unwanted();
    const int longest = unwanted ? 0 : unwanted_now ? std::min(left, between_questions) : left;
    if (poll(fds.data(), fds.size(), longest) < 0 && errno != EINTR)
      return {WorkerAnswer::ended, std::strerror(errno)};
    drain(output_, out_), drain(errors_, err_);
    if (packets && fds[2].revents != 0) {
      const ssize_t got = recv(control_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (got > 0) return {WorkerAnswer::given, {packet.data(), static_cast<std::size_t>(got)}};
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) return {WorkerAnswer::ended, ending()};
    }
    if (!packets && out_.has_reply()) continue;
    if (unwanted) throw AnswerGivenUp{};
    if (left == 0) return {WorkerAnswer::late, ""};
  }
}

WorkerAnswer Child::receive_packet(Deadline deadline) { return wait(true, deadline); }
WorkerAnswer Child::receive_reply(Deadline deadline) { return wait(false, deadline); }

bool Child::has_reply() {
  drain(output_, out_);
  return out_.has_reply();
}

std::string Child::ending() {
  hear(2000);  // a child that only closed its door is still there
  drain(output_, out_), drain(errors_, err_);
  return status_ ? status_words(*status_) : "closed its connection without ending";
}

std::string Child::printed() {
  drain(output_, out_), drain(errors_, err_);
  std::string text;
  for (Transcript* transcript : {&out_, &err_}) {
    std::vector<std::string> lines(transcript->last_lines().begin(), transcript->last_lines().end());
    if (!transcript->unfinished().empty()) lines.push_back(transcript->unfinished().substr(0, line_kept));
    for (const std::string& line : lines) text += (text.empty() ? "" : " | ") + printable(line, line_kept);
    transcript->forget_lines();
  }
  return text.empty() ? "" : "; it printed: \"" + text + "\"";
}

int worker_main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[2] : "";
  if (what == "supervise" && argc > 4 && fcntl(lifeline_number, F_GETFD) >= 0)
    return supervise(argv[3], {argv + 4, argv + argc});
  if (what == "plugin" && argc == 4 && fcntl(control_number, F_GETFD) >= 0) return plugin_worker(argv[3]);
  std::fputs("attest: worker is started by attest check itself, expected --plugin or --process there\n",
             stderr);
  return 2;
}

}  // namespace attest
