#include "fuzz/grammar.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "fuzz/ask.hpp"
#include "fuzz/limits.hpp"
#include "reference/cases/recipe.hpp"

namespace attest {
namespace {

// Multiply-adds of a token's state update, over all tokens, heads and batch entries: a few milliseconds each, where the
// truth comes from intervals, from sums of double-doubles, or is exact in double.
constexpr Index interval_work = 2500, sum_work = 60000, exact_work = 100000, gradient_work = 5000;
constexpr Index rare_work = 20000;  // of what is drawn rarely
constexpr Index longest = 300;
constexpr Index widest_square = 128;  // d = dv

Index below(Random& random, Index n) {
  return static_cast<Index>(random.below(static_cast<std::uint64_t>(n)));
}

template <class T>
T any_of(Random& random, std::initializer_list<T> list) {
  return std::data(list)[random.below(list.size())];
}

template <class List>
const auto& any(Random& random, const List& list) {
  return list[random.below(std::size(list))];
}

std::vector<Index> any_row(const FuzzInput& input, const std::string& field, Random& random) {
  const Case& c = input.shape;
  const Index heads = field == "q" ? c.heads_q : field == "k" ? c.heads_k : c.heads_v;
  return {below(random, c.batch), below(random, std::max<Index>(*c.tokens, 1)),
          below(random, heads ? heads : c.heads)};
}

Index columns_of(const FuzzInput& input, const std::string& field) {
  return field == "v" ? input.shape.value_dim : input.shape.key_dim;
}

double special_value(Random& random) {
  const double sign = random.sign();
  switch (random.below(6)) {
    case 0:
      return 0;
    case 1:
      return sign;
    case 2:
      return sign * std::ldexp(1 + random.uniform(), static_cast<int>(random.below(40)) - 20);
    case 3:
      return sign * (1 + 0x1p-7 * static_cast<double>(random.below(4)) + 0x1p-8);  // halfway in bf16
    case 4:
      return sign * (1 + 0x1p-10 * static_cast<double>(random.below(16)) + 0x1p-24);
    default:
      return sign * random.uniform() * 4;
  }
}

// Any value may be put in the place of another.
bool has_free_values(const FuzzInput& input) {
  return !is_lattice(input.question) && !is_battery(input.question);
}

void edit_values(FuzzInput& input, Random& random) {
  const std::string field = any_of<const char*>(random, {"q", "k", "v"});
  if (*input.shape.tokens == 0) return;
  std::vector<Index> index = any_row(input, field, random);
  const Index columns = columns_of(input, field);
  const auto set = [&](Index column, double value) {
    ValueEdit edit{field, index, value};
    edit.index.push_back(column);
    input.edits.push_back(std::move(edit));
  };
  if (random.one_in(3)) {  // a whole row of one size, or of zeros
    const double size = std::abs(special_value(random));
    for (Index c = 0; c < columns; ++c) set(c, size * random.sign());
    return;
  }
  for (Index n = 1 + below(random, 3); n > 0; --n) set(below(random, columns), special_value(random));
}

}  // namespace

Grammar::Grammar(const BatteryContext& context, bool value_alone)
    : context_(context), chunk_(context.chunk() <= longest / 2 ? context.chunk() : 16) {
  for (const Question question : all_questions)
    if (question == Question::value || (!value_alone && cannot_ask(context, question).empty()))
      questions_.push_back(question);
}

// Rarely what takes seconds.
Question Grammar::any_question(Random& random) const {
  for (;;) {
    const Question question = any(random, questions_);
    if (question == Question::width && !random.one_in(600)) continue;
    if (question == Question::containment && !random.one_in(2)) continue;
    return question;
  }
}

Index Grammar::any_tokens(Random& random) const {
  const Index c = chunk_;
  const Index edge =
      any_of<Index>(random, {0,         1,     2,         3,         c - 1,     c,         c + 1,
                             2 * c - 1, 2 * c, 2 * c + 1, 3 * c - 1, 3 * c,     3 * c + 1, 3 * c + c / 2,
                             4 * c - 1, 4 * c, 4 * c + 1, 5 * c + 3, 8 * c - 1, 8 * c,     8 * c + 1});
  const Index tokens = random.one_in(3) ? below(random, 4 * c + 2) : edge;
  return std::clamp<Index>(tokens, 0, longest);
}

void Grammar::pack(FuzzInput& input, Random& random) const {
  Case& c = input.shape;
  const Index tokens = *c.tokens, chunk = chunk_;
  c.batch = 1, c.packed = {0};
  for (Index n = below(random, 5); n > 0; --n) {
    const Index length = any_of<Index>(random, {0, 1, 3, chunk - 1, chunk, chunk + 1, chunk / 2 + 1});
    c.packed.push_back(std::min(tokens, c.packed.back() + length));
  }
  if (random.one_in(3)) c.packed.push_back(c.packed.back());
  c.packed.push_back(tokens);
  if (random.one_in(4)) c.packed.push_back(tokens);
}

void Grammar::draw_shape(FuzzInput& input, Random& random) const {
  Case& c = input.shape;
  c.tokens = any_tokens(random);
  // Beside tiles; what is too wide for a case is halved until it fits, and stays beside one.
  c.key_dim = any_of<Index>(random, {1, 2, 3, 5, 6, 7, 8, 8, 15, 17, 31, 33});
  c.value_dim = any_of<Index>(random, {1, 2, 3, 5, 6, 7, 8, 9, 33, 63, 65, 65});
  c.heads = any_of<Index>(random, {1, 2, 2, 4, 4, 9}), c.batch = any_of<Index>(random, {1, 1, 2, 3});
  c.heads_q = c.heads_k = c.heads_v = 0;
  c.packed.clear();
  for (Index* heads : {&c.heads_q, &c.heads_k, &c.heads_v})
    if (context_.has("grouped") && c.heads % 2 == 0 && random.one_in(3))
      *heads = random.one_in(2) ? 1 : c.heads / 2;
}

// What few kernels break at and most cannot afford often: widths of tiles, of few tokens; heads shared by three; many
// sequences; tokens beyond all edges of chunks, of few columns; keys and values of one width that kernels have code of
// their own for.
void Grammar::draw_rare(FuzzInput& input, Random& random) const {
  Case& c = input.shape;
  const auto few = [&] { return any_of<Index>(random, {1, 2, 3}); };
  c.batch = 1, c.heads = 1 + below(random, 2), c.heads_q = c.heads_k = c.heads_v = 0;
  c.key_dim = few(), c.value_dim = few(), c.packed.clear();
  input.before = std::min<Index>(input.before, 2);
  switch (random.below(7)) {
    case 0:
      c.key_dim = any_of<Index>(random, {48, 63, 64, 65, 127, 128}), c.tokens = 1 + few();
      break;
    case 1:
      c.value_dim = any_of<Index>(random, {63, 64, 65, 127, 128, 129}),
      c.tokens = any_of<Index>(random, {2, 3, chunk_ + 1});
      break;
    case 2:
      c.heads = 3 * (1 + below(random, 2)), c.tokens = any_of<Index>(random, {3, chunk_, chunk_ + 2});
      if (!context_.has("grouped")) return;
      *any_of<Index*>(random, {&c.heads_q, &c.heads_k, &c.heads_v}) = c.heads / 3;
      return;
    case 3:
      if (context_.has("varlen")) {
        c.packed = {0};
        for (Index n = 9 + below(random, 9); n > 0; --n)
          c.packed.push_back(c.packed.back() + below(random, 5));
        c.tokens = c.packed.back();
        return;
      }
      [[fallthrough]];
    case 4:
      c.tokens = any_of<Index>(random, {255, 256, 257, 400, 511, 513, 1023, 1025});
      if (is_lattice(input.question) && random.one_in(3))
        c.tokens = any_of<Index>(random, {257, 400}),
        c.key_dim = c.value_dim = any_of<Index>(random, {16, 32});
      break;
    default:
      draw_square(input, random);
  }
  meet(input, random);
}

// As wide as a few tokens can be afforded; of certified integers, which cost little, any, and three chunks.
void Grammar::draw_square(FuzzInput& input, Random& random) const {
  Case& c = input.shape;
  Index width = any_of<Index>(random, {16, 32, 64, widest_square});
  c.tokens = any_of<Index>(random, {3, chunk_ + 1, 2 * chunk_ + 1, 2 * chunk_ + 1});
  if (input.question == Question::lattice_again) width = std::min<Index>(width, 32);  // six calls
  if (width == widest_square && *c.tokens > chunk_ + 1) c.heads = 1;
  if (!is_lattice(input.question)) {
    if (width > 32) c.heads = 1;
    const Index most = most_work(input, rare_work);
    const auto tokens_of = [&](Index w) { return most / (2 * w * w * c.heads) - input.before; };
    while (width > 16 && tokens_of(width) < 2) width /= 2;
    c.tokens = std::clamp<Index>(tokens_of(width), 1, *c.tokens);
  }
  c.key_dim = c.value_dim = width;
}

// What is rare among several heads, sequences and batch entries.
void Grammar::meet(FuzzInput& input, Random& random) const {
  Case& c = input.shape;
  if (c.heads == 2 && context_.has("grouped") && random.one_in(4))
    *any_of<Index*>(random, {&c.heads_q, &c.heads_k, &c.heads_v}) = 1;
  if (context_.has("varlen") && random.one_in(4))
    c.packed = {0, below(random, std::min<Index>(*c.tokens, chunk_ + 2)), *c.tokens};
  else if (random.one_in(6))
    c.batch = 2;
}

void Grammar::draw_structure(FuzzInput& input, Random& random) const {
  const bool separate = input.question == Question::separate && input.shape.batch == 1;
  if (context_.has("varlen") && (separate || random.one_in(3))) pack(input, random);
  input.before = 0;
  if (context_.has("initial_state") && !context_.declaration().moments.empty() && random.one_in(3))
    input.before = any_of<Index>(random, {1, 2, 3, 5, chunk_ - 1, chunk_, chunk_ + 1});
}

void Grammar::draw_options(FuzzInput& input, Random& random) const {
  const Declaration& d = context_.declaration();
  Options& o = input.shape.options;
  o = {};
  if (is_lattice(input.question)) {
    if (d.unit_scale && random.one_in(4)) o.scale = Rational(any_of<Index>(random, {2, 2, -1, -2}));
    if (d.ridge && random.one_in(4)) o.ridge = Rational(2);
    // Of gradients, whose decays are 1 and 0 by head where there is no such option.
    if (d.decay && input.question == Question::gradient && random.one_in(2)) o.decay = Rational(1);
    return;
  }
  if (d.decay && random.one_in(2)) {
    const Index numerator = any_of<Index>(random, {0, 1, 32, 48, 62, 63, 64});
    o.decay = Rational(numerator) / 64;
  }
  if (d.unit_scale && random.one_in(4)) o.scale = Rational(any_of<Index>(random, {1, 5, 32, -5, -16})) / 16;
  if (d.ridge && random.one_in(4)) o.ridge = Rational(1) / 2;
  if (!d.normalize || !random.one_in(6)) return;
  o.normalize = true, o.epsilon = Rational(1) / any_of<Index>(random, {4, 4, 4, 16, 1024}),
  input.shape.recipe = "uniform";
  if (o.scale && *o.scale < 0) o.scale = -*o.scale;  // of a normaliser that must not come near 0
}

// One profile for all heads, or for one among others that stay as they were drawn.
void Grammar::draw_gates(FuzzInput& input, Random& random) const {
  std::erase_if(input.edits, [](const ValueEdit& e) { return e.field == "g"; });
  if (!context_.declaration().gates || is_lattice(input.question) || random.one_in(2)) return;
  const Case& c = input.shape;
  const double size = any_of<double>(random, {-1e-3, -1, -3, -5, -20, -100, -1e4, -INFINITY});
  if (!admits(context_.kernel.limits, "g", size) || !admits(context_.kernel.limits, "g", 0)) return;
  const auto profile = random.below(4);
  const Index only = random.one_in(2) ? below(random, c.heads) : -1,
              step = below(random, std::max<Index>(*c.tokens, 1));
  for (Index b = 0; b < c.batch; ++b)
    for (Index t = 0; t < *c.tokens; ++t)
      for (Index h = 0; h < c.heads; ++h) {
        if (only >= 0 && h != only) continue;
        const bool strong = profile == 0 || (profile == 1 && t == step) || (profile == 2 && t >= step) ||
                            (profile == 3 && t % 2 == 0);
        input.edits.push_back({"g", {b, t, h}, strong ? size : 0});
      }
}

// Something that is no number.
void Grammar::spoil(FuzzInput& input, Random& random) const {
  std::erase_if(input.edits, [](const ValueEdit& e) { return !std::isfinite(e.value); });
  input.shape.recipe = "uniform", input.powers.clear();
  if (*input.shape.tokens == 0)
    input.shape.tokens = size_within(context_.kernel, "t", 3), input.shape.packed.clear();
  const std::string field = any_of<const char*>(random, {"q", "k", "v"});
  std::vector<Index> index = any_row(input, field, random);
  index.push_back(below(random, columns_of(input, field)));
  const bool infinite = random.one_in(2) && (context_.declaration().exact || field == "v");
  input.edits.push_back({field, index, infinite ? static_cast<double>(INFINITY) : std::nan("")});
}

// At least so much.
Index Grammar::most_work(const FuzzInput& input, Index least_work) const {
  const Case& c = input.shape;
  const bool by_intervals = context_.declaration().beta || input.before > 0 || c.options.ridge != 0 ||
                            input.question == Question::containment || context_.declaration().moments.empty();
  if (input.question == Question::gradient) return std::max(least_work, gradient_work);
  // Their truth is found at a few columns.
  if (is_lattice(input.question) && c.key_dim == c.value_dim && c.key_dim % 16 == 0)
    return (2 * chunk_ + 4) * 2 * widest_square * widest_square;
  return std::max(least_work, is_lattice(input.question) ? exact_work
                              : by_intervals             ? interval_work
                                                         : sum_work);
}

// No more work than milliseconds, and a packing that fits.
void Grammar::fit(FuzzInput& input, Index least_work) const {
  Case& c = input.shape;
  keep_within_limits(context_.kernel, c);
  if (!c.packed.empty() && (c.batch != 1 || c.packed.back() != *c.tokens)) c.packed.clear();
  const Index most = most_work(input, least_work);
  const auto too_much = [&] {
    const Index sequences = c.packed.empty() ? c.batch : static_cast<Index>(c.packed.size()) - 1;
    const Index tokens = *c.tokens * c.batch + input.before * sequences;
    return tokens * c.heads * c.key_dim * (c.key_dim + c.value_dim) > most;
  };
  // Half as large, or as small as the limits admit.
  const auto reduce = [&](const char* name, Index& n) {
    for (const Index wanted : {std::max<Index>(1, n / 2), Index(1)})
      if (const Index smaller = size_within(context_.kernel, name, wanted); smaller < n) {
        n = smaller;
        return true;
      }
    return false;
  };
  const auto reduce_heads = [&] {
    if (c.heads <= 2 || !reduce("h", c.heads)) return false;
    c.heads_q = c.heads_k = c.heads_v = 0;
    return true;
  };
  const auto reduce_columns = [&] {
    if (c.key_dim + c.value_dim <= 4) return false;
    return (c.key_dim > 2 && reduce("d", c.key_dim)) || (c.value_dim > 1 && reduce("dv", c.value_dim));
  };
  const auto reduce_tokens = [&] {
    if (*c.tokens <= 4 || !reduce("t", *c.tokens)) return false;
    c.packed.clear();
    return true;
  };
  while (too_much() &&
         ((c.batch > 1 && reduce("b", c.batch)) || reduce_heads() || reduce_columns() || reduce_tokens())) {
  }
}

FuzzInput Grammar::of_battery(Question question, Random& random) const {
  FuzzInput input;
  Case& c = input.shape;
  c.op = context_.declaration().name, c.variant = context_.declaration().variant;
  c.tokens = c.key_dim = c.value_dim = 1;
  c.seed = random.bits() >> 16;
  input.question = question;
  return input;
}

FuzzInput Grammar::draw(Random& random, std::optional<Index> tokens) const {
  FuzzInput input;
  Case& c = input.shape;
  c.op = context_.declaration().name, c.variant = context_.declaration().variant;
  input.question = any_question(random);
  if (is_battery(input.question)) return of_battery(input.question, random);
  c.seed = random.bits() >> 16;
  draw_shape(input, random);
  if (tokens) c.tokens = tokens;
  draw_structure(input, random);
  const bool rare = random.one_in(8) && input.question != Question::gradient && !tokens;
  if (rare) draw_rare(input, random);
  c.recipe = any(random, recipes()).name, c.gates = any(random, gate_recipes()).name;
  draw_options(input, random);
  if (!is_lattice(input.question)) {
    for (const char* field : {"q", "k", "v"})
      if (random.one_in(6)) input.powers[field] = any_of<int>(random, {-20, -14, -7, 3, 8, 12});
    if (random.one_in(4)) edit_values(input, random);
    input.linear_gates = context_.declaration().gates && random.one_in(10);
  }
  fit(input, rare ? rare_work : 0);
  draw_gates(input, random);
  if (input.question == Question::containment) spoil(input, random);
  return input;
}

FuzzInput Grammar::few_roundings(Random& random) const {
  FuzzInput input;
  Case& c = input.shape;
  c.op = context_.declaration().name, c.variant = context_.declaration().variant;
  c.seed = random.bits() >> 16;
  c.tokens = any_of<Index>(random, {1, 1, 2, 3}), c.key_dim = any_of<Index>(random, {1, 1, 2});
  c.value_dim = any_of<Index>(random, {16, 64, 128}), c.heads = 8, c.batch = any_of<Index>(random, {4, 16});
  c.recipe = any(random, recipes()).name, c.gates = any(random, gate_recipes()).name;
  draw_options(input, random);
  keep_within_limits(context_.kernel, c);
  return input;
}

FuzzInput Grammar::plain(Random& random) const {
  FuzzInput input;
  Case& c = input.shape;
  c.op = context_.declaration().name, c.variant = context_.declaration().variant;
  do input.question = any(random, questions_);
  while (input.question == Question::width);
  c.seed = random.bits() >> 16;
  c.tokens = 1 + below(random, 4 * chunk_);
  c.key_dim = 1 + below(random, 16), c.value_dim = 1 + below(random, 16);
  c.heads = 1 + below(random, 4), c.batch = 1 + below(random, 2);
  c.recipe = any(random, recipes()).name, c.gates = any(random, gate_recipes()).name;
  const auto coin = [&] { return random.one_in(2); };
  if (context_.has("grouped") && coin()) c.heads_k = 1;
  if (context_.has("varlen") && coin()) {
    c.batch = 1, c.packed = {0, below(random, *c.tokens + 1), *c.tokens};
  }
  if (context_.has("initial_state") && !context_.declaration().moments.empty() && coin())
    input.before = 1 + below(random, chunk_);
  const Declaration& d = context_.declaration();
  if (!is_lattice(input.question)) {
    if (d.decay && coin()) c.options.decay = Rational(below(random, 65)) / 64;
    if (d.unit_scale && coin()) c.options.scale = Rational(1 + below(random, 64)) / 16;
    if (d.ridge && coin()) c.options.ridge = Rational(below(random, 65)) / 16;
    if (d.normalize && coin()) c.options.normalize = true, c.options.epsilon = Rational(1) / 4;
  }
  fit(input);
  if (input.question == Question::containment) spoil(input, random);
  return input;
}

FuzzInput Grammar::mutate_values(FuzzInput input, Random& random) const {
  if (!has_free_values(input)) return mutate(std::move(input), random);
  for (Index n = 1 + below(random, 3); n > 0; --n) {
    if (!input.edits.empty() && random.one_in(3)) {
      ValueEdit& edit = input.edits[random.below(input.edits.size())];
      if (edit.field.size() == 1 && edit.field != "g")
        edit.value = random.one_in(2) ? -edit.value : edit.value * (1 + random.uniform(-0.25, 0.25));
    } else {
      edit_values(input, random);
    }
  }
  return input;
}

FuzzInput Grammar::mutate(FuzzInput input, Random& random) const {
  if (is_battery(input.question)) return of_battery(input.question, random);
  // Of what is spelled out the values alone say something; those of certified integers hardly stay certified.
  if (input.zeros) return has_free_values(input) ? mutate_values(std::move(input), random) : draw(random);
  Case& c = input.shape;
  for (Index n = 1 + below(random, 3); n > 0; --n) switch (random.below(10)) {
      case 0:
        c.seed = random.bits() >> 16;
        break;
      case 1:
        c.tokens = any_tokens(random), c.packed.clear();
        break;
      case 2: {
        FuzzInput other = input;
        draw_shape(other, random);
        c.key_dim = other.shape.key_dim, c.value_dim = other.shape.value_dim;
        break;
      }
      case 3:
        draw_shape(input, random);
        break;
      case 4:
        draw_structure(input, random);
        break;
      case 5:
        c.recipe = any(random, recipes()).name;
        break;
      case 6:
        c.gates = any(random, gate_recipes()).name;
        draw_gates(input, random);
        break;
      case 7:
        draw_options(input, random);
        break;
      case 8:
        if (!is_lattice(input.question))
          input.powers[any_of<const char*>(random, {"q", "k", "v"})] =
              static_cast<int>(random.below(33)) - 20;
        break;
      default:
        if (!is_lattice(input.question)) edit_values(input, random);
        break;
    }
  fit(input);
  if (input.question == Question::containment) spoil(input, random);
  return input;
}

}  // namespace attest
