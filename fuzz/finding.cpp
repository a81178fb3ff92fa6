#include "fuzz/finding.hpp"

#include <tuple>

#include "fuzz/task.hpp"

namespace attest {
namespace {

// What is spelled out, whichever check asks about it.
std::string without_question(FuzzInput input) {
  input.question = Question::value;
  if (input.zeros) input.shape.seed = 0, input.shape.recipe = "uniform", input.shape.gates = "uniform";
  return to_text(CorpusCase{std::move(input), {}, {}, {}});
}

auto size_of(const FuzzInput& input) {
  const Case& c = input.shape;
  const double tokens = static_cast<double>(*c.tokens) + static_cast<double>(input.before);
  const double rows = tokens * static_cast<double>(c.batch) * static_cast<double>(c.heads);
  std::string text = to_text(CorpusCase{input, {}, {}, {}});
  return std::tuple(rows * static_cast<double>(c.key_dim + c.value_dim), !input.zeros, input.edits.size(),
                    text.size(), std::move(text));
}

}  // namespace

bool same_cause(const Finding& a, const Finding& b) {
  if (a.cause == b.cause) return true;
  const std::string broke = way_of_breaking(a.reason);
  if (!broke.empty()) return broke == way_of_breaking(b.reason);
  return without_question(a.shrunk) == without_question(b.shrunk);
}

bool smaller(const FuzzInput& a, const FuzzInput& b) { return size_of(a) < size_of(b); }

}  // namespace attest
