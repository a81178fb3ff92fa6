// A kill matrix as a document (schema attest.kill_matrix/1), so that parts of it can be joined and printed again:
// {"schema", "effort", "seed", "mutants": [{"mutant", "checks": {NAME: VERDICT}, "rules": {NAME: {"ordinary": ACCEPTS,
// "everywhere": ACCEPTS}}}]}. Reasons and times are not kept.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "gpu_checks/mutants/kill_matrix.hpp"

namespace attest {

inline constexpr const char* kill_matrix_schema = "attest.kill_matrix/1";

nlohmann::ordered_json matrix_json(const KillMatrix& matrix);
// BadInput, beginning with `where`, for a mutant, a check, a rule or a verdict that this program does not know.
KillMatrix read_matrix(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace attest
