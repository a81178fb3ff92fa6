#include "fuzz/limits.hpp"

#include <algorithm>

namespace attest {
namespace {

// Larger ones are not asked about of the hunter's own accord.
constexpr Index most_tokens = 4096, most_columns = 1024, most_of_others = 256;

Index most_of(std::string_view name) {
  return name == "t" ? most_tokens : name == "d" || name == "dv" ? most_columns : most_of_others;
}

}  // namespace

Index size_within(const Kernel& kernel, std::string_view name, Index wanted) {
  const Index nearest = nearest_within(kernel.limits, name, wanted);
  return nearest > std::max(wanted, most_of(name)) ? wanted : nearest;
}

void keep_within_limits(const Kernel& kernel, Case& shape) {
  const Index heads = shape.heads, tokens = *shape.tokens;
  shape.heads = size_within(kernel, "h", heads);
  if (shape.heads != heads) shape.heads_q = shape.heads_k = shape.heads_v = 0;
  shape.batch = size_within(kernel, "b", shape.batch);
  shape.tokens = size_within(kernel, "t", tokens);
  if (shape.batch != 1 || *shape.tokens < tokens) shape.packed.clear();
  if (!shape.packed.empty()) shape.packed.back() = *shape.tokens;
  shape.key_dim = size_within(kernel, "d", shape.key_dim);
  shape.value_dim = size_within(kernel, "dv", shape.value_dim);
}

}  // namespace attest
