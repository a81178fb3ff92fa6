#include "fuzz/features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/cases/random.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

// "0", "1", "<C", "C-1", "C", "C+1", "nC-1", "nC", "nC+1", "nC+r".
std::string tokens_word(Index tokens, Index chunk) {
  if (tokens < 2) return std::to_string(tokens);
  const Index chunks = (tokens + 1) / chunk, rest = tokens + 1 - chunks * chunk;
  if (chunks == 0) return "<C";
  const std::string many = chunks == 1 ? "C" : chunks < 4 ? std::to_string(chunks) + "C" : "nC";
  return many + (rest == 0 ? "-1" : rest == 1 ? "" : rest == 2 ? "+1" : "+r");
}

std::string levels_word(const Declaration& d, const FuzzInput& input) {
  if (!d.level_scales) return input.shape.packed.empty() ? "one_sequence" : "packed";
  return fmt::format("{}_levels{}",
                     1 + std::popcount(static_cast<std::uint64_t>(*input.shape.tokens + input.before)),
                     input.shape.packed.empty() ? "" : "_packed");
}

// 0, 4, 16, 64, 256 ...: the power of four above.
std::string span_word(int span) {
  int step = 1;
  while (step < span) step *= 4;
  return span <= 0 ? "2^0" : fmt::format("2^{}", step);
}

std::string exponents_word(const Problem& problem) {
  int least = 1 << 20, most = -least;
  for (const char* name : {"q", "k", "v"})
    for (const double x : problem.fields.at(name).data)
      if (x != 0 && std::isfinite(x))
        least = std::min(least, std::ilogb(x)), most = std::max(most, std::ilogb(x));
  return span_word(most - least);
}

std::string decay_word(const Problem& problem) {
  double gamma = problem.options.decay ? nearest_double(*problem.options.decay) : 1;
  if (const Tensor* field = problem.field("decay"); field && !field->data.empty())
    gamma = *std::min_element(field->data.begin(), field->data.end());
  return gamma == 1 ? "open" : gamma > 0.9 ? "mild" : gamma > 0 ? "strong" : "closed";
}

std::string gates_word(const Declaration& d, const Problem& problem) {
  if (d.decay) return decay_word(problem);
  const Tensor* g = problem.field("g");
  if (!g || g->data.empty()) return "none";
  const auto [least, most] = std::minmax_element(g->data.begin(), g->data.end());
  if (*least == 0) return "open";
  if (*least < -20) return *most > -1 ? "mixed" : "closed";
  return *least < -1 ? "strong" : "mild";
}

double total(const Tensor& tensor) {
  double sum = 0;
  for (const double x : tensor.data) sum += std::abs(x);
  return sum;
}

// Of the sums over all outputs: one number, from two streams in double.
std::string cancellation_word(const BatteryContext& context, const Problem& problem) {
  if (problem.options.normalize || context.declaration().moments.empty()) return "2^0";
  Problem sizes = problem;
  for (auto& [name, tensor] : sizes.fields)
    if (name != "g")
      std::transform(tensor.data.begin(), tensor.data.end(), tensor.data.begin(),
                     [](double x) { return std::abs(x); });
  Arithmetic<double> exact;
  const auto size = [&](const Problem& p) {
    return total(run<double>(context.op, p, {Form::stream, 0, 0}, exact).at("o"));
  };
  const double ratio = size(sizes) / size(problem);
  return std::isfinite(ratio) && ratio > 1 ? span_word(std::ilogb(ratio)) : "2^0";
}

std::string bucket(Index n, std::initializer_list<Index> edges) {
  Index last = 0;
  for (const Index edge : edges)
    if (n >= edge) last = edge;
  return std::to_string(last);
}

// What is drawn rarely.
std::string rare_word(const FuzzInput& input) {
  const Case& c = input.shape;
  std::string word = c.packed.size() > 8 ? "many" : *c.tokens > 256 ? "long" : "-";
  if (c.heads % 3 == 0 && c.heads < 9 && (c.heads_q || c.heads_k || c.heads_v)) word += "_by_three";
  if (input.linear_gates) word += "_linear_gates";
  if (c.options.normalize && c.options.epsilon != Rational(1) / 4) word += "_epsilon";
  return word;
}

std::string edits_word(const FuzzInput& input) {
  std::string word = "drawn";
  for (const ValueEdit& edit : input.edits)
    if (edit.field == "g")
      return "edited_gates";
    else
      word = "edited";
  return word;
}

}  // namespace

std::string cell_of(const BatteryContext& context, const FuzzInput& input, const Problem& problem) {
  const Declaration& d = context.declaration();
  return fmt::format("{} T={} {} {} {} {}", question_name(input.question),
                     tokens_word(problem.tokens, context.chunk()), levels_word(d, input),
                     exponents_word(problem), gates_word(d, problem),
                     is_lattice(input.question) || input.question == Question::containment
                         ? "2^0"
                         : cancellation_word(context, problem));
}

std::vector<std::string> traits_of(const BatteryContext& context, const FuzzInput& input) {
  const Case& c = input.shape;
  const Options& o = c.options;
  std::string powers;
  for (const auto& [name, power] : input.powers) powers += name + (power < 0 ? "-" : "+");
  return {std::string(question_name(input.question)),
          tokens_word(*c.tokens, context.chunk()),
          levels_word(context.declaration(), input),
          input.before == 0 ? "fresh" : "continued_" + tokens_word(input.before, context.chunk()),
          "d" + bucket(c.key_dim, {1, 2, 8, 32, 48, 64, 65, 128, 129}) + (c.key_dim % 2 ? "odd" : ""),
          "dv" + bucket(c.value_dim, {1, 2, 8, 32, 64, 65, 128, 129}) + (c.value_dim % 2 ? "odd" : ""),
          "H" + bucket(c.heads, {1, 2, 4, 9}),
          "B" + bucket(c.batch, {1, 2}),
          fmt::format("q{}k{}v{}", c.heads_q != 0, c.heads_k != 0, c.heads_v != 0),
          is_lattice(input.question) ? "-" : c.recipe,
          is_lattice(input.question) ? "-" : c.gates,
          fmt::format("scale{} ridge{} normalize{}", o.scale.has_value(), o.ridge != 0, o.normalize),
          o.decay ? "decay" + to_text(*o.decay) : "-",
          powers,
          edits_word(input),
          rare_word(input)};
}

// Of all the work of a hunt that only one process can do, this is the most.
std::vector<std::uint64_t> pairs_of(const std::vector<std::string>& traits) {
  std::vector<std::uint64_t> numbers, pairs;
  for (const std::string& trait : traits) numbers.push_back(Random(numbers.size(), trait).bits());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t j = i; j < numbers.size(); ++j)
      pairs.push_back(Random(numbers[i] + Random(numbers[j]).bits()).bits());
  return pairs;
}

}  // namespace attest
