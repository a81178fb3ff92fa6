#include "gpu_checks/identify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "reference/cases/case.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

using HeadD = Head<double>;
using Rows = Matrix<double>;

// A fault: what it does to the inputs of a head, or to the rows that come out. Nothing where it does not apply.
struct NearMiss {
  const char* name;
  std::function<bool(const Declaration&, const HeadD&)> applies;
  std::function<Rows(const Evaluator<double>&, const Declaration&, HeadD)> compute;
};

Rows evaluated(const Evaluator<double>& op, const HeadD& head) { return op.evaluate(head).o; }

HeadD first_tokens(const HeadD& head, Index tokens) {
  HeadD cut = head;
  const auto rows = [tokens](Matrix<double>& x) {
    if (x.rows() > 0) x = x.middle_rows(0, tokens);
  };
  rows(cut.q), rows(cut.k), rows(cut.v), rows(cut.level_scales);
  for (std::vector<double>* x : {&cut.alpha, &cut.log_gate, &cut.beta})
    if (!x->empty()) x->resize(static_cast<std::size_t>(tokens));
  return cut;
}

// Row t of the operator on tokens 0 .. t, the last of which is changed.
Rows with_own_token(const Evaluator<double>& op, const HeadD& head,
                    const std::function<void(HeadD&, Index)>& change) {
  Rows o(head.tokens(), head.v.cols());
  for (Index t = 0; t < head.tokens(); ++t) {
    HeadD cut = first_tokens(head, t + 1);
    change(cut, t);
    o.row(t) = evaluated(op, cut).row(t);
  }
  return o;
}

Rows reversed(const Rows& x) {
  Rows result = x;
  for (Index t = 0; t < x.rows(); ++t) result.row(t) = x.row(x.rows() - 1 - t);
  return result;
}

bool always(const Declaration&, const HeadD&) { return true; }
bool has_gates(const Declaration& d, const HeadD&) { return d.gates; }
bool has_beta(const Declaration& d, const HeadD&) { return d.beta; }
bool has_levels(const Declaration& d, const HeadD&) { return d.level_scales; }
bool has_decay(const Declaration& d, const HeadD& head) {
  return d.decay && d.decayed_scan && head.decay != 1;
}

template <class Change>
auto changed(Change change) {
  return [change](const Evaluator<double>& op, const Declaration&, HeadD head) {
    change(head);
    return evaluated(op, head);
  };
}

void shift_levels(HeadD& head, Index by) {
  Matrix<double> shifted = head.level_scales;
  const Index levels = shifted.cols();
  for (Index t = 0; t < shifted.rows(); ++t)
    for (Index l = 0; l < levels; ++l)
      shifted(t, l) = head.level_scales(t, std::clamp<Index>(l + by, 0, levels - 1));
  head.level_scales = shifted;
}

const std::vector<NearMiss>& near_misses() {
  static const std::vector<NearMiss> list = {
      {"q and k swapped", always, changed([](HeadD& h) { std::swap(h.q, h.k); })},
      {"strict mask (without the token itself)", always,
       [](const Evaluator<double>& op, const Declaration&, const HeadD& head) {
         return with_own_token(op, head, [](HeadD& cut, Index t) {
           cut.k.row(t) *= 0, cut.v.row(t) *= 0;
           if (!cut.beta.empty()) cut.beta[static_cast<std::size_t>(t)] = 0;
         });
       }},
      {"the token itself counted twice", always,
       [](const Evaluator<double>& op, const Declaration& d, HeadD head) {
         const Rows once = with_own_token(op, head, [](HeadD& cut, Index t) { cut.v.row(t) *= 0; });
         Rows o = evaluated(op, head);
         if (d.degree_v != 1) return o;
         return Rows(o + o - once);
       }},
      {"anti-causal (time reversed)", always,
       [](const Evaluator<double>& op, const Declaration&, HeadD head) {
         head.q = reversed(head.q), head.k = reversed(head.k), head.v = reversed(head.v);
         if (head.level_scales.rows() > 0) head.level_scales = reversed(head.level_scales);
         for (std::vector<double>* x : {&head.alpha, &head.log_gate, &head.beta})
           std::reverse(x->begin(), x->end());
         return reversed(evaluated(op, head));
       }},
      {"q scaled by 1/sqrt(d)", always,
       changed([](HeadD& h) { h.q *= 1 / std::sqrt(static_cast<double>(h.q.cols())); })},
      {"q scaled by sqrt(d), a missing scale", always,
       changed([](HeadD& h) { h.q *= std::sqrt(static_cast<double>(h.q.cols())); })},
      {"no gates", has_gates, changed([](HeadD& h) {
         std::fill(h.alpha.begin(), h.alpha.end(), 1.0), std::fill(h.log_gate.begin(), h.log_gate.end(), 0.0);
       })},
      {"gates of the token before", has_gates, changed([](HeadD& h) {
         std::rotate(h.alpha.rbegin(), h.alpha.rbegin() + 1, h.alpha.rend()), h.alpha[0] = 1;
       })},
      {"1 + g for exp(g)",
       [](const Declaration& d, const HeadD& h) { return d.gates && !h.log_gate.empty(); },
       changed([](HeadD& h) {
         for (std::size_t t = 0; t < h.alpha.size(); ++t) h.alpha[t] = 1 + h.log_gate[t];
       })},
      {"g for exp(g)", [](const Declaration& d, const HeadD& h) { return d.gates && !h.log_gate.empty(); },
       changed([](HeadD& h) { h.alpha = h.log_gate; })},
      {"gates squared", has_gates, changed([](HeadD& h) {
         for (double& a : h.alpha) a *= a;
       })},
      {"no decay", has_decay, changed([](HeadD& h) { h.decay = 1; })},
      {"decay squared", has_decay, changed([](HeadD& h) { h.decay *= h.decay; })},
      {"root of the decay", has_decay, changed([](HeadD& h) { h.decay = std::sqrt(h.decay); })},
      {"decay shifted by one token", has_decay,
       [](const Evaluator<double>& op, const Declaration&, const HeadD& head) {
         Rows o = evaluated(op, head);
         o *= head.decay;
         return o;
       }},
      {"beta = 1", has_beta, changed([](HeadD& h) { std::fill(h.beta.begin(), h.beta.end(), 1.0); })},
      {"no delta rule (nothing is taken away)", has_beta,
       [](const Evaluator<double>&, const Declaration& d, const HeadD& head) {
         const Operator& plain = *find_operator(d.level_scales ? "log_linear_mamba2"
                                                : d.gates      ? "mamba2"
                                                               : "linear");
         HeadD same = head;
         for (Index t = 0; t < head.tokens(); ++t) same.k.row(t) *= head.beta[static_cast<std::size_t>(t)];
         return evaluated(plain, same);
       }},
      {"levels one too low", has_levels, changed([](HeadD& h) { shift_levels(h, 1); })},
      {"levels one too high", has_levels, changed([](HeadD& h) { shift_levels(h, -1); })},
      {"level scales of 1", has_levels, changed([](HeadD& h) {
         for (Index i = 0; i < h.level_scales.size(); ++i) h.level_scales.data()[i] = 1;
       })},
  };
  return list;
}

bool suffices(const Declaration& wanted, const Declaration& given) {
  return (!wanted.gates || given.gates) && (!wanted.beta || given.beta) &&
         (!wanted.level_scales || given.level_scales);
}

// A problem that takes everything its operator has.
Case probe_case(const Declaration& d, std::uint64_t seed, Index tokens) {
  Case c;
  c.op = d.name, c.variant = d.variant, c.tokens = tokens, c.key_dim = 4, c.value_dim = 3, c.heads = 2,
  c.seed = seed;
  if (d.decay && d.decayed_scan) c.options.decay = Rational(3) / 4;
  return c;
}

struct Slots {
  std::vector<HeadD> heads;
  std::vector<Slot> slots;
};

// The output of a candidate in the order of the kernel's tensor [B, T, H, dv].
using Compute = std::function<Rows(const HeadD&)>;
double distance(const Problem& problem, const Declaration& declaration, const Tensor& o,
                const Compute& compute) {
  double difference = 0, size = 0;
  for (const Slot& slot : slots(problem)) {
    HeadD head = head_of<double>(problem, declaration, slot);
    if (declaration.decay && problem.options.decay) head.decay = nearest_double(*problem.options.decay);
    const Rows rows = compute(head);
    for (Index t = 0; t < rows.rows(); ++t)
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Index at =
            ((slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head) * problem.value_dim +
            c;
        const double apart = o.data[static_cast<std::size_t>(at)] - rows(t, c);
        difference += apart * apart, size += rows(t, c) * rows(t, c);
      }
  }
  const double relative = std::sqrt(difference / size);
  return std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
}

double coarsest_unit(const Contract& c) {
  double unit = 0;
  for (const Format& format :
       {c.input, c.product, c.accumulate, c.intermediate, c.state, c.gate_sum, c.output})
    unit = std::max(unit, format.unit_roundoff());
  return unit;
}

// Numerator over denominator, by a column of ones.
Rows normalised(const Evaluator<double>& op, HeadD head) {
  Matrix<double> v(head.v.rows(), head.v.cols() + 1);
  for (Index t = 0; t < v.rows(); ++t) {
    for (Index c = 0; c < head.v.cols(); ++c) v(t, c) = head.v(t, c);
    v(t, head.v.cols()) = 1;
  }
  head.v = v;
  const Rows raw = evaluated(op, head);
  Rows o(raw.rows(), raw.cols() - 1);
  for (Index t = 0; t < o.rows(); ++t)
    for (Index c = 0; c < o.cols(); ++c) o(t, c) = raw(t, c) / raw(t, o.cols());
  return o;
}

Identification compare(const Kernel& kernel, const Case& input) {
  const Declaration& declared = find_operator(kernel.op, kernel.variant)->declaration();
  Identification result;
  result.tokens = *input.tokens;
  result.threshold = 16 * coarsest_unit(kernel.contract);
  const Problem problem = round_inputs(kernel.contract, draw_problem(input, declared));
  const KernelResult run = kernel.run(problem);
  if (run.status != KernelStatus::ok) {
    result.failure = run.message.empty() ? "the kernel failed" : run.message;
    return result;
  }
  const Tensor& o = run.outputs.at("o");
  const auto add = [&](const Declaration& d, const std::string& name, bool near_miss,
                       const Compute& compute) {
    const double error = distance(problem, d, o, compute);
    result.candidates.push_back({name, near_miss, error, error <= result.threshold});
  };
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    if (!suffices(d, declared)) continue;
    const Evaluator<double>& evaluator = *op;
    const std::string name = d.name + " (" + d.variant + ")";
    add(d, name, false, [&](const HeadD& head) { return evaluated(evaluator, head); });
    if (d.normalize)
      add(d, name + ", normalised", false, [&](const HeadD& head) { return normalised(evaluator, head); });
    for (const NearMiss& miss : near_misses()) {
      const HeadD sample = head_of<double>(problem, d, slots(problem).at(0));
      if (miss.applies(d, sample))
        add(d, name + ", " + miss.name, true,
            [&](const HeadD& head) { return miss.compute(evaluator, d, head); });
    }
  }
  std::stable_sort(result.candidates.begin(), result.candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.matches != b.matches                    ? a.matches
                            : a.matches && a.near_miss != b.near_miss ? b.near_miss
                                                                      : a.error < b.error;
                   });
  return result;
}

}  // namespace

std::vector<const Candidate*> Identification::matching() const {
  std::vector<const Candidate*> list;
  for (const Candidate& candidate : candidates)
    if (candidate.matches) list.push_back(&candidate);
  return list;
}

double Identification::margin() const {
  double worst = 0, next = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates)
    if (candidate.matches)
      worst = std::max(worst, candidate.error);
    else
      next = std::min(next, candidate.error);
  return next / std::max(worst, std::numeric_limits<double>::min());
}

Identification identify(const Kernel& kernel, std::uint64_t seed) {
  const Declaration& declared = find_operator(kernel.op, kernel.variant)->declaration();
  Identification result = compare(kernel, probe_case(declared, seed, 21));
  if (!result.failure.empty() || !result.matching().empty()) return result;
  for (Index tokens = 1; tokens <= 21; ++tokens) {
    const Case input = probe_case(declared, seed, tokens);
    const Identification smaller = compare(kernel, input);
    if (!smaller.failure.empty() || !smaller.matching().empty()) continue;
    result.smallest = to_text(input);
    break;
  }
  return result;
}

}  // namespace attest
