// Problems from files and from tensors in memory, with every check that bad input calls for. Each refusal is one line:
// file, field, what was found, what was expected (BadInput).
// Shorthand for one sequence with one head: q, k, v [T, D], gates and beta [T], level_scales [T, L].
// A field that some operator takes but this one does not is left out and listed in Problem::ignored; a name that no
// operator knows is refused. NaN and infinities in q, k, v, states and cotangents are data.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "reference/operators/common/declaration.hpp"
#include "reference/tensor/problem.hpp"
#include "reference/tensor/safetensors.hpp"

namespace attest {

// The variant by name; refuses unknown names with the list of what there is.
class Operator;
const Operator& operator_named(std::string_view name, std::string_view variant);

// "key=value": normalize, epsilon, ridge, scale, decay; values are exact ("3/4", "0.1" is one tenth).
Options parse_options(const Declaration& declaration, std::span<const std::string> entries);

enum class Cotangents { unused, required };

Problem load_problem(const SafetensorsFile& file, const Declaration& declaration, const Options& options,
                     Cotangents cotangents = Cotangents::unused);

// The same checks on tensors in memory: cu_seqlens and initial_state.position are tensors of whole numbers here.
// `label` stands for the file in messages.
Problem make_problem(Tensors fields, const Declaration& declaration, const Options& options,
                     const std::string& label, Cotangents cotangents = Cotangents::unused);

}  // namespace attest
