// The ledger: every published claim (proofs/claims) and every law, decided on demand and written down.
// File: {"schema":"attest.claims/1","seed":...,"claims":[{id, source, statement, verdict, evidence, corrected?, instead?}]}.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "proofs/engine.hpp"

namespace attest {

// Every claim, sorted by id.
const std::vector<Claim>& all_claims();
// Those whose id matches a glob of * and ?.
std::vector<const Claim*> claims_matching(const std::string& glob);

struct Entry {
  const Claim* claim = nullptr;
  Decision decision;
  std::optional<Decision> corrected, instead;
  struct ControlResult {
    std::string name;
    Decision decision;
  };
  std::vector<ControlResult> controls;
  double seconds = 0;
  bool decided() const;
};

struct LedgerOptions : EngineOptions {
  bool controls = false;  // decide the controls too
  int threads = 0;        // 0: as many as the machine has
  std::function<void(std::size_t done, std::size_t of, const Claim& last)> progress;
};
std::vector<Entry> decide_claims(const std::vector<const Claim*>& claims, const LedgerOptions& options);

nlohmann::ordered_json ledger_json(const std::vector<Entry>& entries, std::uint64_t seed);
// "272 shapes x 2, degree 67, 2^-109" or "T=3 d=1 dv=1: 4 against 2".
std::string summary(const Decision& decision);

// For a refuted claim, indented lines: what was claimed and in which paper, the counterexample, the corrected statement and what the
// printed formula computes instead, where that is known. Empty for any other.
std::string explain(const Entry& entry);

// The sources of claims; each file of proofs/claims has one.
void append_all_laws(std::vector<Claim>& list);
void append_hla2_claims(std::vector<Claim>& list);
void append_ahla_claims(std::vector<Claim>& list);
void append_hla3_claims(std::vector<Claim>& list);
void append_log_linear_claims(std::vector<Claim>& list);
void append_delta_claims(std::vector<Claim>& list);
void append_composition_claims(std::vector<Claim>& list);
void append_backward_claims(std::vector<Claim>& list);
void append_softmax_claims(std::vector<Claim>& list);

}  // namespace attest
