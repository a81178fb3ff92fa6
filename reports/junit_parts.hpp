// JUnit XML as Jenkins and the test reporters of GitHub and GitLab read it: FAIL and SUSPECT are failures, UNDECIDED is an
// error (the test did not come to a result), NOT RUN is skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/metrics/verdict.hpp"

namespace attest {

struct JunitCase {
  std::string group, name;  // group: where the reader sorts it, "classname"
  std::int64_t nanoseconds = 0;
  Verdict verdict = Verdict::not_run;
  std::string reason, details;  // details: lines
};

class JunitPage {
 public:
  // In the suite of that title, which comes where its first case does.
  void add(const std::string& suite, const JunitCase& one);
  // What makes the whole an error.
  void add_problem(const std::string& problem);
  std::string text() const;

 private:
  struct Totals {
    std::int64_t tests = 0, failures = 0, errors = 0, skipped = 0, ns = 0;
    void add(const Totals& other);
    std::string attributes() const;
  };
  struct Suite {
    std::string title, cases;
    Totals totals;
  };
  static std::string outcome_of(const JunitCase& one, Totals& totals);
  std::vector<Suite> suites_;
};

}  // namespace attest
