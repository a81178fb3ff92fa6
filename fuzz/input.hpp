// An input of the hunter: what a kernel is asked (fuzz/ask.hpp), and the problem that it is asked about:
//   shape    a case line: operator, sizes, options, recipe, gates, seed
//   before   every sequence continues the state of so many tokens, drawn alike with the next seed
//   powers   q, k, v drawn times 2^n
//   linear_gates  alpha = exp(g) in the place of g
//   edits    single values put in the place of the drawn ones; with `zeros`, in the place of zeros
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_checks/battery/battery.hpp"
#include "reference/cases/case.hpp"

namespace attest {

enum class Question {
  value,
  lattice,
  loud_lattice,
  again,
  lattice_again,
  new_data,
  separate,
  strided,
  containment,
  gradient,
  width
};
inline constexpr Question all_questions[] = {
    Question::value,         Question::lattice,  Question::loud_lattice, Question::again,
    Question::lattice_again, Question::new_data, Question::separate,     Question::strided,
    Question::containment,   Question::gradient, Question::width};

std::string_view question_name(Question question);
std::optional<Question> question_named(std::string_view name);
// Certified integers, compared bit by bit.
bool is_lattice(Question question);
// What the same input is asked in one call alone; none: it is one call, or is about several.
std::optional<Question> single_question(Question question);
// A whole check of the battery, which draws its own inputs from the seed: nothing to edit or to shrink.
bool is_battery(Question question);

struct ValueEdit {
  std::string field;  // "k", or "before.k" of the tokens before
  std::vector<Index>
      index;  // as the field's shape: [b,t,h,column] of q, k, v, do, [b,t,h] of g, beta, [h] of decay
  double value = 0;
};

struct FuzzInput {
  Question question = Question::value;
  Case shape;
  Index before = 0;
  std::map<std::string, int> powers;
  bool linear_gates = false;
  bool zeros = false;
  std::vector<ValueEdit> edits;
};

// Level scales of a token at position before + tokens - 1, the largest: bit_length of it, and the diagonal.
Index levels_of(Index tokens, Index before);

// What its tensors take as doubles, inputs and states together.
double bytes_of(const FuzzInput& input, const Declaration& declaration);

// The problem as the kernel sees it; none, and why, where the question has no such problem (no certificate).
struct Built {
  std::optional<Problem> problem;
  std::string why_not;
};
Built build(const BatteryContext& context, const FuzzInput& input);

// Adds every value of the tensor that is not 0.
void spell(const Tensor& tensor, const std::string& field, std::vector<ValueEdit>& edits);
// The same problem as zeros and single values, every one that is not 0.
FuzzInput spelled_out(const BatteryContext& context, const FuzzInput& input);

}  // namespace attest
