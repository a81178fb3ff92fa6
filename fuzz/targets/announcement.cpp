// Bytes as the announcement of a process or a plug-in: refused, or kernels whose names, operators, forms and contracts
// are such that they can be asked and recorded.
#include "gpu_checks/adapters/announcement.hpp"

#include <set>

#include "fuzz/targets/target.hpp"
#include "gpu_checks/adapters/reply.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

void examine(const Announced& announced) {
  const Kernel& kernel = announced.kernel;
  require(!kernel.name.empty() && kernel.name.size() <= 100, "a name that cannot be printed");
  const Declaration& declaration = operator_named(kernel.op, kernel.variant).declaration();
  require(form_text(declaration, kernel.how) == kernel.form, "the form is not that of its evaluation");
  require(to_text(parse_contract(to_text(kernel.contract))) == to_text(kernel.contract), "the contract");
  (void)not_offered(kernel, Problem{});
}

void read(std::string_view text) {
  nlohmann::json message;
  try {
    message = read_hello(text);
  } catch (const Misbehaved& fault) {
    require_one_line(fault.what);
    return;
  }
  accepted([&] {
    require(announced_sha256(message, "--process x").size() % 64 == 0, "a SHA-256 of another length");
  });
  accepted([&] {
    std::set<std::string> names;
    for (const Announced& announced : read_announcement(message, "--process x", "")) {
      require(names.insert(announced.kernel.name).second, "a name twice");
      examine(announced);
    }
    require(!names.empty(), "an announcement without a kernel");
  });
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  attest::read(attest::text_of(bytes, size));
  return 0;
}
