// Bytes as what a user types: a line for --shape, then entries for --option, one a line, for every operator. What is
// taken is written as text that reads the same.
#include <vector>

#include "fuzz/targets/target.hpp"
#include "reference/cases/case.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/operator.hpp"

namespace attest {
namespace {

void shape(std::string_view line) {
  Case c;
  if (!accepted([&] { set_from_list(c, line, "--shape"); })) return;
  c.op = "hla2";
  const std::string text = to_text(c);
  require(accepted([&] { require(to_text(parse_case(text)) == text, "--shape is another case: " + text); }),
          "--shape makes a case line that is refused: " + text);
}

std::vector<std::string> words_between_spaces(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void options_of(const Declaration& declaration, const std::vector<std::string>& entries) {
  Options options;
  if (!accepted([&] { options = parse_options(declaration, entries); })) return;
  const std::string text = to_text(options);
  require(accepted([&] {
            require(to_text(parse_options(declaration, words_between_spaces(text))) == text,
                    "other options are read from " + text);
          }),
          "refuses its own options: " + text);
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  std::string_view text = text_of(bytes, size);
  shape(take_line(text));
  std::vector<std::string> entries;
  while (!text.empty() && entries.size() < 16) entries.emplace_back(take_line(text));
  for (const Operator* op : all_operators()) options_of(op->declaration(), entries);
  return 0;
}
