// What the targets of coverage-guided fuzzing share. A target is a file with LLVMFuzzerTestOneInput (libFuzzer's name): it
// gives the bytes to a reader, which has to refuse them with a BadInput of one printable line or to read something that
// holds. Anything else ends the process, which is what libFuzzer and the plain driver (driver.cpp) look for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "reference/tensor/bad_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace attest {

[[noreturn]] inline void report_fault(std::string_view what) {
  std::fprintf(stderr, "fault: %s\n", printable(what, 4000).c_str());
  std::abort();
}

inline void require(bool holds, std::string_view what) {
  if (!holds) report_fault(what);
}

inline std::string_view text_of(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

inline void require_one_line(std::string_view message) {
  const bool fits = !message.empty() && message.size() < 10000 && printable(message, 10000) == message;
  require(fits, "a message is not one printable line: " + std::string(message));
}

// Whether `read` took the bytes; false when it refused them as it should.
template <class Read>
bool accepted(Read&& read) {
  try {
    read();
    return true;
  } catch (const BadInput& refusal) {
    require_one_line(refusal.what());
    return false;
  }
}

// The lines of a text, the last one whether it ends or not.
inline std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace attest
