// A thinner corpus that has the same cells and the same kills: a case stays if it is the only one, among those not yet
// dropped, to lie in a cell or to show a cause of failure of a kernel (finding.hpp), or of the largest error/bound of those found on its kernel. Short cases
// are kept before long ones.
#pragma once
#include "fuzz/corpus.hpp"
#include "fuzz/subject.hpp"

namespace attest {

struct Minimised {
  std::vector<std::string> kept, dropped;  // files
  std::size_t kills = 0, cells = 0;        // causes of failure, of every kernel; cells
};

// Every case is asked of all subjects of its operator. A case that was found on another kernel than these is kept.
Minimised minimise(const std::vector<CorpusCase>& corpus, const std::vector<Subject>& subjects,
                   const std::function<void(std::size_t)>& asked = {});  // told how many cases were asked

}  // namespace attest
