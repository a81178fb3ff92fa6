// What a kernel behind a door says about itself, checked: everything that cannot be is refused in one line (BadInput)
// before any case is run. The same members come from a plug-in (attest_kernel.h) and a process (PROTOCOL.md).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_checks/kernel.hpp"

namespace attest {

// "chunk c=64 algebra=direct" as an evaluation of that operator.
Evaluation parse_form(std::string_view text, const Declaration& declaration);

// The kernels of {"kernels": [{"name", "op", "variant", "form", "contract", "features", "limits"}, ...]} whose names
// match the glob, without `run`; `place` (`--plugin "./libmine.so"`) begins every message. An unset member is its default.
struct Announced {
  Kernel kernel;
  std::size_t index = 0;  // among all that were announced
  bool on_cuda = false;
};
std::vector<Announced> read_announcement(const nlohmann::json& message, const std::string& place,
                                         std::string_view glob);

bool has_feature(const Kernel& kernel, std::string_view feature);
// Empty, or why the kernel cannot be asked to compute this: a feature that it does not declare, its limits.
std::string not_offered(const Kernel& kernel, const Problem& problem);

// A tensor on its way to or from a kernel. Whole numbers (cu_seqlens, positions) travel as 64-bit integers.
struct Passed {
  std::string name;
  Format format = fp64;
  bool integer = false;
  std::vector<Index> shape;
  const std::vector<double>* values = nullptr;  // of inputs
  std::size_t element_bytes() const { return integer ? 8 : format == fp64 ? 8 : format.width <= 16 ? 2 : 4; }
};
std::vector<Passed> inputs_of(const Kernel& kernel, const Problem& problem, std::vector<double>& cu_seqlens);
std::vector<Passed> outputs_of(const Kernel& kernel, const Problem& problem);

void write_element(const Passed& tensor, double value, std::byte* at);
double read_element(const Passed& tensor, const std::byte* at);

// {"decay": {"text": "3/4", "value": 0.75}}: what differs from the defaults.
nlohmann::json options_of(const Problem& problem);

}  // namespace attest
