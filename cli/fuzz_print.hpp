// What attest fuzz says on the terminal: a line that changes while it hunts, then the report of every kernel.
#pragma once
#include <string>

#include "fuzz/hunt.hpp"

namespace attest {

// The line that asks a finding again: its file of the corpus, or the lines of the case behind it.
std::string replay_words(const Subject& subject, const Finding& finding);
std::string hunt_words(Verdict verdict);  // "no fault": found, which is no proof
// `known`: so many of the cases were answered by a run before this one, and took none of its time.
void print_report(const HuntReport& report, Objective objective, Index known);

// On standard error, gone again at the end.
class Live {
 public:
  Live(std::string kernel, Index known, bool shown)
      : kernel_(std::move(kernel)), known_(known), shown_(shown) {}
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;
  void show(const HuntProgress& progress) const;

 private:
  std::string kernel_;
  Index known_;  // of print_report()
  bool shown_;
};

}  // namespace attest
