// Decides a statement. First it is attacked: small rational instances at small shapes, and uniformly random instances
// over Z/(2^61-1) at every shape. A statement that survives holds, with the probability that a false one would have
// survived (Schwartz-Zippel: (D/p)^instances per shape, kept at or below 2^-100). A statement that falls is refuted by
// a rational counterexample at the smallest failing shape, drawn and shrunk by RapidCheck and re-evaluated in Q.
#pragma once
#include <cstdint>
#include <optional>

#include "proofs/claim.hpp"

namespace attest {

enum class ClaimVerdict { holds, refuted, undecided };
const char* claim_verdict_name(ClaimVerdict verdict);

struct EngineOptions {
  std::uint64_t seed = 0;
  int trials = 2;  // random field instances per shape, at least; more are taken where the degree asks for it
};

struct Counterexample {
  Shape shape;
  Inputs<Rational> inputs;
  Comparison<Rational> difference;  // both sides, exact
  Index row = 0, column = 0;        // the first entry that differs
};

struct Decision {
  ClaimVerdict verdict = ClaimVerdict::undecided;
  std::int64_t field_instances = 0, rational_instances = 0;
  std::size_t shapes = 0;
  Shape smallest, largest;  // over the shapes, axis by axis
  Index total_degree = 0;
  double log2_failure = 0;  // the largest over the shapes; -infinity where nothing was drawn at random
  int instances_per_shape = 0;
  std::optional<Counterexample> counterexample;
};

// `name` keeps the draws of different statements apart; the same seed and name give the same decision.
Decision decide(const Statement& statement, const std::string& name, const EngineOptions& options);

// The first comparison whose sides differ.
template <class S>
std::optional<Comparison<S>> first_difference(const Comparisons<S>& comparisons) {
  for (const auto& comparison : comparisons)
    if (!(comparison.left == comparison.right)) return comparison;
  return std::nullopt;
}

}  // namespace attest
