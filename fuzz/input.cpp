#include "fuzz/input.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/gradient_lattice.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

constexpr std::string_view names[] = {"value",         "lattice",  "loud_lattice", "again",
                                      "lattice_again", "new_data", "separate",     "strided",
                                      "containment",   "gradient", "width"};
constexpr std::string_view before_prefix = "before.", final_prefix = "dfinal_state.";

// The place of an edit in the tensor; none where the problem has no such place.
std::optional<std::size_t> place_of(const Tensor& tensor, const std::vector<Index>& index) {
  if (index.size() != tensor.shape.size()) return std::nullopt;
  Index flat = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= tensor.shape[axis]) return std::nullopt;
    flat = flat * tensor.shape[axis] + index[axis];
  }
  return static_cast<std::size_t>(flat);
}

void apply(const std::vector<ValueEdit>& edits, bool before, Problem& problem) {
  for (const ValueEdit& edit : edits) {
    std::string_view name = edit.field;
    if (name.starts_with(before_prefix) != before) continue;
    if (before) name.remove_prefix(before_prefix.size());
    const auto field = problem.fields.find(std::string(name));
    if (field == problem.fields.end()) continue;
    if (const auto place = place_of(field->second, edit.index)) field->second.data[*place] = edit.value;
  }
}

// Levels that only positions after other tokens have: drawn like the others.
void widen_levels(const FuzzInput& input, const Case& shape, Index levels, Problem& problem) {
  const auto field = problem.fields.find("level_scales");
  if (field == problem.fields.end() || problem.levels >= levels) return;
  Tensor& narrow = field->second;
  std::vector<Index> sizes = narrow.shape;
  sizes[3] = levels;
  Tensor wide = draw_gate(*find_gate_recipe(shape.gates), "level_scales", sizes, shape.seed);
  Random random(shape.seed, "levels");
  constexpr double whole[] = {1, 0, -1, 2};
  for (std::size_t i = 0; i < wide.data.size(); ++i) {
    const Index row = static_cast<Index>(i) / levels, level = static_cast<Index>(i) % levels;
    if (level < problem.levels)
      wide.data[i] = narrow.data[static_cast<std::size_t>(row * problem.levels + level)];
    else if (is_lattice(input.question))
      wide.data[i] = whole[random.below(4)];
  }
  narrow = std::move(wide);
  problem.levels = levels;
}

// Certified integers; none without a certificate.
std::optional<Problem> lattice_part(const BatteryContext& context, const FuzzInput& input,
                                    const Case& shape) {
  Random random(shape.seed, "lattice");
  const bool loud = input.question == Question::loud_lattice;
  const Index most_active = loud ? 3 : input.before > 0 ? 4 : 1 << 20;
  auto drawn = draw_lattice(context, shape, random, {}, most_active);
  return drawn && loud ? made_louder(context, std::move(*drawn), random) : drawn;
}

// Integers with the cotangent `do`, certified where the parts are joined.
Problem gradient_part(const BatteryContext& context, const FuzzInput& input, const Case& shape, int attempt) {
  Case form = shape;
  form.recipe = "sparse", form.gates = "none";
  Problem problem = draw_problem(form, context.declaration());
  if (problem.field("decay")) problem.fields["decay"].data = decays_by_head(context, problem.heads);
  Random random(shape.seed, "gradient");
  draw_gradient_lattice(context, {attempt, static_cast<Index>(input.shape.seed % 4096)}, 0, problem, random);
  return problem;
}

Problem scaled_part(const BatteryContext& context, const FuzzInput& input, const Case& shape) {
  Problem problem = draw_problem(shape, context.declaration());
  for (const auto& [name, power] : input.powers)
    for (double& x : problem.fields.at(name).data) x = std::ldexp(x, power);
  return problem;
}

// The tokens of one call, drawn or zero, and edited.
std::optional<Problem> part(const BatteryContext& context, const FuzzInput& input, const Case& shape,
                            bool before, int attempt) {
  std::optional<Problem> drawn;
  if (input.question == Question::gradient)
    drawn = gradient_part(context, input, shape, attempt);
  else if (is_lattice(input.question) && !input.zeros)
    drawn = lattice_part(context, input, shape);
  else
    drawn = scaled_part(context, input, shape);
  if (!drawn) return std::nullopt;
  Problem problem = std::move(*drawn);
  if (!before) widen_levels(input, shape, levels_of(*shape.tokens, input.before), problem);
  if (input.zeros)
    for (auto& [name, tensor] : problem.fields) std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
  apply(input.edits, before, problem);
  return round_inputs(context.kernel.contract, std::move(problem));
}

Case shape_before(const FuzzInput& input, const Case& shape, const Problem& problem) {
  Case earlier = shape;
  earlier.tokens = input.before, earlier.batch = problem.sequences(), earlier.packed.clear();
  ++earlier.seed;
  return earlier;
}

std::optional<Problem> part_before(const BatteryContext& context, const FuzzInput& input, const Case& shape,
                                   const Problem& problem, int attempt) {
  auto earlier = part(context, input, shape_before(input, shape, problem), true, attempt);
  if (!earlier) return std::nullopt;
  if (problem.field("decay")) earlier->fields["decay"] = *problem.field("decay");
  earlier->fields.erase("do");
  return earlier;
}

Problem continued(const BatteryContext& context, const Problem& problem, const Problem& earlier, bool exact) {
  Tensors states;
  Arithmetic<double> plain;
  if (exact)
    states = lattice_outputs(context, earlier);
  else if (!context.declaration().gates)  // exp() is not the same everywhere
    states = run<double>(context.op, earlier, {Form::stream, 0, 0}, plain);
  else
    for (const auto& [name, tensor] : truth_of(context.op, earlier)->result.tensors)
      states[name] = {tensor.shape, tensor.value};
  const std::vector<Index> consumed(static_cast<std::size_t>(problem.sequences()), earlier.tokens);
  return round_inputs(context.kernel.contract,
                      continued_from(problem, states, context.declaration(), consumed));
}

bool has_certificate(const BatteryContext& context, const Problem& problem,
                     const std::optional<Problem>& earlier) {
  if (!earlier) return is_certified(context, problem);
  const Declaration& d = context.declaration();
  return is_certified(context, *earlier) &&
         is_certified(context, continued(context, by_size(d, problem), by_size(d, *earlier), true));
}

struct Parts {
  Problem own;                     // the tokens of the call
  std::optional<Problem> earlier;  // those whose state it continues
  std::optional<Problem> joined;   // the call, where it continues one
  Problem& call() { return joined ? *joined : own; }
};

// The cotangents of the final states, drawn or as the edits say.
void put_final_cotangents(const BatteryContext& context, const FuzzInput& input, int attempt,
                          Problem& problem) {
  if (!context.has("final_state")) return;
  const auto first = std::find_if(input.edits.begin(), input.edits.end(),
                                  [](const ValueEdit& e) { return e.field.starts_with(final_prefix); });
  if (input.zeros && first == input.edits.end()) return;
  Random random(input.shape.seed, "final cotangents");
  if (!input.zeros && random.one_in(3)) return;
  draw_final_cotangents(context, {attempt, 0}, problem, random);
  if (!input.zeros) return;
  for (auto& [name, tensor] : problem.fields)
    if (name.starts_with(final_prefix)) std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
  apply({first, input.edits.end()}, false, problem);
}

// None without a certificate.
std::optional<Parts> parts_of(const BatteryContext& context, const FuzzInput& input, const Case& shape,
                              int attempt) {
  Parts parts;
  auto own = part(context, input, shape, false, attempt);
  if (!own) return std::nullopt;
  parts.own = std::move(*own);
  const bool stateful =
      input.before > 0 && context.has("initial_state") && !context.declaration().moments.empty();
  if (stateful && !(parts.earlier = part_before(context, input, shape, parts.own, attempt)))
    return std::nullopt;
  const bool exact = is_lattice(input.question), gradient = input.question == Question::gradient;
  // What was drawn and not edited is certified.
  const bool certified = !input.zeros && input.edits.empty() && !parts.earlier && !gradient;
  if (exact && !gradient && !certified && !has_certificate(context, parts.own, parts.earlier))
    return std::nullopt;
  if (gradient && parts.earlier && !is_certified(context, *parts.earlier)) return std::nullopt;
  if (parts.earlier) parts.joined = continued(context, parts.own, *parts.earlier, exact);
  if (!gradient) return parts;
  put_final_cotangents(context, input, attempt, parts.call());
  if (!is_gradient_certified(context, parts.call())) return std::nullopt;
  return parts;
}

std::optional<Parts> parts_of(const BatteryContext& context, const FuzzInput& input, const Case& shape) {
  const int attempts = input.question == Question::gradient && !input.zeros ? 8 : 1;
  for (int attempt = 0; attempt < attempts; ++attempt)
    if (auto parts = parts_of(context, input, shape, attempt)) return parts;
  return std::nullopt;
}

}  // namespace

std::string_view question_name(Question question) { return names[static_cast<int>(question)]; }

std::optional<Question> question_named(std::string_view name) {
  for (const Question question : all_questions)
    if (question_name(question) == name) return question;
  return std::nullopt;
}

bool is_lattice(Question question) {
  return question == Question::lattice || question == Question::loud_lattice ||
         question == Question::lattice_again || question == Question::gradient;
}

Index levels_of(Index tokens, Index before) {
  return std::bit_width(static_cast<std::uint64_t>(std::max<Index>(tokens + before - 1, 0))) + 1;
}

std::optional<Question> single_question(Question question) {
  if (question == Question::lattice_again) return Question::lattice;
  const bool several =
      question == Question::again || question == Question::new_data || question == Question::separate;
  return several ? std::optional(Question::value) : std::nullopt;
}

double bytes_of(const FuzzInput& input, const Declaration& declaration) {
  const Case& c = input.shape;
  const auto whole = [](Index n) { return static_cast<double>(n); };
  const double sequences = c.packed.empty() ? whole(c.batch) : whole(std::ssize(c.packed)) - 1;
  const double rows = (whole(*c.tokens) * whole(c.batch) + whole(input.before) * sequences) * whole(c.heads);
  const double columns = 2 * whole(c.key_dim) + 2 * whole(c.value_dim) + 2,
               levels = declaration.level_scales ? 24 : 1;
  const double state = whole(c.key_dim) * (whole(c.key_dim) + whole(c.value_dim));
  return 8 * (rows * (columns + levels) + sequences * whole(c.heads) * levels * state);
}

bool is_battery(Question question) { return question == Question::width; }

Built build(const BatteryContext& context, const FuzzInput& input) {
  auto parts = parts_of(context, input, fitted(context, input.shape));
  if (parts && input.linear_gates)
    return {round_inputs(context.kernel.contract, with_linear_gates(std::move(parts->call()))), {}};
  if (parts) return {std::move(parts->call()), {}};
  const bool edited = input.zeros || !input.edits.empty();
  return {{}, edited ? "not exact in this contract" : "no certified lattice input of this shape"};
}

void spell(const Tensor& tensor, const std::string& field, std::vector<ValueEdit>& edits) {
  for (std::size_t i = 0; i < tensor.data.size(); ++i) {
    if (tensor.data[i] == 0) continue;
    ValueEdit edit{field, std::vector<Index>(tensor.shape.size()), tensor.data[i]};
    auto flat = static_cast<Index>(i);
    for (std::size_t axis = tensor.shape.size(); axis-- > 0; flat /= tensor.shape[axis])
      edit.index[axis] = flat % tensor.shape[axis];
    edits.push_back(std::move(edit));
  }
}

FuzzInput spelled_out(const BatteryContext& context, const FuzzInput& input) {
  if (input.zeros || is_battery(input.question)) return input;
  FuzzInput spelled = input;
  spelled.shape = fitted(context, input.shape);
  spelled.zeros = true, spelled.powers.clear(), spelled.edits.clear();
  auto parts = parts_of(context, input, spelled.shape);
  if (!parts) return input;
  if (is_lattice(input.question) && parts->own.options.decay)
    spelled.shape.options.decay =
        parts->own.options.decay;  // lattice inputs have none, whatever the case says
  const auto spell_all = [&](const Problem& problem, const std::string& prefix, auto&& wanted) {
    for (const auto& [name, tensor] : problem.fields)
      if (wanted(name)) spell(tensor, prefix + name, spelled.edits);
  };
  const auto of_end = [](const std::string& name) { return name.starts_with(final_prefix); };
  spell_all(parts->own, "", [&](const std::string& name) { return !of_end(name); });
  if (parts->earlier)
    spell_all(*parts->earlier, std::string(before_prefix),
              [](const std::string& name) { return name != "decay"; });
  spell_all(parts->call(), "", of_end);
  return spelled;
}

}  // namespace attest
