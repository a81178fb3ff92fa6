#include "gpu_checks/battery/gradient_lattice.hpp"

#include <algorithm>
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "gpu_checks/battery/reverse_tape.hpp"
#include "reference/forms/gradient.hpp"

namespace attest {
namespace {

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
  Drawer(const BatteryContext& context, const GradientDraw& how, Random& random)
      : context_(context), random_(random), attempt_(how.attempt), first_column_(how.first_column) {}

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
  Index first_column_;
};

}  // namespace

void draw_gradient_lattice(const BatteryContext& context, const GradientDraw& how, Index start,
                           Problem& problem, Random& random) {
  Drawer(context, how, random).draw(problem, start);
}

void draw_final_cotangents(const BatteryContext& context, const GradientDraw& how, Problem& problem,
                           Random& random) {
  Drawer(context, how, random).draw_final_cotangents(problem);
}

bool is_gradient_certified(const BatteryContext& context, const Problem& problem) {
  return is_certified(context, problem) && cotangents_fit(context, problem);
}

std::vector<double> decays_by_head(const BatteryContext& context, Index heads) {
  std::vector<double> decays(static_cast<std::size_t>(heads), 1);
  for (std::size_t h = 1; h < decays.size() && !has_no_decay(context); h += 2) decays[h] = 0;
  return decays;
}

// The certified gradients. They must be integers: what the interval tape of few bits then gives is a point.
std::optional<Tensors> lattice_gradients(const BatteryContext& context, const Problem& given) {
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

}  // namespace attest
