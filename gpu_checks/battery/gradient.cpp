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
#include "reference/forms/gradient.hpp"

#include <algorithm>
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "gpu_checks/battery/reverse_tape.hpp"

namespace attest {
namespace {

std::string cannot_run(const BatteryContext& context) {
  if (!context.has("backward")) return "the kernel computes no gradients";
  return no_lattice(context);
}

// What every format of the contract holds: nothing is rounded, wherever a kernel stores it.
double largest_integer(const Contract& c) {
  const auto holds = [](const Format& f) {
    return std::min(power_of_two(std::min(f.precision, 50)), f.max_finite());
  };
  return std::min({holds(c.product), holds(c.accumulate) / 2, holds(c.intermediate), holds(c.state),
                   holds(c.gate_sum), holds(c.output)});
}

// The gates' gradient may be computed as a sum of x dx over the tokens after it: that sum is looked at as well.
bool cotangents_fit(const BatteryContext& context, const Problem& problem) {
  const double limit = largest_integer(context.kernel.contract);
  double largest = 0;
  for (const Evaluation& how :
       {context.kernel.how, Evaluation{Form::stream, 0, context.kernel.how.algebra}}) {
    std::map<std::string, std::map<Index, double>> sums;  // over the heads that share a field
    for (const Slot& slot : slots(problem)) {
      double products = 0;
      const auto sum_up = [&](const std::string& name, Index flat, Magnitude dx) {
        const double x = problem.fields.at(name).data[static_cast<std::size_t>(flat)];
        products += std::abs(x) * dx.value();
        largest = std::max(largest, sums[name][flat] += dx.value());
      };
      for (const Magnitude cotangent : reverse<Magnitude>(context.op, problem, slot, how, sum_up))
        largest = std::max(largest, cotangent.value());
      if (context.declaration().gates) largest = std::max(largest, products);
    }
  }
  return largest <= limit;
}

class Drawer {
 public:
  Drawer(const BatteryContext& context, Random& random, int attempt)
      : context_(context), random_(random), attempt_(attempt) {}

  // Active tokens: the ends of every sequence, both sides of the chunk borders after `start`, and a few others.
  void draw(Problem& problem, Index start) {
    for (auto& [name, tensor] : problem.fields)
      if (name != "decay" && name != "cu_seqlens") std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
    problem.fields["do"] = {{problem.batch, problem.tokens, problem.heads, problem.value_dim}, {}};
    problem.fields["do"].data.assign(static_cast<std::size_t>(element_count(problem.fields["do"].shape)), 0);
    for (Index s = 0; s < problem.sequences(); ++s) {
      const Slot span = slots(problem).at(static_cast<std::size_t>(s * problem.heads));
      for (Index t = span.first; t < span.last; ++t) row(problem, span, start, t);
    }
    if (const auto g = problem.fields.find("g"); g != problem.fields.end())
      close_gates(context_, g->second, 12, random_);
  }
  void draw_final_cotangents(Problem& problem) {
    for (const auto& [name, shape] : output_shapes(problem, context_.declaration()))
      if (name != "o") {
        Tensor& tensor = problem.fields['d' + name];
        tensor = {shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0)};
        for (double& x : tensor.data)
          x = random_.one_in(static_cast<std::uint64_t>(4 << attempt_)) ? random_.sign() : 0;
      }
  }

 private:
  void row(Problem& problem, const Slot& span, Index start, Index t) {
    const Index place = t - span.first - start, c = context_.chunk();
    const bool edge = place == 0 || t + 1 == span.last || t == span.first ||
                      (place > 0 && (place % c == 0 || place % c == c - 1));
    const bool active = random_.one_in(static_cast<std::uint64_t>(8 << attempt_)) ||
                        (edge && (attempt_ < 3 || random_.one_in(2)));
    const bool loud = attempt_ < 2;
    hot(problem, "q", span.batch, t, loud ? 2 : 1);
    if (active)
      hot(problem, "k", span.batch, t, loud && (attempt_ == 0 || !context_.declaration().beta) ? 2 : 1);
    if (active) hot(problem, "v", span.batch, t, loud ? 2 : 1);
    if (edge || random_.one_in(static_cast<std::uint64_t>(1 << attempt_)))
      hot(problem, "do", span.batch, t, 1);
    each(problem, "beta", span.batch, t, [&](double& x) { x = random_.one_in(4) ? 0 : 1; });
    constexpr double scales[] = {1, -1, 2, 1, 0, -1};
    each(problem, "level_scales", span.batch, t, [&](double& x) { x = scales[random_.below(6)]; });
  }
  template <class F>
  static void each(Problem& problem, const char* name, Index b, Index t, F&& change) {
    const auto found = problem.fields.find(name);
    if (found == problem.fields.end()) return;
    Tensor& tensor = found->second;
    const Index inner = element_count({tensor.shape.begin() + 2, tensor.shape.end()});
    for (Index i = 0; i < inner; ++i)
      change(tensor.data[static_cast<std::size_t>((b * tensor.shape[1] + t) * inner + i)]);
  }
  // `count` entries +-1 among four of every head.
  void hot(Problem& problem, const char* name, Index b, Index t, Index count) {
    Tensor& tensor = problem.fields.at(name);
    const Index heads = tensor.shape[2], width = tensor.shape[3];
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < count; ++i)
        tensor
            .data[static_cast<std::size_t>(((b * tensor.shape[1] + t) * heads + h) * width +
                                           (first_column_ + static_cast<Index>(random_.below(4))) % width)] =
            random_.sign();
  }

  const BatteryContext& context_;
  Random& random_;
  int attempt_;
  Index first_column_ = static_cast<Index>(random_.below(4096));
};

// The tokens from `start` on, continued from the exact state of those before.
Problem after(const BatteryContext& context, const Problem& whole, Index start) {
  if (start == 0) return whole;
  Arithmetic<double> exact;
  const Tensors before = run<double>(context.op, token_range(whole, 0, start), {Form::stream, 0, 0}, exact);
  return continued_from(token_range(whole, start, whole.tokens), before, context.declaration(),
                        std::vector<Index>(static_cast<std::size_t>(whole.batch), start));
}

// 1, 0, 1 ...; all 1 for a form that has no decay.
std::vector<double> decays_by_head(const BatteryContext& context, Index heads) {
  std::vector<double> decays(static_cast<std::size_t>(heads), 1);
  for (std::size_t h = 1; h < decays.size() && !has_no_decay(context); h += 2) decays[h] = 0;
  return decays;
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
    Drawer drawer(context, random, attempt);
    Problem whole = form;
    drawer.draw(whole, asked.start);
    Problem problem = after(context, whole, asked.start);
    if (asked.final_cotangents && context.has("final_state")) drawer.draw_final_cotangents(problem);
    if (asked.linear_gates) problem = with_linear_gates(std::move(problem));
    if (is_certified(context, problem) && cotangents_fit(context, problem)) return problem;
  }
  return std::nullopt;
}

// The certified gradients. They must be integers: what the interval tape of few bits then gives is a point.
std::optional<Tensors> gradients_of(const BatteryContext& context, const Problem& given) {
  const Problem problem = with_linear_gates(given);
  OracleRequest request;
  request.bits = 64, request.magnitude = false, request.threads = 1;
  Tensors expected;
  for (const auto& [name, tensor] : evaluate_gradient(context.op, problem, request).tensors) {
    expected[name] = {tensor.shape, tensor.value};
    for (std::size_t i = 0; i < tensor.value.size(); ++i)
      if (tensor.radius[i] != 0 || tensor.low[i] != 0 || tensor.value[i] != std::round(tensor.value[i]))
        return std::nullopt;
  }
  if (given.field("g")) {  // dg = alpha dalpha
    Tensor dg = expected.at("dalpha");
    expected.erase("dalpha");
    for (std::size_t i = 0; i < dg.data.size(); ++i) dg.data[i] *= problem.fields.at("alpha").data[i];
    expected["dg"] = std::move(dg);
  }
  return expected;
}

void one(const BatteryContext& context, const Case& shape, const Asked& asked, Random& random,
         Findings& findings) {
  findings.input("gradient, lattice " + short_text(fitted(context, shape)) +
                 (asked.start > 0 ? " with an initial state" : ""));
  const auto problem = draw(context, shape, asked, random);
  if (!problem) return findings.leave_out("no certified lattice input of this shape");
  const auto expected = gradients_of(context, *problem);
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
