// powers: inputs scaled by a power of two.
// Law: every rounding commutes with a power of two as long as nothing leaves the normal range, so x -> 2^n x in q, k or
// v multiplies o by 2^(n degree), bit for bit. Drawn inputs where all formats have the range of fp32, lattice inputs
// with small n otherwise. Output: o, bitwise.
// Must kill: thresholds and absolute tolerances (families 2, 13), approximations chosen by size (13), clamps (2).
// Source: NUMERICS, lattice inputs ("also bitwise").
#include <cmath>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/checks.hpp"
#include "gpu_checks/battery/lattice.hpp"

namespace attest {
namespace {

int degree(const Declaration& d, const std::string& field) {
  if (d.name == "softmax" && field != "v") return -1;
  return field == "q" ? d.degree_q : field == "k" ? d.degree_k : d.degree_v;
}

bool wide_range(const Contract& c) {
  for (const Format* format : {&c.input, &c.product, &c.accumulate, &c.intermediate, &c.state, &c.output})
    if (format->emin > fp32.emin) return false;
  return true;
}

void scaled(const BatteryContext& context, const Problem& problem, const char* field, int exponent,
            Findings& findings) {
  const auto before = call(context, problem, findings);
  Problem other = problem;
  for (double& x : other.fields.at(field).data) x = std::ldexp(x, exponent);
  const auto after = call(context, other, findings);
  if (!before || !after) return;
  Tensor expected = before->at("o");
  for (double& x : expected.data) x = std::ldexp(x, exponent * degree(context.declaration(), field));
  findings.exact(other, "o", after->at("o"), expected);
}

bool drawn_suffice(const BatteryContext& context) {
  return wide_range(context.kernel.contract) && context.has("deterministic");
}

std::string not_applicable(const BatteryContext& context) {
  return drawn_suffice(context) ? std::string() : no_lattice(context);
}

CheckOutcome run(const BatteryContext& context) {
  Findings findings(context.kernel);
  Random random(context.seed, "powers");
  const bool wide = wide_range(context.kernel.contract);
  Case shape;
  shape.tokens = 2 * context.chunk() + 3, shape.key_dim = 6, shape.value_dim = 5, shape.heads = 2,
  shape.gates = "none";
  for (Index round = 0; round < context.many(1, 3); ++round)
    for (const char* field : {"q", "k", "v"}) {
      if (degree(context.declaration(), field) < 0) continue;
      for (const int exponent : wide ? std::vector<int>{-14, 8} : std::vector<int>{-1, 1}) {
        shape.seed = random.bits() >> 1;
        findings.input(std::string(field) + " times 2^" + std::to_string(exponent) + ", " +
                       short_text(fitted(context, shape)));
        std::optional<Problem> problem;
        if (drawn_suffice(context))
          problem = drawn(context, shape);
        else
          problem = draw_lattice(context, fitted(context, shape), random);
        if (problem)
          scaled(context, *problem, field, exponent, findings);
        else
          findings.leave_out("no certified lattice input of this shape");
      }
    }
  return findings.outcome();
}

}  // namespace

const BatteryCheck powers_check{
    "powers",       "bitwise", "a power of two in q, k or v comes out as a power of two", "2 13", false,
    not_applicable, run};

}  // namespace attest
