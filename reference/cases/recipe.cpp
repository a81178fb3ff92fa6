#include "reference/cases/recipe.hpp"

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/cases/random.hpp"
#include "reference/numeric/format.hpp"

namespace attest {
namespace {

// f(x) rounded once to double.
double by_mpfr(int (*f)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t), double x) {
  mpfr_t value;
  mpfr_init2(value, 53);
  mpfr_set_d(value, x, MPFR_RNDN);
  f(value, value, MPFR_RNDN);
  const double result = mpfr_get_d(value, MPFR_RNDN);
  mpfr_clear(value);
  return result;
}
double exponential(double x) { return by_mpfr(mpfr_exp, x); }
double logarithm(double x) { return by_mpfr(mpfr_log, x); }

// One row (a token of a head) at a time: x has the size of the last dimension, t is the token.
using DrawRow = std::function<void(Random& random, double* x, Index size, Index t)>;

template <class F>
DrawRow each(F draw_entry) {
  return [=](Random& random, double* x, Index size, Index t) {
    for (Index i = 0; i < size; ++i) x[i] = draw_entry(random, t);
  };
}

double finite_bf16(Random& random) {
  for (;;)
    if (const double x = decode(bf16, random.below(1u << 16)); std::isfinite(x)) return x;
}

struct Recipe {
  RecipeInfo info;
  DrawRow draw;
};

double power(int exponent) { return power_of_two(exponent); }

const std::vector<Recipe>& table() {
  static const std::vector<Recipe> made = {
      {{"gaussian", "independent, mean 0, variance 1 (sum of twelve uniforms)"},
       each([](Random& r, Index) { return r.gaussian(); })},
      {{"uniform", "independent, uniform in [-1, 1)"},
       each([](Random& r, Index) { return r.uniform(-1, 1); })},
      {{"heavy", "gaussian divided by a uniform of [1/1024, 1): tails that fall like 1/x^2"},
       each([](Random& r, Index) {
         const double x = r.gaussian();
         return x / r.uniform(0x1p-10, 1);
       })},
      {{"bits", "every finite bit pattern of bf16 equally likely", false},
       each([](Random& r, Index) { return finite_bf16(r); })},
      {{"range", "significand uniform in [1, 2), exponent uniform in -12..12, random sign"},
       each([](Random& r, Index) {
         const double sign = r.sign(), significand = r.uniform(1, 2);
         return sign * significand * power(static_cast<int>(r.below(25)) - 12);
       })},
      {{"denormal", "half of the entries subnormal in fp16, bf16 or fp32, the others gaussian", false},
       each([](Random& r, Index) {
         const double x = r.gaussian();
         const std::uint64_t kind = r.below(4);
         return kind == 0 ? x * 0x1p-18 : kind == 1 ? x * 0x1p-130 : x;
       })},
      {{"cancellation",
        "tokens in pairs of nearly opposite values: the second is 1/64 gaussian less the first", false},
       [previous = std::vector<double>()](Random& r, double* x, Index size, Index t) mutable {
         previous.resize(static_cast<std::size_t>(size));
         for (Index i = 0; i < size; ++i) {
           const auto at = static_cast<std::size_t>(i);
           const double fresh = r.gaussian();
           x[i] = t % 2 == 0 ? fresh : fresh / 64 - previous[at];
           previous[at] = x[i];
         }
       }},
      {{"correlated", "one gaussian direction common to all tokens, plus 1/8 gaussian", false},
       [common = std::vector<double>()](Random& r, double* x, Index size, Index t) mutable {
         if (t == 0) common.clear();
         while (static_cast<Index>(common.size()) < size) common.push_back(r.gaussian());
         for (Index i = 0; i < size; ++i) x[i] = common[static_cast<std::size_t>(i)] + r.gaussian() / 8;
       }},
      {{"repeated", "tokens from a vocabulary of four gaussian vectors", false},
       [words = std::vector<double>()](Random& r, double* x, Index size, Index t) mutable {
         if (t == 0) words.clear();
         while (static_cast<Index>(words.size()) < 4 * size) words.push_back(r.gaussian());
         const auto word = static_cast<Index>(r.below(4));
         for (Index i = 0; i < size; ++i) x[i] = words[static_cast<std::size_t>(word * size + i)];
       }},
      {{"sparse", "seven entries in eight are 0, the others gaussian", false}, each([](Random& r, Index) {
         const double x = r.gaussian();
         return r.one_in(8) ? x : 0.0;
       })},
      {{"growing", "gaussian times 1 + t/16: norms that grow with the position"},
       each([](Random& r, Index t) { return r.gaussian() * (1 + static_cast<double>(t) / 16); })},
  };
  return made;
}

const RecipeInfo* find(const std::vector<RecipeInfo>& list, std::string_view name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const RecipeInfo& r) { return r.name == name; });
  return found == list.end() ? nullptr : &*found;
}

Index count(const std::vector<Index>& shape) {
  Index product = 1;
  for (const Index n : shape) product *= n;
  return product;
}

double published_gate(Random& r, std::string_view field, double a) {
  if (field == "g") {
    const double low = logarithm(1e-3), high = logarithm(1e-1);
    return -a * exponential(r.uniform(low, high));
  }
  if (field == "beta") return 1 / (1 + exponential(-r.gaussian()));
  return logarithm(1 + exponential(r.gaussian()));  // level_scales
}

double uniform_gate(Random& r, std::string_view field) {
  if (field == "g") return -r.uniform();
  return field == "beta" ? r.uniform() : r.uniform(-1, 1);
}

double extreme_gate(Random& r, std::string_view field) {
  constexpr double gates[] = {0, -0x1p-20, -1, -20, -100}, betas[] = {0, 1, 0x1p-12, 1 - 0x1p-8},
                   scales[] = {0, 1, -1, 2, 0x1p-12};
  if (field == "g") return gates[r.below(5)];
  return field == "beta" ? betas[r.below(4)] : scales[r.below(5)];
}

}  // namespace

const std::vector<RecipeInfo>& recipes() {
  static const std::vector<RecipeInfo> list = [] {
    std::vector<RecipeInfo> names;
    for (const Recipe& recipe : table()) names.push_back(recipe.info);
    return names;
  }();
  return list;
}

const std::vector<RecipeInfo>& gate_recipes() {
  static const std::vector<RecipeInfo> list = {
      {"published", "as Mamba-2, Gated DeltaNet, RetNet and log-linear attention initialise them"},
      {"uniform", "g in (-1, 0], beta in [0, 1), level scales in [-1, 1), decay in [1/2, 1)"},
      {"extreme",
       "g among 0, -2^-20, -1, -20, -100; beta among 0, 1, 2^-12, 1 - 2^-8; level scales among 0, 1, -1, 2, "
       "2^-12; decay 1 and 1/2 in turn",
       false},
      {"none", "g = 0, beta = 1, level scales 1, no decay", false},
  };
  return list;
}

const RecipeInfo* find_recipe(std::string_view name) { return find(recipes(), name); }
const RecipeInfo* find_gate_recipe(std::string_view name) { return find(gate_recipes(), name); }

Tensor draw(const RecipeInfo& recipe, std::string_view field, std::vector<Index> shape, std::uint64_t seed) {
  const auto entry = std::find_if(table().begin(), table().end(),
                                  [&](const Recipe& r) { return r.info.name == recipe.name; });
  const Index batch = shape.at(0), tokens = shape.at(1), heads = shape.at(2), size = shape.at(3);
  Tensor tensor{std::move(shape), {}};
  tensor.data.resize(static_cast<std::size_t>(count(tensor.shape)));
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h) {
      // A stream of its own for every head, so that a longer sequence begins like a shorter one.
      Random random(seed, std::string(field) + '/' + std::to_string(b) + '/' + std::to_string(h));
      DrawRow draw_row = entry->draw;  // a copy: recipes remember the token before
      for (Index t = 0; t < tokens; ++t)
        draw_row(random, tensor.data.data() + ((b * tokens + t) * heads + h) * size, size, t);
    }
  return tensor;
}

Tensor draw_gate(const RecipeInfo& recipe, std::string_view field, std::vector<Index> shape,
                 std::uint64_t seed) {
  Tensor tensor{std::move(shape), {}};
  tensor.data.resize(static_cast<std::size_t>(count(tensor.shape)));
  if (field == "decay") {
    Random random(seed, "decay");
    for (std::size_t h = 0; h < tensor.data.size(); ++h)
      tensor.data[h] = recipe.name == "published"
                           ? 1 - power(-5 - static_cast<int>(std::min<std::size_t>(h, 18)))
                       : recipe.name == "uniform" ? random.uniform(0.5, 1)
                       : recipe.name == "extreme" ? (h % 2 == 0 ? 1 : 0.5)
                                                  : 1;
    return tensor;
  }
  const Index batch = tensor.shape.at(0), tokens = tensor.shape.at(1), heads = tensor.shape.at(2);
  const Index size = tensor.shape.size() == 4 ? tensor.shape[3] : 1;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h) {
      Random random(seed, std::string(field) + '/' + std::to_string(b) + '/' + std::to_string(h));
      const double a = random.uniform(1, 16);
      for (Index t = 0; t < tokens; ++t)
        for (Index i = 0; i < size; ++i)
          tensor.data[static_cast<std::size_t>(((b * tokens + t) * heads + h) * size + i)] =
              recipe.name == "published" ? published_gate(random, field, a)
              : recipe.name == "uniform" ? uniform_gate(random, field)
              : recipe.name == "extreme" ? extreme_gate(random, field)
                                         : (field == "g" ? 0 : 1);
    }
  return tensor;
}

void normalise_rows(Tensor& tensor) {
  const auto size = static_cast<std::size_t>(tensor.shape.back());
  for (std::size_t row = 0; size > 0 && row + size <= tensor.data.size(); row += size) {
    double square = 0;
    for (std::size_t i = 0; i < size; ++i) square += tensor.data[row + i] * tensor.data[row + i];
    const double norm = std::sqrt(square);
    for (std::size_t i = 0; norm > 0 && i < size; ++i) tensor.data[row + i] /= norm;
  }
}

}  // namespace attest
