#include "fuzz/ask.hpp"

#include <cmath>
#include <new>

#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/laws.hpp"

namespace attest {
namespace {

// The running bound of the final states costs more than this many entries are worth.
constexpr Index most_state_work = 1500;
constexpr Index widest_chunk =
    1024;  // that the check width, of two chunks more than 65,536 tokens, is asked about

bool judges_states(const Problem& problem) {
  return problem.sequences() * problem.heads * problem.tokens * problem.key_dim *
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

void ask_again(const BatteryContext& context, const FuzzInput& input, Problem& problem, Findings& findings) {
  Case longer = input.shape;
  longer.tokens = *longer.tokens + 7, longer.seed += 2, longer.packed.clear();
  const auto first = watched_call(context, problem, findings);
  if (!first) return;
  Problem other = drawn(context, longer);
  watched_call(context, other, findings);
  const auto second = watched_call(context, problem, findings);
  if (!second) return;
  Tensors again = *second;
  findings.exact(problem, again, same_nan(again, *first));
  if (!findings.failed()) judge_value(context, problem, *second, findings);
}

// The same Problem object, so the same addresses, first with other data (and another decay, where there is the option).
void ask_new_data(const BatteryContext& context, const FuzzInput& input, Problem& problem,
                  Findings& findings) {
  Case other = fitted(context, input.shape);
  other.seed += 2;
  const Tensors fields = problem.fields;
  const Options options = problem.options;
  for (const auto& [name, tensor] : drawn(context, other).fields)
    std::copy(tensor.data.begin(), tensor.data.end(), problem.fields.at(name).data.begin());
  watched_call(context, problem, findings);
  const auto restore = [&] {
    for (const auto& [name, tensor] : fields)
      std::copy(tensor.data.begin(), tensor.data.end(), problem.fields.at(name).data.begin());
  };
  restore();
  if (problem.options.decay) {
    problem.options.decay = *options.decay == Rational(1) ? Rational(1) / 2 : Rational(1);
    watched_call(context, problem, findings);
    restore();
  }
  problem.options = options;
  ask_value(context, problem, findings);
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
  if (is_lattice(question)) return no_lattice(context);
  if (question == Question::again && !context.has("deterministic"))
    return "the kernel is not declared deterministic";
  if (question == Question::gradient) return gradient_check.cannot_run(context);
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
