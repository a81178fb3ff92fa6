#include "fuzz/opening.hpp"

#include <algorithm>
#include <cmath>

#include "fuzz/ask.hpp"
#include "fuzz/limits.hpp"
#include "gpu_checks/battery/call.hpp"

namespace attest {
namespace {

class Opening {
 public:
  Opening(const BatteryContext& context, Random& random)
      : context_(context), d_(context.declaration()), chunk_(context.chunk()), random_(random) {}

  std::vector<FuzzInput> inputs() {
    gradients(), packed_integers(), packed_values(), width(), small_states(), single_roundings();
    containment(), normalised(), separate(), batch_integers(), long_values(), large_values(), narrow();
    step(), step_from_state();
    return std::move(list_);
  }

 private:
  FuzzInput question(Question question) {
    FuzzInput input;
    input.question = question;
    Case& c = input.shape;
    c.op = d_.name, c.variant = d_.variant, c.seed = random_.bits() >> 16;
    c.recipe = "uniform", c.gates = "uniform";
    return input;
  }
  void add(FuzzInput input) {
    if (!cannot_ask(context_, input.question).empty()) return;
    if (is_battery(input.question)) return list_.push_back(std::move(input));
    if (context_.at_most(*input.shape.tokens) != *input.shape.tokens) return;
    keep_within_limits(context_.kernel, input.shape);
    list_.push_back(std::move(input));
  }
  void pack(FuzzInput& input, const std::vector<Index>& lengths) const {
    Case& c = input.shape;
    c.batch = 1, c.packed = {0};
    for (const Index n : lengths) c.packed.push_back(c.packed.back() + n);
    c.tokens = c.packed.back();
    if (context_.has("varlen")) return;
    c.packed.clear();
    c.tokens = *std::max_element(lengths.begin(), lengths.end()), c.batch = 2;
  }
  void continues(FuzzInput& input, Index tokens) const {
    if (context_.has("initial_state") && !d_.moments.empty()) input.before = tokens;
  }
  static void share(Case& c, Index heads, Index heads_q, Index heads_k, Index heads_v) {
    c.heads = heads, c.heads_q = heads_q, c.heads_k = heads_k, c.heads_v = heads_v;
  }
  // Of the second head closed at a token; of the first strong up to another.
  void put_gates(FuzzInput& input, Index closed, Index strong_from, Index strong_to) const {
    if (!d_.gates) return;
    for (Index b = 0; b < input.shape.batch; ++b) {
      input.edits.push_back({"g", {b, closed, 1}, -INFINITY});
      for (Index t = strong_from; t < strong_to; ++t) input.edits.push_back({"g", {b, t, 0}, -8});
    }
  }
  // Whole numbers, where the operator takes them.
  void put_options(Case& c) const {
    if (d_.unit_scale) c.options.scale = Rational(2);
    if (d_.ridge) c.options.ridge = Rational(2);
  }
  // A decay for each head.
  void put_decays(FuzzInput& input, std::initializer_list<double> decays) const {
    if (!d_.decay || has_no_decay(context_) || context_.kernel.without_decay) return;
    for (Index h = 0; const double decay : decays) input.edits.push_back({"decay", {h++}, decay});
  }

  void packed_integers() {
    FuzzInput input = question(Question::lattice_again);
    Case& c = input.shape;
    pack(input, {chunk_ / 2 + 1, 0, 1, 2 * chunk_, 3 * chunk_ + 1, chunk_ + 3});
    share(c, 4, 4, 2, 4);
    c.key_dim = 5, c.value_dim = 65;
    c.seed = judged_in_full(c.seed);
    put_options(c);
    continues(input, 3);
    add(input);
  }
  void packed_values() {
    FuzzInput input = question(Question::again);
    Case& c = input.shape;
    pack(input, {3, 0, chunk_ + 2, 1, chunk_ + chunk_ / 2});
    share(c, 4, 4, 2, 4);
    c.key_dim = 3, c.value_dim = 5;
    continues(input, 2);
    put_gates(input, 5, chunk_, chunk_ + 1), put_decays(input, {0x1p-6, 0, 0x1.f8p-1, 1});
    add(input);
  }
  void width() {
    FuzzInput input = question(Question::width);
    input.shape.tokens = input.shape.key_dim = input.shape.value_dim = 1;
    add(input);
  }
  void gradients() {
    FuzzInput input = question(Question::gradient);
    Case& c = input.shape;
    pack(input, {chunk_ / 2 + 1, 0, 1, 2 * chunk_ + 2});
    share(c, 4, 4, 2, 2);
    c.key_dim = 3, c.value_dim = 4;
    put_options(c);
    continues(input, 3);
    add(input);
  }
  // So small that the final states are judged as well.
  void small_states() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    pack(input, {chunk_, 2, 0, chunk_ + 1});
    c.key_dim = 2, c.value_dim = 1, c.heads = 2;
    for (const char* field : {"q", "k", "v"}) input.powers[field] = -7;
    put_decays(input, {0.5, 0.75});
    continues(input, 1);
    add(input);
  }
  // Many sums of few terms, whose bounds are a few roundings wide.
  void single_roundings() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    c.tokens = 2, c.key_dim = 1, c.value_dim = 64, c.heads = 8, c.batch = 8;
    add(input);
  }
  void normalised() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    if (!d_.normalize) return;
    c.tokens = chunk_ + 3, c.key_dim = 2, c.value_dim = 3, c.heads = 2;
    c.options.normalize = true, c.options.epsilon = Rational(1) / 4;
    add(input);
  }
  void large_values() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    c.tokens = chunk_ + 1, c.key_dim = 2, c.value_dim = 3, c.heads = 2;
    input.powers["v"] = 12;
    if (!d_.beta) input.powers["q"] = input.powers["k"] = 5;
    add(input);
  }
  void separate() {
    FuzzInput input = question(Question::separate);
    pack(input, {chunk_ / 2, chunk_ + 1, 2, chunk_});
    input.shape.key_dim = 4, input.shape.value_dim = 3, input.shape.heads = 2;
    continues(input, 2);
    add(input);
  }
  void batch_integers() {
    FuzzInput input = question(Question::lattice_again);
    Case& c = input.shape;
    c.tokens = 9 * chunk_ + 1, c.batch = 2;
    share(c, 4, 2, 4, 1);
    c.key_dim = 6, c.value_dim = 4;
    continues(input, 3 * chunk_);
    add(input);
  }
  void narrow() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    c.tokens = 2 * chunk_, c.key_dim = 1, c.value_dim = 1, c.heads = 2;
    add(input);
  }
  // The decode step.
  void step() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    c.tokens = 1, c.key_dim = 15, c.value_dim = 7, c.heads = 2, c.batch = 2;
    add(input);
  }
  void step_from_state() {
    FuzzInput input = question(Question::lattice_again);
    continues(input, chunk_ + 1);
    if (input.before == 0) return;
    Case& c = input.shape;
    c.tokens = 1, c.key_dim = 7, c.value_dim = 31, c.batch = 2;
    share(c, 4, 4, 2, 2);
    add(input);
  }
  void long_values() {
    FuzzInput input = question(Question::value);
    Case& c = input.shape;
    c.tokens = 4 * chunk_ + 2, c.key_dim = 2, c.value_dim = 2, c.heads = 2;
    put_gates(input, 2 * chunk_, 0, 2 * chunk_);
    add(input);
  }
  void containment() {
    FuzzInput input = question(Question::containment);
    Case& c = input.shape;
    c.tokens = chunk_ + 2, c.key_dim = 3, c.value_dim = 2, c.heads = 2, c.batch = 2;
    input.edits.push_back({"v", {0, 1, 0, 0}, std::nan("")});
    input.edits.push_back({"k", {1, chunk_, 1, 1}, std::nan("")});
    add(input);
  }

  const BatteryContext& context_;
  const Declaration& d_;
  const Index chunk_;
  Random& random_;
  std::vector<FuzzInput> list_;
};

}  // namespace

std::vector<FuzzInput> opening_inputs(const BatteryContext& context, Random& random) {
  return Opening(context, random).inputs();
}

}  // namespace attest
