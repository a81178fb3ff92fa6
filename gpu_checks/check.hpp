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
  std::optional<Index> judged;  // rows compared with their bound, of all heads; none: all
  bool bounded = false;         // by the error model: else only the errors in ulps and norm are known
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
  // oracle: of the evaluation that it shares with others; total: running and judging the kernel, without the oracle
  std::int64_t kernel_ns = 0, oracle_ns = 0, total_ns = 0;
};

// A case has an index: sources, their kernels, their lengths, counted in this order. Listeners are called from one
// thread at a time.
struct CheckListener {
  std::function<void(const Checked&)> result = {};             // in the order of the indices
  std::function<void(Index done, Index total)> progress = {};  // of those that are run
  std::function<bool(Index index)> known = {};                 // such a case is not run and gives no result
  std::function<void(Index index, const Checked&)> finished = {};  // as soon as it is, in any order
};

// What a case gives depends on its input and its kernel alone, neither on the threads nor on the other cases.
void check(const std::vector<CheckSource>& sources, int threads, const CheckListener& listener);
Index case_count(const std::vector<CheckSource>& sources);
// For every index, a number that cases share which share an evaluation of the oracle.
std::vector<Index> oracle_groups(const std::vector<CheckSource>& sources);

// The single check: one kernel, one case.
Checked check_one(const Kernel& kernel, const Case& input, const Problem& problem);

}  // namespace attest
