// A target whose reader has a bug of the kind that the environment variable PLANTED names, and none without it. Each needs
// an input that the seed is not.
#include <stdexcept>
#include <vector>

#include "fuzz/targets/target.hpp"

namespace {

// The largest whole number of the text, and how deep its brackets are nested.
struct Read {
  unsigned long long number = 0;
  std::size_t depth = 0;
};

Read read(std::string_view text) {
  Read all;
  unsigned long long number = 0;
  for (const char c : text) {
    number = c >= '0' && c <= '9' ? number * 10 + static_cast<unsigned>(c - '0') : 0;
    all.number = std::max(all.number, number);
    all.depth += c == '[';
  }
  return all;
}

// Not inlined into a loop: every call has a frame.
__attribute__((noinline)) unsigned deep(std::size_t depth) {
  volatile char frame[4096] = {};
  return depth == 0 ? 0u : deep(depth - 1) + static_cast<unsigned char>(frame[depth % 4096]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text = attest::text_of(bytes, size);
  const char* setting = std::getenv("PLANTED");
  const std::string_view bug = setting ? setting : "";
  const Read found = read(text);
  if (bug == "crash" && found.number > 1u << 30) *reinterpret_cast<volatile char*>(found.number >> 20) = 1;
  if (bug == "fault" && found.number == 255) attest::report_fault("255 is read as -1");
  if (bug == "exception" && text.find("name") == text.npos) throw std::out_of_range("name");
  if (bug == "overflow" && deep(found.depth * 1000) != 0) return 0;
  if (bug == "hang" && text.size() > 100)
    for (volatile bool forever = true; forever;) {
    }
  return 0;
}
