#include "gpu_checks/near_misses.hpp"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

using HeadD = Head<double>;
using Rows = Matrix<double>;
using Input = NearMissInput;

HeadD tokens_of(const HeadD& head, Index first, Index last) {
  HeadD cut = head;
  const auto rows = [&](Matrix<double>& x) {
    if (x.rows() > 0) x = x.middle_rows(first, last - first);
  };
  rows(cut.q), rows(cut.k), rows(cut.v), rows(cut.level_scales);
  for (std::vector<double>* x : {&cut.alpha, &cut.log_gate, &cut.beta})
    if (!x->empty()) *x = std::vector<double>(x->begin() + first, x->begin() + last);
  return cut;
}

bool carries_state(const Declaration& d) { return !d.moments.empty(); }

// Row t of the operator on the tokens before t as they are and token t changed: one step from their state.
template <class Change>
Rows with_own_token(const Operator& op, const HeadD& head, Change change) {
  Rows o(head.tokens(), head.v.cols());
  State<double> before = head.initial;
  for (Index t = 0; t < head.tokens(); ++t) {
    HeadD step = tokens_of(head, t, t + 1);
    step.initial = before;
    before = by_stream(op, step).final;
    change(step, 0);
    o.row(t) = by_stream(op, step).o.row(0);
  }
  return o;
}

// Where the query of a token reads and nothing else does: row t on the tokens before t.
Rows of_earlier_tokens(const Operator& op, const HeadD& head) {
  Rows o(head.tokens(), head.v.cols());
  for (Index t = 1; t < head.tokens(); ++t) {
    HeadD cut = tokens_of(head, 0, t);
    cut.q.row(t - 1) = head.q.row(t);
    o.row(t) = by_stream(op, cut).o.row(t - 1);
  }
  return o;
}

void without_key_and_value(HeadD& cut, Index t) {
  cut.k.row(t) *= 0, cut.v.row(t) *= 0;
  if (!cut.beta.empty()) cut.beta[static_cast<std::size_t>(t)] = 0;
}

void without_gate(HeadD& cut, Index t) {
  if (!cut.alpha.empty()) cut.alpha[static_cast<std::size_t>(t)] = 1;
  if (!cut.log_gate.empty()) cut.log_gate[static_cast<std::size_t>(t)] = 0;
  cut.decay = 1;
}

Rows less(Rows a, const Rows& b) {
  for (Index i = 0; i < a.size(); ++i) a.data()[i] -= b.data()[i];
  return a;
}

Rows reversed(const Rows& x) {
  Rows result = x;
  for (Index t = 0; t < x.rows(); ++t) result.row(t) = x.row(x.rows() - 1 - t);
  return result;
}

// sum_{s<=t} gamma^(t-s) (q_t.k_s) v_s, from S where there is one.
Rows lin(double gamma, const Rows& q, const Rows& k, const Rows& v, const Rows* initial = nullptr) {
  HeadD head;
  head.q = q, head.k = k, head.v = v, head.decay = gamma;
  if (initial) head.initial.moments["S"] = {*initial};
  return by_stream(*find_operator("retention"), head).o;
}

// Row j: (q_j.k_j) x_j, the part of sum_{i<=j} (q_j.k_i) x_i that i = j has.
Rows own_terms(const HeadD& head, const Rows& x) {
  Rows own = x;
  for (Index t = 0; t < x.rows(); ++t) {
    double product = 0;
    for (Index a = 0; a < head.q.cols(); ++a) product += head.q(t, a) * head.k(t, a);
    own.row(t) *= product;
  }
  return own;
}

// The higher orders are sums within sums (see their headers); the inner one runs to the token before. Subtracted is
// what that token contributes to the output, which no initial state has a part in but the one of hla3's third factor.
Rows inner_exclusive(const Input& in) {
  const HeadD& h = in.head;
  const Rows o = by_stream(in.op, h).o;
  const double gamma = h.decay;
  if (in.declaration().name == "ahla") return less(o, lin(gamma, h.q, h.k, own_terms(h, h.v)));
  if (in.declaration().name == "hla2") return less(o, lin(gamma * gamma, h.q, own_terms(h, h.k), h.v));
  const auto state = h.initial.moments.find("P");
  const Rows third =
      lin(gamma, h.q, h.k, h.v, state == h.initial.moments.end() ? nullptr : &state->second.at(0));
  return less(o, lin(gamma * gamma * gamma, h.q, own_terms(h, h.k), third));
}

void set_gates(HeadD& head, std::vector<double> alpha) {
  head.alpha = std::move(alpha);
  head.log_gate.clear();
}

void shift_levels(HeadD& head, Index by) {
  const Matrix<double> given = head.level_scales;
  for (Index t = 0; t < given.rows(); ++t)
    for (Index l = 0; l < given.cols(); ++l)
      head.level_scales(t, l) = given(t, std::clamp<Index>(l + by, 0, given.cols() - 1));
}

bool always(const Input&) { return true; }
bool has_gates(const Input& in) { return in.declaration().gates; }
bool has_log_gates(const Input& in) { return in.declaration().gates && !in.head.log_gate.empty(); }
bool has_beta(const Input& in) { return in.declaration().beta; }
bool has_levels(const Input& in) { return in.declaration().level_scales; }
bool has_decay(const Input& in) { return in.declaration().decay && in.head.decay != 1; }
bool has_state(const Input& in) { return !in.head.initial.moments.empty(); }
bool has_no_state(const Input& in) { return !has_state(in); }
bool has_scale(const Input& in) { return in.scale != in.default_scale(); }
bool is_sum_over_tokens(const Input& in) {
  return in.declaration().degree_v == 1 && carries_state(in.declaration());
}
bool has_inner_sum(const Input& in) {
  const Declaration& d = in.declaration();
  return d.variant == "masked" && (d.name == "hla2" || d.name == "ahla" || d.name == "hla3");
}

// A change that needs the head alone.
template <class Change>
auto changed(Change change) {
  return [change](HeadD& head, const Input&) { change(head); };
}

std::vector<NearMiss> of_masks() {
  return {
      {"q and k swapped", always, changed([](HeadD& h) { std::swap(h.q, h.k); })},
      {"strict mask (without the token itself)", always, nullptr,
       [](const Input& in) {
         return carries_state(in.declaration()) ? with_own_token(in.op, in.head, without_key_and_value)
                                                : of_earlier_tokens(in.op, in.head);
       }},
      {"exclusive prefix (reads the state before the token and its gate)",
       [](const Input& in) { return carries_state(in.declaration()) && (has_gates(in) || has_decay(in)); },
       nullptr,
       [](const Input& in) {
         return with_own_token(in.op, in.head, [](HeadD& cut, Index t) {
           without_key_and_value(cut, t), without_gate(cut, t);
         });
       }},
      {"inner sum exclusive (without its own token)", has_inner_sum, nullptr, inner_exclusive},
      {"the token itself counted twice", is_sum_over_tokens, nullptr,
       [](const Input& in) {
         const Rows once = with_own_token(in.op, in.head, [](HeadD& cut, Index t) { cut.v.row(t) *= 0; });
         const Rows o = by_stream(in.op, in.head).o;
         return less(Rows(o + o), once);
       }},
      {"anti-causal (time reversed)", has_no_state, nullptr,
       [](const Input& in) {
         HeadD head = in.head;
         head.q = reversed(head.q), head.k = reversed(head.k), head.v = reversed(head.v);
         if (head.level_scales.rows() > 0) head.level_scales = reversed(head.level_scales);
         for (std::vector<double>* x : {&head.alpha, &head.log_gate, &head.beta})
           std::reverse(x->begin(), x->end());
         return reversed(by_stream(in.op, head).o);
       }},
  };
}

std::vector<NearMiss> of_scales() {
  return {
      {"q scaled by 1/sqrt(d) once more", always,
       changed([](HeadD& h) { h.q *= 1 / std::sqrt(static_cast<double>(h.q.cols())); })},
      {"q scaled by sqrt(d), a missing 1/sqrt(d)", always,
       changed([](HeadD& h) { h.q *= std::sqrt(static_cast<double>(h.q.cols())); })},
      {"the option scale ignored", has_scale,
       [](HeadD& h, const Input& in) { h.q *= in.default_scale() / in.scale; }},
      {"the option scale applied twice", has_scale, [](HeadD& h, const Input& in) { h.q *= in.scale; }},
  };
}

std::vector<NearMiss> of_gates() {
  return {
      {"no gates", has_gates,
       changed([](HeadD& h) { set_gates(h, std::vector<double>(h.alpha.size(), 1.0)); })},
      {"gates of the token before", has_gates, changed([](HeadD& h) {
         auto alpha = h.alpha;
         std::rotate(alpha.rbegin(), alpha.rbegin() + 1, alpha.rend()), alpha[0] = 1;
         set_gates(h, alpha);
       })},
      {"gates of the token after", has_gates, changed([](HeadD& h) {
         auto alpha = h.alpha;
         std::rotate(alpha.begin(), alpha.begin() + 1, alpha.end()), alpha.back() = 1;
         set_gates(h, alpha);
       })},
      {"1 + g for exp(g)", has_log_gates, changed([](HeadD& h) {
         auto alpha = h.log_gate;
         for (double& a : alpha) a += 1;
         set_gates(h, alpha);
       })},
      {"g for exp(g), a linear gate read", has_log_gates,
       changed([](HeadD& h) { set_gates(h, h.log_gate); })},
      {"2^g for exp(g)", has_log_gates, changed([](HeadD& h) {
         auto alpha = h.log_gate;
         for (double& a : alpha) a = std::exp2(a);
         set_gates(h, alpha);
       })},
      {"gates squared", has_gates, changed([](HeadD& h) {
         auto alpha = h.alpha;
         for (double& a : alpha) a *= a;
         set_gates(h, alpha);
       })},
      {"no decay", has_decay, changed([](HeadD& h) { h.decay = 1; })},
      {"decay squared", has_decay, changed([](HeadD& h) { h.decay *= h.decay; })},
      {"root of the decay", has_decay, changed([](HeadD& h) { h.decay = std::sqrt(h.decay); })},
      {"decay shifted by one token", has_decay, nullptr,
       [](const Input& in) {
         Rows o = by_stream(in.op, in.head).o;
         o *= in.head.decay;
         return o;
       }},
  };
}

std::vector<NearMiss> of_rules() {
  return {
      {"beta = 1", has_beta, changed([](HeadD& h) { std::fill(h.beta.begin(), h.beta.end(), 1.0); })},
      {"no delta rule (nothing is taken away)", has_beta, nullptr,
       [](const Input& in) {
         const Declaration& d = in.declaration();
         HeadD same = in.head;
         for (Index t = 0; t < same.tokens(); ++t) same.k.row(t) *= same.beta[static_cast<std::size_t>(t)];
         return by_stream(*find_operator(d.level_scales ? "log_linear_mamba2"
                                         : d.gates      ? "mamba2"
                                                        : "linear"),
                          same)
             .o;
       }},
      {"levels one too low", has_levels, changed([](HeadD& h) { shift_levels(h, 1); })},
      {"levels one too high", has_levels, changed([](HeadD& h) { shift_levels(h, -1); })},
      {"level scales of 1", has_levels, changed([](HeadD& h) {
         for (Index i = 0; i < h.level_scales.size(); ++i) h.level_scales.data()[i] = 1;
       })},
  };
}

std::vector<NearMiss> of_states() {
  return {
      {"the initial state ignored", has_state, changed([](HeadD& h) { h.initial.moments.clear(); })},
      {"the initial state read transposed", has_state, changed([](HeadD& h) {
         for (auto& [name, levels] : h.initial.moments)
           for (Matrix<double>& moment : levels) moment = read_transposed(moment);
       })},
      {"the position of the initial state ignored",
       [](const Input& in) { return has_state(in) && has_levels(in); },
       changed([](HeadD& h) { h.initial.position = 0; })},
  };
}

}  // namespace

double NearMissInput::default_scale() const {
  return declaration().unit_scale ? 1 : 1 / std::sqrt(static_cast<double>(head.q.cols()));
}

Solution<double> by_stream(const Operator& op, const Head<double>& head) {
  const Evaluator<double>& evaluator = op;
  return evaluator.evaluate(head, {.form = Form::stream});
}

Matrix<double> normalised(const Operator& op, Head<double> head) {
  Matrix<double> v(head.v.rows(), head.v.cols() + 1);
  for (Index t = 0; t < v.rows(); ++t) {
    for (Index c = 0; c < head.v.cols(); ++c) v(t, c) = head.v(t, c);
    v(t, head.v.cols()) = 1;
  }
  head.v = v;
  const Rows raw = by_stream(op, head).o;
  Rows o(raw.rows(), raw.cols() - 1);
  for (Index t = 0; t < o.rows(); ++t)
    for (Index c = 0; c < o.cols(); ++c) o(t, c) = raw(t, c) / raw(t, o.cols());
  return o;
}

Matrix<double> read_transposed(const Matrix<double>& moment) {
  return moment.reshaped(moment.cols(), moment.rows()).transpose();
}

Matrix<double> written_transposed(const Matrix<double>& moment) {
  return moment.transpose().reshaped(moment.rows(), moment.cols());
}

const std::vector<NearMiss>& near_misses() {
  static const std::vector<NearMiss> list = [] {
    std::vector<NearMiss> all = of_masks();
    for (auto part : {of_scales(), of_gates(), of_rules(), of_states()})
      for (NearMiss& miss : part) all.push_back(std::move(miss));
    return all;
  }();
  return list;
}

}  // namespace attest
