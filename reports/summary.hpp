// What the reports say about a run beyond its single records: kernels with all their cases, the worst of them
// first to be quoted, and numbers and names in the form in which people read them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/record.hpp"

namespace attest {

struct KernelSummary {
  const KernelId* kernel = nullptr;
  std::vector<const CaseRecord*> cases;  // in the order of the file
  const CaseRecord* quoted =
      nullptr;  // the case of the worst verdict and, among those, of the largest error/bound
  Verdict verdict = Verdict::not_run;  // of the quoted case
  const CaseRecord* measured =
      nullptr;  // the longest case with figures (of several, the worst), else the quoted
  const CaseRecord* extreme = nullptr;  // the case of the largest error/bound, nullptr without any
};

// Kernels in the order in which they appear, those of one operator and variant together.
std::vector<KernelSummary> summarise(const Records& records);

// "1 cause", "2 causes".
std::string plural(std::int64_t n, const char* one, const char* many);

// "hla2" for the default variant, "hla2 printed" otherwise.
std::string operator_title(const KernelId& kernel);

// The tensor with the largest error/bound (NaN before all numbers), or nullptr when none has a bound.
const std::pair<const std::string, TensorError>* worst_tensor(const CaseRecord& record);
// That, or without any bound the tensor with the largest error in ulps, or nullptr.
const std::pair<const std::string, TensorError>* measured_tensor(const CaseRecord& record);

// Where the cases of a kernel are worse than its measured one, in words: "error/bound 0.93 at T = 32"; "" when nowhere.
std::string worse_elsewhere(const KernelSummary& kernel);

// Undecided cases, by the kind of their reason (the words before its first colon or digit).
struct UndecidedReason {
  std::string kind;
  std::string example;  // the whole reason of the first
  std::size_t cases = 0, kernels = 0;
};
std::vector<UndecidedReason> undecided_reasons(const Records& records);  // the commonest first

// The largest error/bound of a case, -1 where there is none; of kernels, whether the first is to be shown before the
// second: the graver verdict, then the larger error/bound of the quoted case (of a check, where the case has none).
double largest_ratio(const CaseRecord& record);
bool worse_kernel(const KernelSummary& a, const KernelSummary& b);

int severity(Verdict verdict);          // fail 4, suspect 3, undecided 2, pass 1, not run 0
bool worse_number(double a, double b);  // a > b, where NaN is the largest number
Verdict overall(
    const Records& records);  // the worst verdict; not_run when there is no case or the run did not finish
std::string headline(const Records& records);  // one sentence
std::string headline(const Records& records,
                     const std::vector<KernelSummary>& kernels);  // of summarise(records)

// What a pass does not cover: "not run: packing, width; undecided: lattice; never run with decay other than 1".
std::string not_covered(const CaseRecord& record);

// The line that repeats a case: the one that the record gives with its worst element or a check, else `attest
// check --kernel KERNEL --case 'CASE'`.
std::string replay_of(const CaseRecord& record);

// Contracts in fewer words: keys of one value stand together, the commonest value stands alone for all keys
// that are not named, so "input=bf16 product=bf16 accumulate=fp32 state=fp32 output=bf16" is "bf16;
// accumulate,state=fp32".
std::vector<std::string> contract_labels(const std::vector<std::string>& contracts);

// "0.0123", "1.2e-05", "12.3", "1234", "NaN", "infinite": three significant digits.
std::string digits(double value);
std::string percent(double share);                    // "97 %"
std::string duration(std::int64_t ns);                // "1.2 ms"
std::string verdict_words(Verdict verdict);           // "PASS", "NOT RUN"
std::string index_text(const WorstElement& element);  // "o[0,511,3,7]"

}  // namespace attest
