// Which operator does a kernel compute? The kernel runs on several drawn problems of its declared operator, with every
// field that this takes, more tokens than two of its chunks, two batch entries, two heads and, where it announces one, an
// initial state. Its output is compared with every operator and variant of the registry that the fields suffice for, and
// with near misses (near_misses.hpp). A candidate is what the kernel computes when every output value lies within the
// bound that the kernel's contract and form give around the candidate's value, on all problems. Nearest alone is
// "resembles": an error that the contract does not excuse.
// Values come from the stream form in double, good for bounds of fp32 and coarser: of a finer contract nothing below
// 2^-40 of the largest output is seen.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gpu_checks/kernel.hpp"
#include "reference/cases/case.hpp"

namespace attest {

enum class Fit {
  within,  // every value within the bound
  open,  // so too, but the bound is below a quarter of the value on less than half of the elements, or there is none
  beyond
};

struct Candidate {
  std::string name;  // "hla2 (masked)", "hla2 (masked), decay shifted by one token"
  bool near_miss = false;
  std::string same_as;  // the candidate before it that has the same values on these problems
  double error = 0;     // relative L2 of o, of the worst problem
  double quarter =
      0;  // a quarter of the rows of o (batch entry, token, head) has a relative error of at most this
  Fit fit = Fit::beyond;
  double worst_ratio = 0;   // error over bound; 0: not compared
  double share_beyond = 1;  // of the values
  std::string undecided;    // why there is no bound
};

enum class Likeness {
  computes,   // within the bound of one candidate or several
  likely,     // within a bound that has no power, and nearest
  resembles,  // near one, beyond the bound of all
  none
};

struct Identification {
  Likeness likeness = Likeness::none;
  std::vector<Candidate> candidates;  // the answer first, then by distance
  std::string declared;               // "hla2 (masked)"
  bool as_declared = false;           // the answer, final states included, is what the kernel declares
  std::string confidence;             // in words
  std::string where;                  // of values beyond the bound of the answer
  std::string states;                 // about final states; empty: none to compare, or as they should be
  std::string compared;               // on what
  std::string failure;                // the kernel did not run: why
  bool unsupported = false;           // since it takes no such input, or its device is not here
  std::string smallest;               // nothing fits: the smallest input on which nothing does

  // The candidates within their bounds that are no copies of another.
  std::vector<const Candidate*> matching() const;
  const Candidate* answer() const;  // null: none
};

struct IdentifyRequest {
  std::uint64_t seed = 1;
  std::string shape;  // "T=300,d=16,gates=uniform": over what is chosen
};

// BadInput for a shape that cannot be read.
Identification identify(const Kernel& kernel, const IdentifyRequest& request);

}  // namespace attest
