// What a check found: outputs compared element by element, where they differ (in words), the worst difference, and
// the inputs that could not be decided. Zeros are equal whatever their sign; a NaN equals nothing.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu_checks/kernel.hpp"
#include "reference/metrics/verdict.hpp"

namespace attest {

struct Difference {
  std::string tensor;
  std::vector<Index> index;
  double expected = 0, got = 0, bound = 0;
};

// Where the differences lie: "512..1023", "0", "all"; empty where it does not apply.
struct Places {
  std::string outputs, sequences, tokens, chunk_position, heads, levels, columns;
};
std::string in_words(const Places& places);

// Sees every output that is compared with what it must be, on this thread: for statistics about other rules.
using ComparisonObserver =
    std::function<void(const std::string& input, const std::string& tensor, const std::vector<double>& got,
                       const std::vector<double>& expected)>;
class ObserveComparisons {
 public:
  explicit ObserveComparisons(ComparisonObserver observer);
  ~ObserveComparisons();
  ObserveComparisons(const ObserveComparisons&) = delete;
  ObserveComparisons& operator=(const ObserveComparisons&) = delete;
};

struct CheckOutcome {
  Verdict verdict = Verdict::not_run;
  std::string reason;  // one line; empty for a pass
  Index inputs = 0;    // decided
  Index undecided = 0;
  Index compared = 0, violations = 0, suspicious = 0;
  Index differing = 0;              // inputs with a difference
  std::string input;                // the first of them, in words
  Places places;                    // of the differences on that input
  std::optional<Difference> worst;  // on that input
};

class Findings {
 public:
  explicit Findings(const Kernel& kernel) : kernel_(kernel) {}

  // Names the input of the comparisons that follow.
  void input(std::string words);
  // Nothing could be claimed on this input.
  void leave_out(const std::string& why);
  void refuse(
      const std::string& why);  // the same, as the kernel does not take the input: all of them are NOT RUN
  // Not a matter of single elements.
  void fault(const std::string& what);
  void exact(const Problem& problem, const std::string& tensor, const Tensor& got, const Tensor& expected);
  void exact(const Problem& problem, const Tensors& got, const Tensors& expected);
  // Elementwise: error[i] <= bound[i]; beyond `passing` it is suspicious. A NaN error is a violation.
  void within(const Problem& problem, const std::string& tensor, const Tensor& got,
              const std::vector<double>& expected, const std::vector<double>& error,
              const std::vector<double>& bound, const std::vector<double>& passing);
  // Elements where `must` holds have to be non-finite.
  void not_finite(const Problem& problem, const std::string& tensor, const Tensor& got,
                  const std::vector<bool>& must);
  bool failed() const { return violations_ > 0 || !fault_.empty(); }
  Index suspicious() const { return suspicious_; }
  // The largest error/bound that within() has seen; a NaN error counts as infinity.
  double reached() const { return reached_; }
  Index reached_at() const { return reached_at_; }  // by which element of its tensor, flat
  CheckOutcome outcome() const;

 private:
  void violate(const Problem& problem, const std::string& tensor, const std::vector<Index>& shape, Index flat,
               double expected, double got, double bound, double ratio, bool exact = false);
  Places places() const;

  const Kernel& kernel_;
  std::string input_, first_input_, fault_, left_out_why_;
  Index inputs_ = 0, left_out_ = 0, refused_ = 0, compared_ = 0, violations_ = 0, suspicious_ = 0;
  Index differing_ = 0, not_numbers_ = 0;
  bool counted_ = false, differs_ = false;
  Index reached_at_ = 0;
  bool worst_exact_ = false;  // no bound: expected bit for bit
  double worst_ratio_ = 0, reached_ = 0;
  std::optional<Difference> worst_;
  std::set<std::string> outputs_;
  std::map<std::string, std::set<Index>> where_;
  std::map<std::string, Index> extent_;
};

}  // namespace attest
