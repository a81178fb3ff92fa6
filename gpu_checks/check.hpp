// Judges kernels on cases: inputs rounded as each contract says, the kernel's output against the oracle, the bound of
// the error model, a verdict (reference/metrics). The oracle is evaluated once for kernels that see the same rounded
// inputs, and, the operators being causal, once for all prefixes of a sequence.
// SUSPECT on drawn inputs is asked again with two fresh seeds: SUSPECT again, or FAIL, is FAIL (a bias).
#pragma once
#include <functional>
#include <optional>

#include "gpu_checks/kernel.hpp"
#include "reference/cases/case.hpp"
#include "reference/metrics/verdict.hpp"

namespace attest {

// What is to be checked: kernels of one operator and variant on one input, at one or more lengths.
struct CheckSource {
  Case input;  // of the longest length
  std::vector<Index>
      lengths;  // ascending, the last is the longest; prefixes of a file, else cases of their own
  std::vector<const Kernel*> kernels;
  Problem problem;  // of a file: already loaded; else empty
};

struct CheckedElement {
  Index batch = 0, token = 0, head = 0, column = 0;
  double expected = 0, got = 0, bound = 0, ratio = 0;
};

struct PositionError {
  Index position = 0;
  double ratio = 0, error = 0, bound = 0;  // of the element of the largest ratio
};

// Where the violations lie, in words: "512..1023", "0", "all".
struct Whereabouts {
  std::string tokens, chunk_position, heads, columns;
};

struct Checked {
  const Kernel* kernel = nullptr;
  Case input;
  Index tokens = 0;
  Verdict verdict = Verdict::not_run;
  std::string reason;
  Judgement judgement;
  bool bounded = false;  // by the error model: else only the errors in ulps and norm are known
  std::optional<double>
      norm;  // relative l2 error of o, of the worst sequence and head; none: nothing finite there
  std::vector<PositionError> positions;
  std::vector<CheckedElement> worst;       // worst first
  std::optional<Whereabouts> whereabouts;  // when there are violations
  Quantiles magnitude;                     // of M / |o|
  std::map<std::string, double> stages;    // mean share of the bound
  std::optional<Grade> plain;              // masked dense evaluation, operands in the input format
  std::string oracle_method;
  int oracle_bits = 0;
  std::int64_t kernel_ns = 0, oracle_ns = 0, total_ns = 0;
};

// Results come in the order of the sources, their kernels and their lengths, from one thread at a time; `done` counts
// the finished ones, also those whose turn has not come.
struct CheckListener {
  std::function<void(const Checked&)> result;
  std::function<void(Index done, Index total)> progress;
};

void check(const std::vector<CheckSource>& sources, int threads, const CheckListener& listener);

// The single check: one kernel, one case.
Checked check_one(const Kernel& kernel, const Case& input, const Problem& problem);

// The problem of a case: drawn, or read from its file, cut to T tokens. unit_keys: q and k of a file divided by their
// l2 norm and rounded to the dtype that the file holds. BadInput as load_problem.
Problem problem_of(const Case& input, const Declaration& declaration);
Problem first_tokens(const Problem& problem, Index tokens);

// `program` as a word of a shell.
std::string replay_line(const Kernel& kernel, const Case& input, const std::string& program = "attest");

}  // namespace attest
