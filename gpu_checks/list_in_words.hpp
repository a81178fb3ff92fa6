// "3..17", "4", "all", or the single values of a short list.
#pragma once
#include <set>
#include <string>

#include "reference/tensor/matrix.hpp"

namespace attest {

// `count`: how many values there are at all.
std::string list_in_words(const std::set<Index>& values, Index count);

}  // namespace attest
