// A cause of failure that a hunt has found: the input on which it was seen first, and the shrunk one.
#pragma once
#include <string>

#include "fuzz/corpus.hpp"

namespace attest {

struct Finding {
  std::string cause;  // "hla2 lattice o: T=nC+1 ...", what duplicates have in common
  FuzzInput first, shrunk;
  std::string reason;   // of the shrunk input
  std::string after;    // other than empty: it fails after other calls alone, and why
  Index at_case = 0;    // counted from 1; 0: from the corpus
  Index shrinking = 0;  // questions asked to shrink it
  bool shrinking_finished = true;
  Index duplicates = 0;
  Index unseen = 0;    // of them, those that fail the same check and part, and were not looked at closely
  std::string file;    // of the corpus, once it is there
  std::string replay;  // the line that asks it again, or lines, with the input among them
  std::string shard;   // of a hunt in shards, the one that found it
};

// Operator, check, part that failed, and the cell of the shrunk input.
std::string cause_of(const std::string& op, Question question, const std::string& part,
                     const std::string& cell);

// How `after` begins where no fresh kernel fails in that way. One cause for each check: nothing is known of its inputs.
inline constexpr std::string_view does_not_repeat = "does not repeat";
bool repeats(const Finding& finding);

// Two failures are one that have the same cause or the same shrunk input, whichever check asked about it, or where the kernel
// broke in one way (task.hpp).
bool same_cause(const Finding& a, const Finding& b);

// "15 more of this cause, 12 of them not looked at closely".
std::string others_words(const Finding& finding);

// Whether `a` is the one to show of one cause: that repeats, or reads better.
bool better(const Finding& a, const Finding& b);

// Whether `a` reads better: fewer rows times columns, then fewer values other than 0, then the shorter text.
bool smaller(const FuzzInput& a, const FuzzInput& b);

}  // namespace attest
