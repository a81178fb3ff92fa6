// Temporary files that must not outlive the program: a fixed table of paths that a signal handler unlinks. The handler
// does nothing but loads, unlink, signal and raise, which POSIX calls async-signal-safe; then the signal takes its
// usual course, so that the exit status says which one it was.
#pragma once

#include <signal.h>

#include <filesystem>

namespace attest {

// SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE, unless the program was started with the signal ignored (nohup).
void remove_temporaries_on_signals();
// One signal, from a handler of it too.
void remove_temporaries_on(int number);
// Any handler of a signal, all others held meanwhile, unless the program was started with it ignored.
void unless_ignored(int number, void (*handler)(int));

// While it lives, a signal removes `path`. Beyond 64 at a time, or 4095 bytes, a path is not remembered.
class Temporary {
 public:
  Temporary() = default;
  explicit Temporary(const std::filesystem::path& path);
  Temporary(Temporary&& other) noexcept : slot_(other.slot_) { other.slot_ = -1; }
  Temporary& operator=(Temporary&& other) noexcept;
  ~Temporary() { forget(); }
  void forget() noexcept;

 private:
  int slot_ = -1;
};

// No signal interrupts this thread while it lives: between making a file and remembering it.
class SignalsHeld {
 public:
  SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld();

 private:
  sigset_t before_;
};

}  // namespace attest
