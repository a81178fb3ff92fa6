#include "reference/tensor/temporaries.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

namespace attest {
namespace {

constexpr std::array signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

enum State { unused, filling, remembered };
struct Entry {
  std::atomic<int> state{unused};
  char path[4096];
};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<Entry, 64> entries;

void remove_and_raise(int signal_number) {
  for (Entry& entry : entries)
    if (entry.state.load(std::memory_order_acquire) == remembered) unlink(entry.path);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

void remove_temporaries_on_signals() {
  for (const int number : signals) remove_temporaries_on(number);
}

void unless_ignored(int number, void (*handler)(int)) {
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  sigfillset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

void remove_temporaries_on(int number) { unless_ignored(number, remove_and_raise); }

Temporary::Temporary(const std::filesystem::path& path) {
  const std::string& text = path.native();
  if (text.size() >= sizeof(Entry::path)) return;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    int expected = unused;
    if (!entries[i].state.compare_exchange_strong(expected, filling)) continue;
    std::memcpy(entries[i].path, text.c_str(), text.size() + 1);
    entries[i].state.store(remembered, std::memory_order_release);
    slot_ = static_cast<int>(i);
    return;
  }
}

Temporary& Temporary::operator=(Temporary&& other) noexcept {
  forget();
  slot_ = std::exchange(other.slot_, -1);
  return *this;
}

void Temporary::forget() noexcept {
  if (slot_ >= 0) entries[static_cast<std::size_t>(slot_)].state.store(unused, std::memory_order_release);
  slot_ = -1;
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : signals) sigaddset(&held, number);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace attest
