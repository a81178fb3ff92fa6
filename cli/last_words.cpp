#include "cli/last_words.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>

#include "reference/tensor/temporaries.hpp"

namespace attest {
namespace {

constexpr int signals[] = {SIGINT, SIGTERM};

std::atomic<Index> finished, total;
std::atomic<const char*> of_what, afterwards;
std::atomic<bool> terminal;
static_assert(std::atomic<Index>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

// Nothing here allocates or locks, which a signal handler may not.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text && at_ < end()) *at_++ = *text++;
    return *this;
  }
  Line& operator<<(Index number) { return at_ = std::to_chars(at_, end(), number).ptr, *this; }
  void write() const { (void)!::write(STDERR_FILENO, text_, static_cast<std::size_t>(at_ - text_)); }

 private:
  char* end() { return text_ + sizeof text_; }
  char text_[256];
  char* at_ = text_;
};

void speak_and_raise(int number) {
  Line line;
  line << (terminal ? "\r\033[K" : "") << "attest: interrupted after " << finished.load() << " of "
       << total.load() << " " << of_what.load() << afterwards.load() << "\n";
  line.write();
  remove_temporaries_on(number);
  raise(number);  // comes once this handler has returned
}

}  // namespace

LastWords::LastWords(Index all, const char* things, const char* then) {
  finished = 0, total = all, of_what = things, afterwards = then, terminal = isatty(STDERR_FILENO) != 0;
  for (const int number : signals) unless_ignored(number, speak_and_raise);
}

LastWords::~LastWords() {
  for (const int number : signals) remove_temporaries_on(number);
}

void LastWords::done(Index count) { finished = count; }

}  // namespace attest
