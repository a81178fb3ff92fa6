// What attest fuzz says on the terminal: a line that changes while it hunts, then the report of every kernel.
#pragma once
#include <string>

#include "fuzz/hunt.hpp"

namespace attest {

// The line that asks a finding again: its file of the corpus, or the lines of the case behind it.
std::string replay_words(const Subject& subject, const Finding& finding);
void print_report(const HuntReport& report, Objective objective);

// On standard error, gone again at the end.
class Live {
 public:
  Live(std::string kernel, bool shown) : kernel_(std::move(kernel)), shown_(shown) {}
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;
  void show(const HuntProgress& progress) const;

 private:
  std::string kernel_;
  bool shown_;
};

}  // namespace attest
