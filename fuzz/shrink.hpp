// The smallest input that still fails in the same way: the same question, the same part of the answer. Greedy, in an order
// that reads well: batch entries, heads, sequences, options; tokens, key and value columns one range after another (delta
// debugging: Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input"), whole chunks of tokens too; values 0, then 1, then small
// integers, then few significand bits; gates open. Repeated until nothing changes.
// A failure of the check width is first one of its inputs, and then one place of it; of very many tokens, heads or batch entries
// those between the ones with values go away by bisection.
#pragma once
#include <functional>

#include "fuzz/input.hpp"

namespace attest {

struct Shrunk {
  FuzzInput input;
  Index asked = 0;
  bool finished = true;  // false: the limit ended it
};

// `fails`: whether an input still fails in that way. At most `limit` are asked about, none once `stop` says so. `worst`: the worst
// element of the last that failed.
Shrunk shrink(const BatteryContext& context, const FuzzInput& input,
              const std::function<bool(const FuzzInput&)>& fails, Index limit,
              const std::function<bool()>& stop = {},
              const std::function<std::optional<Difference>()>& worst = {});

}  // namespace attest
