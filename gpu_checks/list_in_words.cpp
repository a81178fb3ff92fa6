#include "gpu_checks/list_in_words.hpp"

namespace attest {

std::string list_in_words(const std::set<Index>& values, Index count) {
  if (values.empty()) return "";
  if (static_cast<Index>(values.size()) == count && count > 1) return "all";
  if (values.size() == 1) return std::to_string(*values.begin());
  const bool dense = *values.rbegin() - *values.begin() + 1 == static_cast<Index>(values.size());
  if (dense || values.size() > 6)
    return std::to_string(*values.begin()) + ".." + std::to_string(*values.rbegin());
  std::string text;
  for (const Index v : values) text += (text.empty() ? "" : ", ") + std::to_string(v);
  return text;
}

}  // namespace attest
