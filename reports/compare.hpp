// Two runs, case by case. Cases are the same when kernel and case line are (of a file with a checksum, whatever its path),
// so their inputs are the same bits, and what changed is the kernel, its contract or the judge.
//
// Drift beyond noise: another valid sequence of roundings redraws the errors. The quantiles p50 and p99 of error/bound
// over n independent half-normal errors have relative standard errors of 1.17/sqrt(n) and 1.34/sqrt(n); elements of one
// token share roundings, so n is the number of tokens, not of elements. A factor between the two runs beyond
// 1 + 6 sqrt(2) 1.34/sqrt(T), six standard errors of a difference, is drift. Where the contract differs, error/bound
// measures something else, and no drift is claimed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/record.hpp"

namespace attest {

enum class Change { same, better, worse, other_contract, appeared, vanished };
std::string_view to_string(Change change);

struct CaseChange {
  const CaseRecord *before = nullptr, *after = nullptr;  // nullptr: the case is new, or vanished
  Change change = Change::same;
  bool regression = false;
  std::string what;  // in words; empty when nothing changed
};

struct Comparison {
  std::vector<CaseChange> cases;  // of the later run in its order, then those that vanished
  std::int64_t common = 0, regressions = 0;
  bool complete = true;  // both runs finished; an unfinished later run is a regression of its own
};

// A regression: a verdict further down in pass, suspect, undecided, not run, fail; error/bound that drifted upwards; a
// case that vanished; a new case that fails. Refers to the records.
Comparison compare_records(const Records& before, const Records& after);
double drift_factor(std::int64_t tokens);  // what is still noise

std::string render_comparison(
    const Comparison& comparison);  // lines for a terminal: what changed, then the counts
std::string comparison_json(const Comparison& comparison);  // schema attest.compare/1

}  // namespace attest
