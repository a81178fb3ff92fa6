#include "reference/tensor/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

// Turns "file size limit exceeded" from a fatal signal into the error EFBIG for the calling thread.
class SizeSignalBlocked {
 public:
  SizeSignalBlocked() {
    sigemptyset(&size_signal_);
    sigaddset(&size_signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &size_signal_, &before_);
  }
  ~SizeSignalBlocked() {
    const timespec no_wait{};
    if (!sigismember(&before_, SIGXFSZ)) sigtimedwait(&size_signal_, nullptr, &no_wait);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t size_signal_, before_;
};

// Whether `path` names a stream (a device, a pipe, standard output) rather than a place in a folder.
bool is_stream(const std::filesystem::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return false;
  const std::string& text = path.native();
  const bool descriptor = text == "/dev/stdout" || text == "/dev/stderr" || text.starts_with("/dev/fd/") ||
                          text.starts_with("/proc/");
  return descriptor || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

std::filesystem::path temporary_name(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  return target.parent_path() / fmt::format(".attest-{}-{}.tmp", getpid(), counter++);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : label_(printable(path.native(), 200)), target_(path) {
  if (is_stream(path)) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail("opened for writing", errno);
    return;
  }
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail("reached", errno);
  if ((exists && S_ISDIR(status.st_mode)) || !path.has_filename()) fail("written", EISDIR);
  if (std::error_code error; exists) {
    target_ = std::filesystem::canonical(path, error);
    if (error) fail("resolved", error.value());
  }
  do {
    temporary_ = temporary_name(target_);
    const SignalsHeld until_remembered;
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) remembered_ = Temporary(temporary_);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("created in its folder", error);
  }
  if (exists) (void)!fchmod(descriptor_, status.st_mode & 0777);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::span<const std::byte> bytes) {
  const SizeSignalBlocked guard;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  const bool direct = temporary_.empty();
  if (!direct && fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail("flushed to the disk", errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0 && errno != EINTR) fail("closed", errno);
  if (direct) return;
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("put in place", errno);
  temporary_.clear();
  remembered_.forget();
  const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
  if (const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); handle >= 0) {
    (void)fsync(handle);  // best effort: the content is safe, only the new name might be lost with the power
    close(handle);
  }
}

void AtomicFile::fail(const std::string& action, int error) {
  discard();
  throw BadInput(fmt::format("{}: output cannot be {}: {}, expected a writable path with room for the result",
                             label_, action, std::generic_category().message(error)));
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  remembered_.forget();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace attest
