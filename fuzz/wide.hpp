// What the battery's check width asks, as inputs that can be changed: certified integers of more than 65,536 tokens, or of more
// than 65,536 heads and batch entries, every value spelled out.
#pragma once
#include "fuzz/input.hpp"

namespace attest {

// The whole of each, and where the kernel takes a state the tokens beyond 65,536 after those before them.
std::vector<FuzzInput> wide_questions(const BatteryContext& context);

}  // namespace attest
