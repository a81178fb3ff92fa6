// Bytes as a case line: what is read is written as a line that reads the same, and its inputs, where they are few, are
// drawn in the shapes that the line says.
#include "fuzz/targets/target.hpp"
#include "reference/cases/case.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/operator.hpp"

namespace attest {
namespace {

bool small(const Case& c) {
  return c.drawn() && *c.tokens <= 64 && c.key_dim <= 8 && c.value_dim <= 8 && c.heads <= 8 && c.batch <= 4;
}

void draw_it(const Case& c) {
  const Declaration& declaration = operator_named(c.op, c.variant).declaration();
  const Problem problem = draw_problem(c, declaration);
  for (const auto& [name, tensor] : problem.fields)
    require(element_count(tensor.shape) == static_cast<Index>(tensor.data.size()), "the shape of " + name);
  require(problem.fields.at("q").shape ==
              std::vector<Index>{c.batch, *c.tokens, c.heads_q ? c.heads_q : c.heads, c.key_dim},
          "the shape of q is not that of the line");
  (void)slots(problem);
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  Case c;
  if (!accepted([&] { c = parse_case(text_of(bytes, size)); })) return 0;
  const std::string line = to_text(c);
  std::string again;
  require(accepted([&] { again = to_text(parse_case(line)); }), "refuses its own line: " + line);
  require(again == line, "reads another case from its own line: " + line);
  if (small(c)) accepted([&] { draw_it(c); });
  return 0;
}
