// Which operator does a kernel compute? The kernel runs on a drawn problem of its declared operator with every field and
// option that this takes; its output is compared with every operator and variant of the registry that the fields suffice
// for, and with near misses: what a kernel computes that has one of the usual faults (a decay shifted by a token, levels off
// by one, the strict mask ...). A candidate matches when the relative L2 error stays below 16 u of the coarsest
// format of the kernel's contract, far below the distance of two candidates on such a problem.
#pragma once
#include <string>
#include <vector>

#include "gpu_checks/kernel.hpp"

namespace attest {

struct Candidate {
  std::string name;  // "hla2 (masked)", "hla2 (masked), decay shifted by one token"
  bool near_miss = false;
  double error = 0;  // relative L2, of o
  bool matches = false;
};

struct Identification {
  std::vector<Candidate> candidates;  // the closest first
  double threshold = 0;
  Index tokens = 0;      // of the problem
  std::string failure;   // the kernel did not run: why
  std::string smallest;  // no match: the smallest case line on which nothing matches

  // The matching candidates; several are the same function on this problem.
  std::vector<const Candidate*> matching() const;
  // The smallest error of a candidate that does not match, over the largest of one that does: how far apart they are.
  double margin() const;
};

Identification identify(const Kernel& kernel, std::uint64_t seed);

}  // namespace attest
