#include "gpu_checks/judging/rows.hpp"

namespace attest {

std::string judged_in_words(const Rows& rows) {
  Index judged = 0, all = 0;
  for (std::size_t s = 0; s < rows.list().size(); ++s)
    judged += rows.count(s), all += rows.list()[s].last - rows.list()[s].first;
  return std::to_string(judged) + " of " + std::to_string(all) +
         " rows judged by the bound (ends, edges of chunks, powers of two, the rest drawn from equal parts), "
         "all for being finite";
}

}  // namespace attest
