#include "fuzz/ask.hpp"

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

// The same Problem object, so the same addresses, asked with other data (and another decay, where there is the option),
// after which it is as it was.
void call_with_other_data(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                          Findings& findings) {
  Case other = fitted(context, input.shape);
  other.seed += 2;
  const Tensors fields = problem.fields;
  const Options options = problem.options;
  const auto fill = [&](const Tensors& from) {
    for (const auto& [name, tensor] : from)
      if (const auto field = problem.fields.find(name); field != problem.fields.end())
        std::copy_n(tensor.data.begin(), std::min(tensor.data.size(), field->second.data.size()),
                    field->second.data.begin());
  };
  fill(drawn(context, other).fields);
  watched_call(context, problem, findings);
  fill(fields);
  if (findings.failed()) return;
  if (!options.decay || has_no_decay(context) || context.kernel.without_decay) return;
  problem.options.decay = *options.decay == Rational(1) ? Rational(1) / 2 : Rational(1);
  watched_call(context, problem, findings);
  problem.options = options;
  fill(fields);
}

void call_longer(const BatteryContext& context, const FuzzInput& input, Findings& findings) {
  Case longer = input.shape;
  longer.tokens = size_within(context.kernel, "t", *longer.tokens + 7);
  longer.seed += 2, longer.packed.clear();
  Problem other = drawn(context, longer);
  watched_call(context, other, findings);
}

void ask_again(const BatteryContext& context, const FuzzInput& input, Problem& problem, Findings& findings) {
  call_with_other_data(context, input, problem, findings);
  if (findings.failed()) return;  // a kernel that hangs need not do so at every call
  const auto first = watched_call(context, problem, findings);
  if (!first) return;
  call_longer(context, input, findings);
  const auto second = watched_call(context, problem, findings);
  if (!second) return;
  Tensors again = *second;
  findings.exact(problem, again, same_nan(again, *first));
  if (!findings.failed()) judge_value(context, problem, *second, findings);
}

void ask_lattice_again(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                       Findings& findings) {
  const Tensors expected = lattice_outputs(context, problem);
  call_with_other_data(context, input, problem, findings);
  for (int calls = 0; calls < 3 && !findings.failed(); ++calls) {
    if (calls == 1) call_longer(context, input, findings);
    if (const auto outputs = watched_call(context, problem, findings))
      findings.exact(problem, *outputs, expected);
  }
}

void ask_new_data(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                  Findings& findings) {
  call_with_other_data(context, input, problem, findings);
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
