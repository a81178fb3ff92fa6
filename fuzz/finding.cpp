#include "fuzz/finding.hpp"

#include <fmt/format.h>

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

std::string cause_of(const std::string& op, Question question, const std::string& part,
                     const std::string& cell) {
  return fmt::format("{} {} {}: {}", op, question_name(question), part, cell);
}

bool repeats(const Finding& finding) { return !finding.after.starts_with(does_not_repeat); }

bool same_cause(const Finding& a, const Finding& b) {
  if (a.cause == b.cause) return true;
  const std::string broke = way_of_breaking(a.reason);
  if (!broke.empty()) return broke == way_of_breaking(b.reason);
  return without_question(a.shrunk) == without_question(b.shrunk);
}

std::string others_words(const Finding& finding) {
  return fmt::format(
      "{} more of this cause{}", finding.duplicates,
      finding.unseen > 0 ? fmt::format(", {} of them not looked at closely", finding.unseen) : "");
}

bool better(const Finding& a, const Finding& b) {
  return repeats(a) != repeats(b) ? repeats(a) : smaller(a.shrunk, b.shrunk);
}

bool smaller(const FuzzInput& a, const FuzzInput& b) { return size_of(a) < size_of(b); }

}  // namespace attest
