// What a run says in one line on standard error when Ctrl-C or SIGTERM ends it; then the signal takes its usual course.
#pragma once
#include "reference/tensor/problem.hpp"

namespace attest {

class LastWords {
 public:
  // "interrupted after 2 of 60 kernels", and `then`; both texts outlive it.
  LastWords(Index all, const char* things, const char* then);
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  ~LastWords();
  void done(Index count);
};

}  // namespace attest
