// Bytes as what a kernel says about its arithmetic: a line with its precision contract, one with its form, one with its
// limits. What is taken is written as text that reads the same.
#include "reference/tensor/contract.hpp"

#include "fuzz/targets/target.hpp"
#include "gpu_checks/adapters/announcement.hpp"

namespace attest {
namespace {

void contract(std::string_view line) {
  std::string text;
  if (!accepted([&] { text = to_text(parse_contract(line)); })) return;
  require(accepted([&] {
            require(to_text(parse_contract(text)) == text, "another contract is read from " + text);
          }),
          "refuses its own contract: " + text);
}

void form(std::string_view line, const Declaration& declaration) {
  std::string text;
  if (!accepted([&] { text = form_text(declaration, parse_form(line, declaration)); })) return;
  require(accepted([&] {
            require(form_text(declaration, parse_form(text, declaration)) == text,
                    "another form is read from " + text);
          }),
          "refuses its own form: " + text);
}

void limits(std::string_view line) {
  Problem problem;
  problem.batch = problem.tokens = problem.heads = problem.key_dim = problem.value_dim = 4;
  problem.fields["g"] = {{1, 2, 1}, {-1, -2}};
  accepted([&] { require(printable(outside_limits(line, problem), 10000).size() < 10000, "a long reason"); });
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  std::string_view text = text_of(bytes, size);
  contract(take_line(text));
  const std::string_view line = take_line(text);
  for (const Operator* op : all_operators()) form(line, op->declaration());
  limits(take_line(text));
  return 0;
}
