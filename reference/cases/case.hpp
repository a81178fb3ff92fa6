// A case: an operator with its options, and inputs that are drawn (shape, recipes, seed) or read (a file, its first
// T tokens). One line of text, which a report prints and `attest check --case` reads back:
//   hla2 variant=masked T=64 d=16 dv=16 H=2 B=1 decay=3/4 recipe=gaussian gates=published seed=123
//   gated_delta variant=masked input=layer.safetensors checksum=fnv1a64-85944171f73967e8 T=64 unit_keys=true
// Option values are exact. In paths, spaces, quotes, % and control characters are written %XX.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"

namespace attest {

struct Case {
  std::string op, variant = "masked";
  std::string input;            // path of a safetensors file; empty: the inputs are drawn
  std::string checksum;         // of that file (checksum.hpp); empty: not looked at
  std::optional<Index> tokens;  // none: all tokens of the file
  Index key_dim = 32, value_dim = 32, heads = 1, batch = 1;
  Index heads_q = 0, heads_k = 0, heads_v = 0;  // 0: as many as heads
  std::vector<Index> packed;                    // cu_seqlens; empty: not packed
  Options options;
  bool unit_keys = false;  // q and k divided by their l2 norm
  std::string recipe = "gaussian", gates = "published";
  std::uint64_t seed = 0;

  bool drawn() const { return input.empty(); }
};

// Throws BadInput that names the token of the line and what was expected.
Case parse_case(std::string_view line);
std::string to_text(const Case& c);

// "T=64,d=16,dv=16,H=2,B=1" (also Hq, Hk, Hv, recipe, gates ...) over the defaults of `c`: the keys of a case line,
// with commas or spaces between them. Returns the keys that were given.
std::vector<std::string> set_from_list(Case& c, std::string_view list, std::string_view where);

// Throws BadInput when the case names a checksum and its file has another one.
void verify_checksum(const Case& c);

// The problem of a case with drawn inputs: the fields that the operator takes, as doubles, not yet rounded; the keys of
// the delta rules are unit vectors. BadInput for an option that the operator does not take.
Problem draw_problem(const Case& c, const Declaration& declaration);

// Whether an operator judges drawn keys as unit vectors by itself: the delta rules, bounded only for beta |k|^2 < 2.
bool needs_unit_keys(const Declaration& declaration);

}  // namespace attest
