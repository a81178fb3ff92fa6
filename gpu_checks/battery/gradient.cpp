// gradient: the gradients of a backward kernel on small integers.
// Law: where every value and every cotangent, summed by absolute values, stays within the integers that each format of
// the contract holds (certified on the reverse tape over Magnitude, by the kernel's form and by the stream), every
// correct backward gives the derivatives of <o, do> + <final states, their cotangents> themselves, bit for bit, in any
// order and chunking. Log-gates are 0 or closed (exp(g) is 0), so that their gradients are integers too. Inputs: two batch
// entries with an initial state, a cotangent of the final state and a scale; shared heads; packed sequences; a ridge; three
// chunks; wide heads; linear gates; decays 1 and 0 by head.
// Every one is asked twice: the second call finds what the first left in its buffers. Outputs: every gradient, bitwise.
// Not asked: normalised outputs, gates and decays between 0 and 1 (no integers), the gradient of the decay, and how a
// kernel rounds gradients (nothing is rounded here).
// Must kill: faults of backward kernels (family 12).
// Source: reference/forms/gradient.hpp for the truth.
#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/gradient_lattice.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

std::string cannot_run(const BatteryContext& context) {
  if (!context.has("backward")) return "the kernel computes no gradients";
  return no_lattice(context);
}

// The tokens from `start` on, continued from the exact state of those before.
Problem after(const BatteryContext& context, const Problem& whole, Index start) {
  if (start == 0) return whole;
  Arithmetic<double> exact;
  const Tensors before = run<double>(context.op, token_range(whole, 0, start), {Form::stream, 0, 0}, exact);
  return continued_from(token_range(whole, start, whole.tokens), before, context.declaration(),
                        std::vector<Index>(static_cast<std::size_t>(whole.batch), start));
}

struct Asked {
  Index start = 0;               // tokens before those of the problem
  bool final_cotangents = true;  // where the kernel gives final states
  bool linear_gates = false;     // alpha in the place of g
  bool decays = false;           // 1 and 0 by head in the place of 1
};

// None when no certificate is found.
std::optional<Problem> draw(const BatteryContext& context, Case shape, const Asked& asked, Random& random) {
  const Declaration& d = context.declaration();
  shape = fitted(context, shape);
  shape.recipe = "sparse", shape.gates = "none";
  if (d.decay && !asked.decays) shape.options.decay = Rational(1);
  *shape.tokens += asked.start;
  Problem form = draw_problem(shape, d);
  if (asked.decays) form.fields["decay"] = {{form.heads}, decays_by_head(context, form.heads)};
  for (int attempt = 0; attempt < 8; ++attempt) {
    const GradientDraw how{attempt, static_cast<Index>(random.below(4096))};
    Problem whole = form;
    draw_gradient_lattice(context, how, asked.start, whole, random);
    Problem problem = after(context, whole, asked.start);
    if (asked.final_cotangents && context.has("final_state"))
      draw_final_cotangents(context, how, problem, random);
    if (asked.linear_gates) problem = with_linear_gates(std::move(problem));
    if (is_gradient_certified(context, problem)) return problem;
  }
  return std::nullopt;
}

void one(const BatteryContext& context, const Case& shape, const Asked& asked, Random& random,
         Findings& findings) {
  findings.input("gradient, lattice " + short_text(fitted(context, shape)) +
                 (asked.start > 0 ? " with an initial state" : ""));
  const auto problem = draw(context, shape, asked, random);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  const auto expected = lattice_gradients(context, *problem);
  if (!expected) return findings.leave_out("the gradients are no integers");
  for (int calls = 0; calls < 2; ++calls)
    if (const auto outputs = call(context, *problem, findings)) findings.exact(*problem, *outputs, *expected);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "gradient");
  const Index c = std::min<Index>(context.chunk(), 128);
  const Declaration& d = context.declaration();
  const bool stateful = context.has("initial_state") && !d.moments.empty();
  const auto ask = [&](const Case& shape, const Asked& asked) {
    one(context, shape, asked, random, findings);
  };
  for (Index round = 0; round < context.many(1, 6); ++round) {
    Case shape;
    shape.seed = random.bits() >> 1;
    shape.tokens = 2 * c + 3 + round, shape.key_dim = 5, shape.value_dim = 3, shape.heads = 2,
    shape.batch = 2;
    if (d.unit_scale) shape.options.scale = Rational(2);
    ask(shape, {.start = stateful ? 3 : 0});
    shape.options = {};
    if (d.ridge) shape.options.ridge = Rational(2);
    shape.tokens = c + 2 + round, shape.heads = 4, shape.key_dim = 3, shape.value_dim = 4;
    if (context.has("grouped")) shape.heads_q = round % 2 ? 2 : 4, shape.heads_k = shape.heads_v = 2;
    ask(shape, {.final_cotangents = false});
    shape.heads_q = shape.heads_k = shape.heads_v = 0, shape.options = {};
    shape.heads = 1, shape.batch = 1, shape.key_dim = 5, shape.value_dim = 3;
    shape.tokens = context.at_most(std::max<Index>(3 * c + 2, 133));  // three chunks, and beyond tiles of 64
    ask(shape, {});
    shape.tokens = 9 + round, shape.key_dim = 70, shape.value_dim = 67;
    ask(shape, {});
    shape.tokens = c + 1, shape.key_dim = 4, shape.value_dim = 3, shape.heads = 2;
    if (d.gates) ask(shape, {.linear_gates = true});
    if (d.decay) ask(shape, {.decays = true});
    if (!context.has("varlen")) continue;
    shape.tokens = 2 * c + 4, shape.packed = {0, 3, c + 5, c + 5, 2 * c + 4};
    ask(shape, {});
  }
  return findings.outcome();
}

}  // namespace

const BatteryCheck gradient_check{
    "gradient", "bitwise", "certified integers have one gradient in any order of evaluation", "12", false,
    cannot_run, run};

}  // namespace attest
