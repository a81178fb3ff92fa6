#include "fuzz/ask.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "fuzz/limits.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/gradient_lattice.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/laws.hpp"
#include "gpu_checks/battery/layout.hpp"

namespace attest {
namespace {

// The running bound of the final states costs more than this many entries are worth.
constexpr Index most_state_work = 1500;
constexpr Index widest_chunk =
    1024;  // that the check width, of two chunks more than 65,536 tokens, is asked about

bool judges_states(const Problem& problem) {
  return problem.batch * problem.heads * problem.tokens * problem.key_dim *
             (problem.key_dim + problem.value_dim) <=
         most_state_work;
}

void judge_value(const BatteryContext& context, const Problem& problem, const Tensors& outputs,
                 Findings& findings) {
  if (outputs.size() > 1 && judges_states(problem))
    return judge_outputs_quickly(context, problem, outputs, findings);
  judge_output_quickly(context, problem, outputs.at("o"), findings);
}

void ask_value(const BatteryContext& context, Problem& problem, Findings& findings) {
  if (const auto outputs = watched_call(context, problem, findings))
    judge_value(context, problem, *outputs, findings);
}

void ask_lattice(const BatteryContext& context, Problem& problem, Findings& findings) {
  if (const auto outputs = watched_call(context, problem, findings))
    findings.exact(problem, *outputs, lattice_outputs(context, problem));
}

// `expected`, and 0 in both where both are NaN: what a NaN looks like is no fault.
Tensors same_nan(Tensors& got, Tensors expected) {
  for (auto& [name, tensor] : expected)
    for (std::size_t i = 0; i < tensor.data.size(); ++i)
      if (double& other = got.at(name).data[i]; std::isnan(other) && std::isnan(tensor.data[i]))
        other = tensor.data[i] = 0;
  return expected;
}

bool is_continued(const Problem& problem) {
  return std::ranges::any_of(problem.fields,
                             [](const auto& field) { return field.first.starts_with("initial_state."); });
}

// The calls before and between those that are asked about. One of three, by the seed, is made twice for the same bits (of
// kernels declared deterministic). In full, which costs a bound and an oracle for each: every one within its bound, and of a
// question about integers exact, for which the other data are integers too.
class OtherCalls {
 public:
  OtherCalls(const BatteryContext& context, const FuzzInput& input, Findings& findings)
      : context_(context),
        in_full_(judges_all_calls(input)),
        exact_(in_full_ && is_lattice(input.question)),
        turn_(input.shape.seed % 3),
        shape_(fitted(context, input.shape)),
        findings_(findings) {
    shape_.seed += 2;
  }

  // The same Problem object, so the same addresses, asked with other data (and another decay, where there is the option),
  // after which it is as it was.
  void with_other_data(Problem& problem) {
    const Tensors fields = problem.fields;
    const Options options = problem.options;
    const bool continued = is_continued(problem);
    auto [other, certified] = like_the_question(shape_, continued);
    fill(problem, other.fields);
    if (certified && continued) certified = is_certified(context_, problem);  // with the state
    ask("the same buffers with other data", problem, 0, certified);
    fill(problem, fields);
    if (findings_.failed() || !options.decay || has_no_decay(context_) || context_.kernel.without_decay)
      return;
    const Rational decay = exact_ ? Rational(0) : Rational(1) / 2;  // 0 keeps integers what they are
    problem.options.decay = *options.decay == Rational(1) ? decay : Rational(1);
    ask("the same buffers with another decay", problem, 1, exact_);
    problem.options = options;
    fill(problem, fields);
  }

  void longer() {
    Case shape = shape_;
    shape.tokens = size_within(context_.kernel, "t", *shape.tokens + 7), shape.packed.clear();
    auto [problem, certified] = like_the_question(shape, false);
    ask("a longer call", problem, 2, certified);
  }

 private:
  static void fill(Problem& problem, const Tensors& from) {
    for (const auto& [name, tensor] : from)
      if (const auto field = problem.fields.find(name); field != problem.fields.end())
        std::copy_n(tensor.data.begin(), std::min(tensor.data.size(), field->second.data.size()),
                    field->second.data.begin());
  }
  // And whether it is certified, by itself.
  std::pair<Problem, bool> like_the_question(const Case& shape, bool continued) const {
    if (exact_) {
      Random random(shape.seed, "other integers");
      if (auto integers = draw_lattice(context_, shape, random, {}, continued ? 4 : 1 << 20))
        return {std::move(*integers), true};
    }
    return {drawn(context_, shape), false};
  }
  void ask(const char* words, Problem& problem, std::uint64_t turn, bool certified) {
    findings_.input(words);
    if (const auto outputs = watched_call(context_, problem, findings_))
      judge(problem, *outputs, turn, certified);
    findings_.input("");
  }
  void judge(Problem& problem, const Tensors& outputs, std::uint64_t turn, bool certified) {
    if (certified) return findings_.exact(problem, outputs, lattice_outputs(context_, problem));
    if (in_full_ && !exact_) return judge_value(context_, problem, outputs, findings_);
    if (turn != turn_ || !context_.has("deterministic")) return;
    auto again = watched_call(context_, problem, findings_);
    if (again) findings_.exact(problem, *again, same_nan(*again, outputs));
  }

  const BatteryContext& context_;
  const bool in_full_, exact_;
  const std::uint64_t turn_;
  Case shape_;
  Findings& findings_;
};

void ask_again(const BatteryContext& context, const FuzzInput& input, Problem& problem, Findings& findings) {
  OtherCalls others(context, input, findings);
  others.with_other_data(problem);
  if (findings.failed()) return;  // a kernel that hangs need not do so at every call
  const auto first = watched_call(context, problem, findings);
  if (!first) return;
  others.longer();
  if (findings.failed()) return;
  const auto second = watched_call(context, problem, findings);
  if (!second) return;
  Tensors again = *second;
  findings.exact(problem, again, same_nan(again, *first));
  if (!findings.failed()) judge_value(context, problem, *second, findings);
}

void ask_lattice_again(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                       Findings& findings) {
  const Tensors expected = lattice_outputs(context, problem);
  OtherCalls others(context, input, findings);
  others.with_other_data(problem);
  for (int calls = 0; calls < 3 && !findings.failed(); ++calls) {
    if (calls == 1) others.longer();
    if (findings.failed()) return;
    if (const auto outputs = watched_call(context, problem, findings))
      findings.exact(problem, *outputs, expected);
  }
}

void ask_new_data(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                  Findings& findings) {
  OtherCalls(context, input, findings).with_other_data(problem);
  if (!findings.failed()) ask_value(context, problem, findings);
}

// Rows of the sequence in the outputs of all of them; none where the whole has more levels.
std::optional<Tensor> rows_of_sequence(const Problem& problem, Index sequence, const std::string& name,
                                       const Tensor& whole, const Tensor& alone) {
  const Slot span = slots(problem).at(static_cast<std::size_t>(sequence * problem.heads));
  const bool by_tokens = name == "o" && !problem.cu_seqlens.empty();
  Tensor rows = by_tokens ? token_range(whole, span.first, span.last) : batch_entry(whole, sequence);
  if (rows.shape != alone.shape) return std::nullopt;
  return rows;
}

void ask_separate(const BatteryContext& context, Problem& problem, Findings& findings) {
  const auto together = watched_call(context, problem, findings);
  if (!together) return;
  const bool same_bits = context.has("batch_invariant") && context.has("deterministic");
  for (Index s = 0; s < problem.sequences() && !findings.failed(); ++s) {
    Problem alone = sequence_alone(problem, s);
    if (!outside_limits(context.kernel.limits, alone).empty()) continue;
    const auto outputs = watched_call(context, alone, findings);
    if (!outputs) return;
    for (const auto& [name, tensor] : *outputs) {
      const auto rows = rows_of_sequence(problem, s, name, together->at(name), tensor);
      if (!rows) continue;
      Tensors got{{name, *rows}};
      if (same_bits)
        findings.exact(alone, got, same_nan(got, {{name, tensor}}));
      else if (name == "o")
        judge_pair(context, alone, *rows, tensor, findings);
    }
  }
  if (!findings.failed()) judge_value(context, problem, *together, findings);
}

// Tensors apart in memory.
void ask_strided(const BatteryContext& context, Problem& problem, Findings& findings) {
  Kernel strided = context.kernel;
  strided.run = context.kernel.run_strided;
  ask_value({strided, context.op, context.seed, context.effort}, problem, findings);
}

// Twice: the second call finds what the first left in its buffers.
void ask_gradient(const BatteryContext& context, Problem& problem, Findings& findings) {
  auto expected = lattice_gradients(context, problem);
  if (!expected) return findings.leave_out("the gradients are no integers");
  expected->merge(lattice_outputs(context, problem));
  for (int calls = 0; calls < 2 && !findings.failed(); ++calls)
    if (const auto outputs = watched_call(context, problem, findings))
      findings.exact(problem, *outputs, *expected);
}

CheckOutcome outcome_of_battery(const BatteryContext& context, const FuzzInput& input) {
  const BatteryContext seeded{context.kernel, context.op, input.shape.seed, Effort::quick};
  return run_battery(seeded, question_name(input.question)).at(0).outcome;
}

void ask_one(const BatteryContext& context, const FuzzInput& input, Problem& problem, Findings& findings) {
  switch (input.question) {
    case Question::lattice:
    case Question::loud_lattice:
      return ask_lattice(context, problem, findings);
    case Question::again:
      return ask_again(context, input, problem, findings);
    case Question::lattice_again:
      return ask_lattice_again(context, input, problem, findings);
    case Question::separate:
      return ask_separate(context, problem, findings);
    case Question::strided:
      return ask_strided(context, problem, findings);
    case Question::gradient:
      return ask_gradient(context, problem, findings);
    case Question::new_data:
      return ask_new_data(context, input, problem, findings);
    case Question::containment:
      return judge_containment(context, problem, findings);
    default:
      return ask_value(context, problem, findings);
  }
}

}  // namespace

constexpr std::uint64_t one_in_full = 64;
std::uint64_t judged_in_full(std::uint64_t seed) { return seed / one_in_full * one_in_full; }
bool judges_all_calls(const FuzzInput& input) { return input.shape.seed % one_in_full == 0; }

std::string cannot_ask(const BatteryContext& context, Question question) {
  if (question == Question::gradient) return gradient_check.cannot_run(context);
  if (is_lattice(question)) return no_lattice(context);
  if (question == Question::strided && !context.kernel.run_strided)
    return "the kernel is not declared to take strides";
  if (question == Question::again && !context.has("deterministic"))
    return "the kernel is not declared deterministic";
  if (question == Question::width && context.chunk() > widest_chunk)
    return "two chunks of this kernel are more tokens than are asked about";
  if (question == Question::width) return width_check.cannot_run(context);
  return "";
}

namespace {

Answer ask_and_judge(const BatteryContext& context, const FuzzInput& input) {
  Answer answer;
  if (std::string why = cannot_ask(context, input.question); !why.empty()) {
    answer.outcome.reason = std::move(why);
    return answer;
  }
  if (is_battery(input.question)) {
    answer.outcome = outcome_of_battery(context, input);
    return answer;
  }
  Built built = build(context, input);
  if (!built.problem) {
    answer.outcome.reason = built.why_not;
    return answer;
  }
  Findings findings(context.kernel);
  ask_one(context, input, *built.problem, findings);
  answer.outcome = findings.outcome();
  if (answer.decided()) answer.reached = findings.reached();
  answer.asked = std::move(built.problem);
  return answer;
}

}  // namespace

Answer ask(const BatteryContext& context, const FuzzInput& input) {
  try {
    return ask_and_judge(context, input);
  } catch (const std::bad_alloc&) {
    Answer answer;
    answer.outcome.verdict = Verdict::undecided, answer.outcome.reason = "not enough memory";
    return answer;
  } catch (const AnswerGivenUp&) {
    Answer answer;
    answer.given_up = true, answer.outcome.reason = "not answered before the end of the hunt";
    return answer;
  }
}

bool fails_in(const Answer& answer, std::string_view part) {
  if (!answer.failed()) return false;
  if (!answer.outcome.worst || part == "call") return !answer.outcome.worst && part == "call";
  const std::string outputs = ", " + answer.outcome.places.outputs + ',';
  if (part == "o") return outputs.find(", o,") != std::string::npos;
  return outputs.find(part == "gradients" ? ", d" : ", final_state.") != std::string::npos;
}

std::string failed_part(const Answer& answer) {
  for (const char* part : {"o", "final states", "gradients", "call"})
    if (fails_in(answer, part)) return part;
  return "";
}

}  // namespace attest
