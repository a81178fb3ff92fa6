#include "gpu_checks/identify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "gpu_checks/battery/layout.hpp"
#include "gpu_checks/battery/state_bound.hpp"
#include "gpu_checks/near_misses.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/certify.hpp"
#include "reference/metrics/bound.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using HeadD = Head<double>;
using Rows = Matrix<double>;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr Index consumed_before = 19, default_tokens = 130, most_tokens = 4096;
constexpr double near = 0.25;     // a relative row error that still resembles
constexpr double same = 0x1p-30;  // of two candidates: they differ by rounding in double alone
constexpr double power_margin = 0.25, evaluation_slack = 0x1p-40;

// A problem to ask, and what the kernel answered.
struct Look {
  Case shape;
  bool continued = false;  // from a state of earlier tokens
  Problem problem = {};
  Tensors outputs = {};
};

struct Answer {
  KernelStatus status = KernelStatus::ok;
  std::string message;
};

std::string full_name(const Declaration& d) { return d.name + " (" + d.variant + ")"; }

Problem problem_of(const Kernel& kernel, const Look& look) {
  const Operator& op = *find_operator(kernel.op, kernel.variant);
  if (!look.continued) return round_inputs(kernel.contract, draw_problem(look.shape, op.declaration()));
  Case longer = look.shape;
  longer.tokens = *look.shape.tokens + consumed_before;
  const Problem whole = round_inputs(kernel.contract, draw_problem(longer, op.declaration()));
  Arithmetic<double> exact;
  const Tensors before =
      attest::run<double>(op, token_range(whole, 0, consumed_before), {.form = Form::stream}, exact);
  return round_inputs(
      kernel.contract,
      continued_from(token_range(whole, consumed_before, whole.tokens), before, op.declaration(),
                     std::vector<Index>(static_cast<std::size_t>(whole.sequences()), consumed_before)));
}

Answer ask(const Kernel& kernel, Look& look) {
  look.problem = problem_of(kernel, look);
  KernelResult result = kernel.run(look.problem);
  if (result.status == KernelStatus::ok) look.outputs = std::move(result.outputs);
  return {result.status, result.message};
}

// --- candidates

struct Slotwise {
  Slot slot;
  HeadD head;
};

bool same_state(const Declaration& a, const Declaration& b) {
  const auto equal = [](const Moment& x, const Moment& y) {
    return x.name == y.name && x.value_columns == y.value_columns;
  };
  return a.level_scales == b.level_scales &&
         std::equal(a.moments.begin(), a.moments.end(), b.moments.begin(), b.moments.end(), equal);
}

// The heads of a problem as `d` takes them. A state of another make is none.
std::vector<Slotwise> heads_of(const Problem& problem, const Declaration& d, const Declaration& declared) {
  Problem given = problem;
  if (!same_state(d, declared))
    std::erase_if(given.fields, [](const auto& f) { return f.first.starts_with("initial_state."); });
  std::vector<Slotwise> heads;
  for (const Slot& slot : slots(given)) {
    HeadD head = head_of<double>(given, d, slot);
    if (head.decay == 1 && d.decay && given.options.decay) head.decay = nearest_double(*given.options.decay);
    heads.push_back({slot, std::move(head)});
  }
  return heads;
}

// What a kernel may be: an operator, normalised or with a near miss.
struct Suspect {
  const Operator* op;
  bool normalise = false;
  const NearMiss* miss = nullptr;

  std::string name() const {
    return full_name(op->declaration()) + (normalise ? ", normalised" : "") +
           (miss ? std::string(", ") + miss->name : "");
  }
  NearMissInput input(const Problem& problem, const HeadD& head) const {
    NearMissInput in{*op, head, 1};
    in.scale = problem.options.scale ? nearest_double(*problem.options.scale) : in.default_scale();
    return in;
  }
  bool applies(const Problem& problem, const HeadD& head) const {
    return miss && miss->applies(input(problem, head));
  }
  HeadD given(const Problem& problem, HeadD head) const {
    if (!applies(problem, head) || !miss->change) return head;
    HeadD other = head;
    miss->change(other, input(problem, head));
    return other;
  }
  Rows values(const Problem& problem, const HeadD& head) const {
    if (normalise) return normalised(*op, head);
    if (applies(problem, head) && miss->compute) return miss->compute(input(problem, head));
    return by_stream(*op, given(problem, head)).o;
  }
};

bool suffices(const Declaration& wanted, const Declaration& given) {
  return (!wanted.gates || given.gates) && (!wanted.beta || given.beta) &&
         (!wanted.level_scales || given.level_scales);
}

// The declared operator first, then the others, then what is normalised, then near misses.
std::vector<Suspect> suspects(const Kernel& kernel, const std::vector<Look>& looks) {
  const Operator& declared = *find_operator(kernel.op, kernel.variant);
  std::vector<const Operator*> operators{&declared};
  for (const Operator* op : all_operators())
    if (op != &declared && suffices(op->declaration(), declared.declaration())) operators.push_back(op);
  std::vector<Suspect> list;
  for (const Operator* op : operators) list.push_back({op});
  for (const Operator* op : operators)
    if (op->declaration().normalize) list.push_back({op, true});
  for (const Operator* op : operators)
    for (const NearMiss& miss : near_misses()) {
      const Suspect suspect{op, false, &miss};
      const bool applies = std::any_of(looks.begin(), looks.end(), [&](const Look& look) {
        const auto heads = heads_of(look.problem, op->declaration(), declared.declaration());
        return !heads.empty() && suspect.applies(look.problem, heads[0].head);
      });
      if (applies) list.push_back(suspect);
    }
  return list;
}

// The part of [B, T, H, dv] that belongs to a slot.
Rows slot_rows(const Problem& problem, const Slot& slot, const Tensor& tensor) {
  Rows rows(slot.last - slot.first, problem.value_dim);
  for (Index t = 0; t < rows.rows(); ++t)
    for (Index c = 0; c < rows.cols(); ++c)
      rows(t, c) = tensor.data[static_cast<std::size_t>(
          ((slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head) * problem.value_dim +
          c)];
  return rows;
}

struct Seen {
  Suspect suspect;
  std::vector<std::vector<Rows>> values;  // by look and slot; none for a look that it says nothing about
};

std::vector<Rows> values_on(const Suspect& suspect, const Look& look, const Declaration& declared) {
  std::vector<Rows> values;
  const auto heads = heads_of(look.problem, suspect.op->declaration(), declared);
  if (suspect.normalise && look.continued) return values;
  for (const Slotwise& one : heads) values.push_back(suspect.values(look.problem, one.head));
  return values;
}

double squared(const Rows& x) {
  double sum = 0;
  for (Index i = 0; i < x.size(); ++i) sum += x.data()[i] * x.data()[i];
  return sum;
}

double relative(double difference, double size) {
  const double ratio = difference == 0 ? 0 : std::sqrt(difference / size);
  return std::isnan(ratio) ? infinite : ratio;
}

void measure(const Seen& seen, const std::vector<Look>& looks, Candidate& candidate) {
  std::vector<double> rows;
  for (std::size_t l = 0; l < looks.size(); ++l) {
    if (seen.values[l].empty()) continue;
    double difference = 0, size = 0;
    const auto list = slots(looks[l].problem);
    for (std::size_t s = 0; s < list.size(); ++s) {
      const Rows apart = slot_rows(looks[l].problem, list[s], looks[l].outputs.at("o")) - seen.values[l][s];
      difference += squared(apart), size += squared(seen.values[l][s]);
      for (Index t = 0; t < apart.rows(); ++t)
        rows.push_back(
            relative(squared(apart.middle_rows(t, 1)), squared(seen.values[l][s].middle_rows(t, 1))));
    }
    candidate.error = std::max(candidate.error, relative(difference, size));
  }
  if (rows.empty()) {
    candidate.error = candidate.quarter = infinite;
    return;
  }
  const auto quarter = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 4);
  std::nth_element(rows.begin(), quarter, rows.end());
  candidate.quarter = *quarter;
}

bool coincide(const Seen& a, const Seen& b) {
  for (std::size_t l = 0; l < a.values.size(); ++l) {
    if (a.values[l].size() != b.values[l].size()) return false;
    double difference = 0, size = 0;
    for (std::size_t s = 0; s < a.values[l].size(); ++s)
      difference += squared(a.values[l][s] - b.values[l][s]), size += squared(a.values[l][s]);
    if (!(difference <= same * same * size)) return false;
  }
  return true;
}

// --- bounds

Evaluation form_for(const Kernel& kernel, const Declaration& d) {
  Evaluation how = kernel.how;
  if (std::find(d.forms.begin(), d.forms.end(), how.form) == d.forms.end()) how.form = Form::stream;
  if (how.algebra >= static_cast<int>(d.algebras.size())) how.algebra = 0;
  return how;
}

// Where the values beyond a bound lie.
struct Places {
  std::set<Index> batches, tokens, heads;
};

std::string in_words(const char* one, const char* many, const std::set<Index>& places, Index count) {
  if (static_cast<Index>(places.size()) == count && count > 1) return fmt::format("all {}", many);
  if (places.size() == 1) return fmt::format("{} {}", one, *places.begin());
  const bool dense = *places.rbegin() - *places.begin() + 1 == static_cast<Index>(places.size());
  return fmt::format("{} {}{}", many,
                     dense || places.size() > 6 ? fmt::format("{}..{}", *places.begin(), *places.rbegin())
                                                : fmt::format("{}", fmt::join(places, ", ")),
                     dense ? "" : fmt::format(" ({} of {})", places.size(), count));
}

// The values of a candidate against the bound of the kernel's contract and form around them. Where the fault is no change
// of what the operator is given, the bound is that of the operator itself: the faulty one rounds as much.
void judge(const Kernel& kernel, const Seen& seen, const std::vector<Look>& looks, Candidate& candidate,
           std::string* where) {
  const Declaration& declared = find_operator(kernel.op, kernel.variant)->declaration();
  const Declaration& d = seen.suspect.op->declaration();
  Index compared = 0, beyond = 0, powerful = 0, nonzero = 0;
  bool impossible = false;  // a number where the candidate has none
  Places places;
  candidate.worst_ratio = 0;
  for (std::size_t l = 0; l < looks.size(); ++l) {
    if (seen.values[l].empty()) continue;
    const Problem& problem = looks[l].problem;
    const auto heads = heads_of(problem, d, declared);
    const bool scaled = problem.options.scale.value_or(d.unit_scale ? 1 : 0) != 1;
    for (std::size_t s = 0; s < heads.size(); ++s) {
      HeadD head = seen.suspect.given(problem, heads[s].head);
      if (seen.suspect.normalise) {
        Rows v(head.v.rows(), head.v.cols() + 1);
        for (Index t = 0; t < v.rows(); ++t)
          for (Index c = 0; c < v.cols(); ++c) v(t, c) = c < head.v.cols() ? head.v(t, c) : 1;
        head.v = v;
      }
      const ErrorModel model = error_model(*seen.suspect.op, head, form_for(kernel, d), kernel.contract,
                                           {seen.suspect.normalise, 0, scaled});
      if (model.undecided) candidate.undecided = model.reason;
      const Rows got = slot_rows(problem, heads[s].slot, looks[l].outputs.at("o"));
      const Rows& value = seen.values[l][s];
      double largest = 0;
      for (Index i = 0; i < value.size(); ++i) largest = std::max(largest, std::abs(value.data()[i]));
      for (Index t = 0; t < got.rows(); ++t)
        for (Index c = 0; c < got.cols(); ++c) {
          const double bound = model.deterministic(t, c) + evaluation_slack * largest;
          const double error = std::abs(got(t, c) - value(t, c));
          ++compared, nonzero += value(t, c) != 0;
          powerful += value(t, c) != 0 && bound < power_margin * std::abs(value(t, c));
          if (error == 0) continue;
          impossible = impossible || (std::isfinite(got(t, c)) && !std::isfinite(value(t, c)));
          candidate.worst_ratio =
              std::max(candidate.worst_ratio, std::isnan(error) ? infinite : error / bound);
          if (error <= bound) continue;
          ++beyond;
          places.batches.insert(heads[s].slot.batch), places.heads.insert(heads[s].slot.head);
          places.tokens.insert(t);
        }
    }
  }
  candidate.share_beyond = compared ? static_cast<double>(beyond) / static_cast<double>(compared) : 1;
  candidate.fit = impossible                     ? Fit::beyond
                  : !candidate.undecided.empty() ? Fit::open
                  : beyond > 0                   ? Fit::beyond
                  : 2 * powerful >= nonzero      ? Fit::within
                                                 : Fit::open;
  if (candidate.undecided.empty() && candidate.fit == Fit::open)
    candidate.undecided =
        fmt::format("the bound is below a quarter of the value on {} % of the elements alone",
                    100 * powerful / std::max<Index>(nonzero, 1));
  if (where && beyond > 0) {
    const Problem& first = looks[0].problem;
    *where = fmt::format("{}, {}, {}", in_words("batch entry", "batch entries", places.batches, first.batch),
                         in_words("token", "tokens", places.tokens, first.tokens),
                         in_words("head", "heads", places.heads, first.heads));
  }
}

// --- final states

using Moments = std::map<std::string, std::vector<Matrix<double>>>;

// One head on one problem: what its final states may be.
struct FinalStates {
  Moments right, transposed, early, bound;
  std::string undecided;
};

HeadD without_last_token(HeadD head) {
  for (Rows* x : {&head.q, &head.k, &head.v, &head.level_scales})
    if (x->rows() > 0) *x = x->middle_rows(0, x->rows() - 1);
  for (std::vector<double>* x : {&head.alpha, &head.log_gate, &head.beta})
    if (!x->empty()) x->pop_back();
  return head;
}

FinalStates final_states_of(const Kernel& kernel, const Operator& op, const HeadD& head) {
  FinalStates states;
  states.right = by_stream(op, head).final.moments;
  states.transposed = states.right;
  for (auto& [name, levels] : states.transposed)
    for (Rows& moment : levels) moment = written_transposed(moment);
  if (head.tokens() > 0) states.early = by_stream(op, without_last_token(head)).final.moments;
  StateBound bound = state_bound(op, head, kernel.how, kernel.contract);
  states.bound = std::move(bound.error), states.undecided = std::move(bound.undecided);
  return states;
}

// One moment of the kernel's against what it may be. Empty: as it should be, or nothing can be said.
std::string fault_of_moment(const Problem& problem, const Declaration& d, const Slot& slot,
                            const Tensor& tensor, const std::string& name, const FinalStates& states) {
  const Index levels = final_levels(problem, d);
  const auto flat_values = [&](const Moments& moments, std::vector<double>* got = nullptr) {
    Solution<double> solution;
    solution.final.moments = moments;
    std::vector<double> values;
    visit_outputs(problem, d, slot, solution, levels, [&](const std::string& of, Index flat, double value) {
      if (of != name) return;
      values.push_back(value);
      if (got) got->push_back(tensor.data[static_cast<std::size_t>(flat)]);
    });
    return values;
  };
  std::vector<double> got;
  const std::vector<double> right = flat_values(states.right, &got), bound = flat_values(states.bound);
  const auto apart = [&](const std::vector<double>& other) {
    if (other.size() != got.size()) return infinite;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      difference += (got[i] - other[i]) * (got[i] - other[i]), size += other[i] * other[i];
    return relative(difference, size);
  };
  bool fits = bound.size() == got.size();
  for (std::size_t i = 0; fits && i < got.size(); ++i)
    fits = std::abs(got[i] - right[i]) <= bound[i] + evaluation_slack * std::abs(right[i]);
  if (fits || !states.undecided.empty()) return "";
  const bool zero = std::all_of(got.begin(), got.end(), [](double x) { return x == 0; });
  const std::pair<double, const char*> faults[] = {
      {zero ? 0 : infinite, "left zero"},
      {apart(flat_values(states.transposed)), "stored transposed"},
      {apart(flat_values(states.early)), "stored before the last token"}};
  const auto& [distance, what] = *std::min_element(std::begin(faults), std::end(faults));
  if (distance < near && 4 * distance < apart(right)) return name + " is " + what;
  return fmt::format("{} is beyond its bound, relative L2 error {:.1e}", name, apart(right));
}

// What the kernel stored, against the final state of the operator: empty where all is as it should be.
std::string faults_of_final_states(const Kernel& kernel, const std::vector<Look>& looks) {
  const Operator& op = *find_operator(kernel.op, kernel.variant);
  const Declaration& d = op.declaration();
  if (!has_feature(kernel, "final_state")) return "";
  std::set<std::string> wrong;
  for (const Look& look : looks)
    for (const Slotwise& one : heads_of(look.problem, d, d)) {
      const FinalStates states = final_states_of(kernel, op, one.head);
      for (const Moment& moment : d.moments) {
        const std::string name = "final_state." + moment.name;
        const auto found = look.outputs.find(name);
        if (found == look.outputs.end()) return "the kernel gave no " + name;
        if (const std::string fault = fault_of_moment(look.problem, d, one.slot, found->second, name, states);
            !fault.empty())
          wrong.insert(fault);
      }
    }
  return fmt::format("{}", fmt::join(wrong, "; "));
}

// --- the problems

void fit_limits(const Kernel& kernel, Case& shape) {
  const std::pair<const char*, Index*> sizes[] = {{"d", &shape.key_dim},
                                                  {"dv", &shape.value_dim},
                                                  {"t", &*shape.tokens},
                                                  {"b", &shape.batch},
                                                  {"h", &shape.heads}};
  for (const auto& [name, size] : sizes) *size = drawn_within(kernel.limits, name, *size);
}

Index tokens_for(const Kernel& kernel) {
  if (kernel.how.form != Form::chunk || 2 * kernel.how.chunk + 3 > most_tokens) return default_tokens;
  return std::max(default_tokens, 2 * kernel.how.chunk + 3);
}

std::vector<Look> looks_for(const Kernel& kernel, const IdentifyRequest& request) {
  const Declaration& d = find_operator(kernel.op, kernel.variant)->declaration();
  Case c;
  c.op = d.name, c.variant = d.variant, c.tokens = tokens_for(kernel);
  c.key_dim = 4, c.value_dim = 3, c.heads = 2, c.batch = 2;
  fit_limits(kernel, c);
  const bool continues = has_feature(kernel, "initial_state");
  std::vector<Look> looks;
  for (std::uint64_t i = 0; i < 3; ++i) {
    Look look{c, continues && i > 0};
    look.shape.seed = request.seed + i;
    look.shape.gates = i == 1 ? "uniform" : "published";
    const bool undecayed = !d.decayed_scan && kernel.how.form != Form::stream;  // the form has no decay
    if (d.decay && undecayed) look.shape.options.decay = Rational(1);
    if (d.decay && !undecayed)
      look.shape.options.decay = Rational(i == 0   ? 3
                                          : i == 1 ? 7
                                                   : 1) /
                                 Rational(i == 0   ? 4
                                          : i == 1 ? 8
                                                   : 2);
    if (i > 0) look.shape.options.scale = Rational(3) / 4;
    if (!request.shape.empty()) set_from_list(look.shape, request.shape, "--shape");
    if (!look.shape.drawn() || !look.shape.packed.empty() || *look.shape.tokens < 1)
      throw BadInput(
          "--shape " + in_quotes(request.shape) +
          ": expected at least one token, and neither input= nor packed=, which attest check takes");
    looks.push_back(look);
  }
  return looks;
}

// Asks as much as the kernel takes: without the scale, the state or the second batch entry where it refuses them.
Answer ask_what_it_takes(const Kernel& kernel, Look& look, std::set<std::string>& refused) {
  Answer first;
  for (int left_out = 0; left_out < 8; ++left_out) {
    Look other = look;
    std::set<std::string> without;
    if (left_out & 1) {
      if (!other.shape.options.scale) continue;
      other.shape.options.scale.reset(), without.insert("the option scale");
    }
    if (left_out & 2) {
      if (!other.continued) continue;
      other.continued = false, without.insert("an initial state");
    }
    if (left_out & 4) {
      if (other.shape.batch == 1) continue;
      other.shape.batch = 1, without.insert("B > 1");
    }
    const Answer answer = ask(kernel, other);
    if (left_out == 0) first = answer;
    if (answer.status == KernelStatus::unsupported) continue;
    if (answer.status == KernelStatus::ok) look = std::move(other), refused.merge(without);
    return answer;
  }
  return first;
}

std::string on_what(const Kernel& kernel, const std::vector<Look>& looks,
                    const std::set<std::string>& refused) {
  const Case& c = looks[0].shape;
  std::set<std::string> gates;
  std::size_t continued = 0, scaled = 0;
  for (const Look& look : looks) {
    gates.insert(look.shape.gates);
    continued += look.continued, scaled += look.shape.options.scale.has_value();
  }
  const Declaration& d = find_operator(kernel.op, kernel.variant)->declaration();
  std::string text =
      fmt::format("{} inputs of T={}, d={}, dv={}, H={}, B={}, seeds {}..{}", looks.size(), *c.tokens,
                  c.key_dim, c.value_dim, c.heads, c.batch, c.seed, looks.back().shape.seed);
  if (d.gates || d.beta || d.level_scales) text += fmt::format(", gates {}", fmt::join(gates, " and "));
  if (continued) text += fmt::format(", {} of them from an initial state", continued);
  if (scaled) text += fmt::format(", {} of them scaled by 3/4", scaled);
  if (!refused.empty()) text += fmt::format("; refused by the kernel: {}", fmt::join(refused, ", "));
  if (kernel.how.form == Form::chunk && *c.tokens <= kernel.how.chunk)
    text += fmt::format("; no border of its chunks of {} is crossed", kernel.how.chunk);
  return text;
}

// --- the smallest input

bool fits_one(const Kernel& kernel, const Look& look) {
  const Declaration& declared = find_operator(kernel.op, kernel.variant)->declaration();
  const std::vector<Look> one{look};
  for (const Suspect& suspect : suspects(kernel, one)) {
    const Seen seen{suspect, {values_on(suspect, look, declared)}};
    if (seen.values[0].empty()) continue;
    Candidate candidate;
    judge(kernel, seen, one, candidate, nullptr);
    if (candidate.fit != Fit::beyond) return true;
  }
  return false;
}

// Whether the kernel takes the input and nothing fits what it answers.
bool nothing_fits(const Kernel& kernel, Look& look) {
  if (!outside_limits(kernel.limits, look.shape).empty()) return false;
  if (ask(kernel, look).status != KernelStatus::ok) return false;
  return !fits_one(kernel, look);
}

std::vector<Look> smaller_shapes(const Look& look, Index tokens) {
  std::vector<Look> list;
  for (Index d = 1; d <= look.shape.key_dim; ++d)
    for (Index dv = 1; dv <= look.shape.value_dim; ++dv)
      for (const Index heads : std::set<Index>{1, look.shape.heads})
        for (const Index batch : std::set<Index>{1, look.shape.batch}) {
          Look smaller = look;
          smaller.shape.tokens = tokens, smaller.shape.key_dim = d, smaller.shape.value_dim = dv;
          smaller.shape.heads = heads, smaller.shape.batch = batch;
          list.push_back(smaller);
        }
  return list;
}

// The first in the order of T, d, dv, H, B. Up to four tokens every shape is asked, beyond that the whole one decides
// about T.
std::optional<Look> smallest_shape(const Kernel& kernel, const Look& look) {
  for (Index tokens = 1; tokens <= *look.shape.tokens; ++tokens) {
    Look whole = look;
    whole.shape.tokens = tokens;
    const bool fails = nothing_fits(kernel, whole);
    if (!fails && tokens > 4) continue;
    if (look.shape.key_dim > 8 || look.shape.value_dim > 8) {  // too many to ask all
      if (fails) return whole;
      continue;
    }
    for (Look& smaller : smaller_shapes(look, tokens))
      if (nothing_fits(kernel, smaller)) return smaller;
    if (fails) return whole;
  }
  return std::nullopt;
}

// Entries 0 or 1 where nothing fits all the same.
bool still_nothing(const Kernel& kernel, Look& look) {
  KernelResult result = kernel.run(look.problem);
  if (result.status != KernelStatus::ok) return false;
  look.outputs = std::move(result.outputs);
  return !fits_one(kernel, look);
}

Look simplest_values(const Kernel& kernel, Look look) {
  for (const char* field : {"q", "k", "v", "g", "beta", "level_scales"}) {
    if (!look.problem.field(field)) continue;
    for (std::size_t i = 0; i < look.problem.fields.at(field).data.size(); ++i)
      for (const double simple : {0.0, 1.0}) {
        if (simple == 1 && field == std::string("g")) continue;
        Look other = look;
        other.problem.fields.at(field).data[i] = simple;
        if (!still_nothing(kernel, other)) continue;
        look = std::move(other);
        break;
      }
  }
  return look;
}

constexpr Index most_values = 48;

std::string written_out(const Kernel& kernel, const Look& look) {
  std::string text;
  for (const auto& [name, tensor] : look.problem.fields)
    text += fmt::format("{}{}=[{:.4g}]", text.empty() ? "" : " ", name, fmt::join(tensor.data, ", "));
  text += fmt::format(": o=[{:.6g}]", fmt::join(look.outputs.at("o").data, ", "));
  const Operator& op = *find_operator(kernel.op, kernel.variant);
  Arithmetic<double> exact;
  const Tensors right = attest::run<double>(op, look.problem, {.form = Form::stream}, exact);
  return text +
         fmt::format(", {} gives [{:.6g}]", full_name(op.declaration()), fmt::join(right.at("o").data, ", "));
}

std::string smallest_input(const Kernel& kernel, const std::vector<Look>& looks) {
  for (const Look& look : looks) {
    auto found = smallest_shape(kernel, look);
    if (!found) continue;
    std::string text = to_text(found->shape);
    if (found->continued) text += fmt::format(", continued from the state after {} tokens", consumed_before);
    Index values = 0;
    for (const auto& [name, tensor] : found->problem.fields) values += static_cast<Index>(tensor.data.size());
    if (values > most_values) return text;
    return text + "; with the simplest values " + written_out(kernel, simplest_values(kernel, *found));
  }
  return "none alone: the inputs fit different candidates";
}

// --- the answer

std::string words_of_confidence(const Identification& found) {
  const Candidate& answer = found.candidates.at(0);
  double next = infinite;
  std::string other, also;
  for (const Candidate& c : found.candidates) {
    if (&c == &answer || !c.same_as.empty()) continue;
    if (c.fit != Fit::beyond) also += (also.empty() ? "" : "; ") + c.name;
    if (c.error < next) next = c.error, other = c.name;
  }
  if (!also.empty()) return fmt::format("low: within the bound of this contract it could also be {}", also);
  const double times = next / std::max(answer.error, 0x1p-52);
  return fmt::format("{}: all others are beyond their bounds, the nearest ({}) {:.3g} times as far away",
                     times >= 10 ? "high" : "moderate", other, times);
}

bool comes_first(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& c) {
    return c.fit == Fit::within ? 0 : c.fit == Fit::open && c.quarter <= near ? 1 : 2;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 0 && a.near_miss != b.near_miss) return b.near_miss;
  return a.error < b.error;
}

// Copies behind what they are copies of.
void put_copies_behind(std::vector<Candidate>& candidates) {
  std::vector<Candidate> ordered;
  for (const Candidate& c : candidates) {
    if (!c.same_as.empty()) continue;
    ordered.push_back(c);
    for (const Candidate& copy : candidates)
      if (copy.same_as == c.name) ordered.push_back(copy);
  }
  candidates = std::move(ordered);
}

double coarsest_unit(const Contract& c) {
  double unit = 0;
  for (const Format& format :
       {c.input, c.product, c.accumulate, c.intermediate, c.state, c.gate_sum, c.output})
    unit = std::max(unit, format.unit_roundoff());
  return unit;
}

// Nothing is within its bound: the least distant of those with which a quarter of the rows agrees about as well as with
// any.
void settle_resemblance(const Contract& contract, Identification& found) {
  double best = infinite;
  for (const Candidate& c : found.candidates) best = std::min(best, c.quarter);
  const double about_as_well = 4 * std::max(best, coarsest_unit(contract));
  found.likeness = best <= near ? Likeness::resembles : Likeness::none;
  if (found.likeness == Likeness::none) return;
  const auto chosen = std::find_if(found.candidates.begin(), found.candidates.end(), [&](const Candidate& c) {
    return c.same_as.empty() && c.quarter <= about_as_well;
  });
  std::rotate(found.candidates.begin(), chosen, chosen + 1);
}

void settle(const Kernel& kernel, const std::vector<Look>& looks, std::vector<Seen>& seen,
            Identification& found) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    Candidate& c = found.candidates.emplace_back();
    c.name = seen[i].suspect.name(), c.near_miss = seen[i].suspect.miss != nullptr;
    measure(seen[i], looks, c);
    for (std::size_t j = 0; j < i && c.same_as.empty(); ++j)
      if (found.candidates[j].same_as.empty() && coincide(seen[j], seen[i]))
        c.same_as = found.candidates[j].name;
    // A candidate that is far from three quarters of the rows is beyond any bound with power.
    if (c.same_as.empty() && c.quarter <= near) judge(kernel, seen[i], looks, c, nullptr);
  }
  for (Candidate& c : found.candidates)
    for (const Candidate& original : found.candidates)
      if (c.same_as == original.name)
        c.fit = original.fit, c.worst_ratio = original.worst_ratio, c.share_beyond = original.share_beyond;
  std::stable_sort(found.candidates.begin(), found.candidates.end(), comes_first);
  const Candidate& first = found.candidates.at(0);
  if (first.fit == Fit::within)
    found.likeness = Likeness::computes;
  else if (first.fit == Fit::open && first.quarter <= near)
    found.likeness = Likeness::likely;
  else
    settle_resemblance(kernel.contract, found);
  put_copies_behind(found.candidates);
}

}  // namespace

std::vector<const Candidate*> Identification::matching() const {
  std::vector<const Candidate*> list;
  for (const Candidate& candidate : candidates)
    if (candidate.same_as.empty() && candidate.fit == Fit::within) list.push_back(&candidate);
  return list;
}

const Candidate* Identification::answer() const {
  return likeness == Likeness::none || candidates.empty() ? nullptr : &candidates[0];
}

Identification identify(const Kernel& kernel, const IdentifyRequest& request) {
  const Declaration& declared = find_operator(kernel.op, kernel.variant)->declaration();
  Identification found;
  found.declared = full_name(declared);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (request.shape.empty()) found.failure = no_small_case(kernel.limits);
  found.unsupported = !found.failure.empty();
  if (found.unsupported) return found;
  std::vector<Look> looks = looks_for(kernel, request);
  std::set<std::string> refused;
  for (Look& look : looks)
    if (const Answer answer = ask_what_it_takes(kernel, look, refused); answer.status != KernelStatus::ok) {
      found.failure = answer.message.empty() ? "the kernel failed" : answer.message;
      found.unsupported = answer.status == KernelStatus::unsupported;
      return found;
    }
  found.compared = on_what(kernel, looks, refused);
  std::vector<Seen> seen;
  for (const Suspect& suspect : suspects(kernel, looks)) seen.push_back({suspect, {}});
  for_each_parallel(static_cast<Index>(seen.size()), threads, [&](Index i) {
    Seen& one = seen[static_cast<std::size_t>(i)];
    for (const Look& look : looks) one.values.push_back(values_on(one.suspect, look, declared));
  });
  settle(kernel, looks, seen, found);
  if (const Candidate* answer = found.answer()) {
    found.as_declared = answer->name == found.declared;
    if (found.likeness == Likeness::resembles) {
      const auto of = std::find_if(seen.begin(), seen.end(),
                                   [&](const Seen& s) { return s.suspect.name() == answer->name; });
      Candidate again = *answer;
      judge(kernel, *of, looks, again, &found.where);
    } else {
      found.confidence = words_of_confidence(found);
    }
    if (found.as_declared && found.likeness != Likeness::resembles) {
      found.states = faults_of_final_states(kernel, looks);
      found.as_declared = found.states.empty();
    }
  }
  if (found.likeness == Likeness::resembles || found.likeness == Likeness::none)
    found.smallest = smallest_input(kernel, looks);
  return found;
}

}  // namespace attest
