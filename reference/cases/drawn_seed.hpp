// A seed that nobody chose, for runs that name it so that they can be repeated.
#pragma once
#include <cstdint>

namespace attest {

std::uint64_t drawn_seed();  // below 2^63: it fits every reader of JSON integers

}  // namespace attest
