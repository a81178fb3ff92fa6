#include "reference/forms/load_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "reference/forms/batch.hpp"

namespace attest {
namespace {

constexpr double largest_position = 1099511627776.0;  // 2^40

template <class List>
std::string joined(const List& list) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "" : ", ") + std::string(entry);
  return text;
}

// Every name that some operator takes.
const std::set<std::string>& known_fields() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all{"q",
                              "k",
                              "v",
                              "g",
                              "alpha",
                              "beta",
                              "level_scales",
                              "decay",
                              "cu_seqlens",
                              "do",
                              "initial_state.position"};
    for (const Operator* op : all_operators())
      for (const Moment& moment : op->declaration().moments)
        for (const std::string& name : {moment.name, moment.normaliser})
          if (!name.empty()) all.insert("initial_state." + name), all.insert("dfinal_state." + name);
    return all;
  }();
  return names;
}

bool holds_integers(const std::string& name) {
  return name == "cu_seqlens" || name == "initial_state.position";
}

class Builder {
 public:
  Builder(Tensors fields, const Declaration& declaration, const Options& options, std::string label,
          Cotangents cotangents)
      : given_(std::move(fields)),
        declaration_(declaration),
        label_(std::move(label)),
        cotangents_(cotangents) {
    problem_.options = options;
  }

  Problem build() {
    for (const auto& [name, tensor] : given_)
      if (!known_fields().contains(name))
        fail(name, "no operator knows this field, expected of: " + joined(known_fields()));
    if (given_.contains("g") && given_.contains("alpha"))
      fail("g", "given together with \"alpha\", expected one of the two");
    take_inputs();
    take_decay();
    take_sequences();
    take_states("initial_state.", false);
    take_position();
    check_levels();
    if (cotangents_ == Cotangents::required) take_cotangents();
    for (const auto& [name, tensor] : given_)
      if (name != "do" && !name.starts_with("dfinal_state.")) problem_.ignored.push_back(name);
    return std::move(problem_);
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw BadInput(fmt::format("{}: tensor {}: {}", label_, in_quotes(name), what));
  }
  // Moves a field from what was given into the problem.
  Tensor* take(const std::string& name) {
    const auto found = given_.find(name);
    if (found == given_.end()) return nullptr;
    Tensor& taken = problem_.fields[name] = std::move(found->second);
    given_.erase(found);
    return &taken;
  }
  Tensor& need(const std::string& name, const std::string& expected) {
    Tensor* tensor = take(name);
    if (!tensor) fail(name, fmt::format("missing, expected {} for {}", expected, declaration_.name));
    return *tensor;
  }
  void expect_shape(const std::string& name, const std::vector<Index>& expected,
                    const std::string& meaning) const {
    const Tensor& tensor = problem_.fields.at(name);
    if (tensor.shape != expected)
      fail(name, fmt::format("shape {}, expected {} = {}", shape_text(tensor.shape), meaning,
                             shape_text(expected)));
  }
  void expect_each(const std::string& name, bool (*legal)(double), const char* expected) const {
    const std::vector<double>& data = problem_.fields.at(name).data;
    for (std::size_t i = 0; i < data.size(); ++i)
      if (!legal(data[i]))
        fail(name, fmt::format("the value {} at flat index {}, expected {}", data[i], i, expected));
  }

  // [T, ...] becomes [1, T, 1, ...]; sets or checks B and T and raises H.
  void take_tokens(const std::string& name, std::size_t rank, const char* layout) {
    Tensor& tensor = need(name, layout);
    const std::vector<Index> found = tensor.shape;
    if (found.size() + 2 == rank) {
      tensor.shape.insert(tensor.shape.begin(), 1);
      tensor.shape.insert(tensor.shape.begin() + 2, 1);
    } else if (found.size() != rank) {
      fail(name, fmt::format("shape {}, expected {}", shape_text(found), layout));
    }
    if (name == "q") problem_.batch = tensor.shape[0], problem_.tokens = tensor.shape[1];
    for (std::size_t axis = 0; axis < rank; ++axis)
      if (axis != 1 && tensor.shape[axis] == 0)
        fail(name, fmt::format("shape {}, expected {} with {} at least 1", shape_text(found), layout,
                               axis == 0   ? "B"
                               : axis == 2 ? "H"
                                           : "the last size"));
    if (tensor.shape[0] != problem_.batch || tensor.shape[1] != problem_.tokens)
      fail(name, fmt::format("shape {}, expected {} with B={} T={} as in \"q\"", shape_text(found), layout,
                             problem_.batch, problem_.tokens));
    problem_.heads = std::max(problem_.heads, tensor.shape[2]);
  }
  void take_inputs() {
    for (const char* name : {"q", "k", "v"}) take_tokens(name, 4, "[B, T, H, D] or [T, D]");
    problem_.key_dim = problem_.fields["q"].shape[3];
    problem_.value_dim = problem_.fields["v"].shape[3];
    if (problem_.fields["k"].shape[3] != problem_.key_dim)
      fail("k", fmt::format("last size {}, expected {} as in \"q\"", problem_.fields["k"].shape[3],
                            problem_.key_dim));
    std::vector<std::string> per_token;
    if (declaration_.gates) {
      if (!given_.contains("g") && !given_.contains("alpha"))
        fail("g",
             fmt::format("missing, expected \"g\" (log-gate) or \"alpha\" (linear gate) [B, T, H] for {}",
                         declaration_.name));
      per_token.push_back(given_.contains("g") ? "g" : "alpha");
    }
    if (declaration_.beta) per_token.push_back("beta");
    for (const std::string& name : per_token) take_tokens(name, 3, "[B, T, H] or [T]");
    if (declaration_.level_scales) {
      take_tokens("level_scales", 4, "[B, T, H, L] or [T, L]");
      problem_.levels = problem_.fields["level_scales"].shape[3];
      per_token.push_back("level_scales");
    }
    for (const char* name : {"q", "k", "v"})
      if (const Index heads = problem_.fields[name].shape[2]; problem_.heads % heads != 0)
        fail(name, fmt::format("{} heads, expected a number that divides H={}", heads, problem_.heads));
    for (const std::string& name : per_token)
      if (const Index heads = problem_.fields[name].shape[2]; heads != problem_.heads)
        fail(name, fmt::format("{} heads, expected H={}", heads, problem_.heads));
    check_domains();
  }
  void check_domains() const {
    if (problem_.field("g"))
      expect_each(
          "g", [](double x) { return x <= 0; }, "a log-gate <= 0 (-inf is legal)");
    if (problem_.field("alpha"))
      expect_each(
          "alpha", [](double x) { return x >= 0 && x <= 1; }, "a linear gate in [0, 1]");
    for (const char* name : {"beta", "level_scales"})
      if (problem_.field(name))
        expect_each(
            name, [](double x) { return std::isfinite(x); }, "a finite number");
  }
  void take_decay() {
    const std::optional<Rational>& option = problem_.options.decay;
    if (option && (*option < 0 || *option > 1))
      throw BadInput(fmt::format("option decay={}: expected a number in [0, 1]", to_text(*option)));
    if (!declaration_.decay) return;
    if (!take("decay")) return;
    if (option) fail("decay", "given together with the option decay, expected one of the two");
    expect_shape("decay", {problem_.heads}, "[H]");
    expect_each(
        "decay", [](double x) { return x >= 0 && x <= 1; }, "a decay in [0, 1]");
  }
  void expect_whole(const std::string& name) const {
    expect_each(
        name, [](double x) { return x >= 0 && x <= largest_position && x == std::floor(x); },
        "a whole number from 0 to 2^40");
  }
  void take_sequences() {
    const Tensor* ends = take("cu_seqlens");
    if (!ends) return;
    if (ends->shape.size() != 1 || ends->shape[0] < 2)
      fail("cu_seqlens", fmt::format("shape {}, expected [N+1] with N at least 1", shape_text(ends->shape)));
    if (problem_.batch != 1)
      fail("cu_seqlens", fmt::format("B={}, expected packed sequences in tensors with B=1", problem_.batch));
    expect_whole("cu_seqlens");
    for (double end : ends->data) problem_.cu_seqlens.push_back(static_cast<Index>(end));
    const std::vector<Index>& list = problem_.cu_seqlens;
    if (list.front() != 0) fail("cu_seqlens", fmt::format("starts with {}, expected 0", list.front()));
    for (std::size_t i = 1; i < list.size(); ++i)
      if (list[i] < list[i - 1])
        fail("cu_seqlens", fmt::format("decreases from {} to {} at index {}, expected ascending ends",
                                       list[i - 1], list[i], i));
    if (list.back() != problem_.tokens)
      fail("cu_seqlens", fmt::format("ends with {}, expected T={}", list.back(), problem_.tokens));
  }

  // All moments of the state or none; the normalisers belong to it where a ratio is taken.
  void take_states(const std::string& prefix, bool partial) {
    bool any = false;
    for (const Moment& moment : declaration_.moments)
      any |= given_.contains(prefix + moment.name) || given_.contains(prefix + moment.normaliser);
    if (!any) return;
    const Index n = problem_.sequences(), h = problem_.heads, d = problem_.key_dim;
    for (const Moment& moment : declaration_.moments) {
      const Index columns = moment.value_columns ? problem_.value_dim : d;
      const char* meaning = declaration_.level_scales ? "[N, H, L, d, dv]"
                            : moment.value_columns    ? "[N, H, d, dv]"
                                                      : "[N, H, d, d]";
      std::vector<Index> shape{n, h};
      if (declaration_.level_scales)
        shape.push_back(partial ? final_levels(problem_, declaration_) : state_levels(prefix + moment.name));
      shape.push_back(d);
      if (problem_.options.normalize && moment.value_columns && !moment.normaliser.empty())
        take_moment(prefix + moment.normaliser, shape,
                    declaration_.level_scales ? "[N, H, L, d]" : "[N, H, d]", partial);
      shape.push_back(columns);
      take_moment(prefix + moment.name, shape, meaning, partial);
    }
  }
  void take_moment(const std::string& name, const std::vector<Index>& shape, const char* meaning,
                   bool partial) {
    if (partial ? take(name) != nullptr
                : (need(name, fmt::format("{} (a state has all its moments)", meaning)), true))
      expect_shape(name, shape, meaning);
  }
  Index state_levels(const std::string& name) const {
    const auto found = given_.find(name);
    return found != given_.end() && found->second.shape.size() == 5 ? found->second.shape[2] : 1;
  }
  void take_position() {
    if (!declaration_.level_scales) return;
    const bool stateful = problem_.field("initial_state.S") != nullptr;
    if (stateful)
      need("initial_state.position", "[N] beside the state");
    else if (!take("initial_state.position"))
      return;
    expect_shape("initial_state.position", {problem_.sequences()}, "[N]");
    expect_whole("initial_state.position");
    const std::vector<Index> positions = initial_positions(problem_);
    for (std::size_t s = 0; s < positions.size(); ++s) {
      if (!stateful && positions[s] > 0)
        fail("initial_state.S",
             fmt::format("missing, expected [N, H, L, d, dv] as position {} is not 0", positions[s]));
      if (stateful) check_state_levels(static_cast<Index>(s), positions[s]);
    }
  }
  // Level b+1 holds the block of 2^b tokens of [0, position): there must be room, and nothing beside the blocks.
  void check_state_levels(Index sequence, Index position) const {
    const Tensor& state = problem_.fields.at("initial_state.S");
    const Index levels = state.shape[2], needed = std::bit_width(static_cast<std::uint64_t>(position)) + 1;
    if (position > 0 && levels < needed)
      fail("initial_state.S",
           fmt::format("{} levels, expected at least {} for position {}", levels, needed, position));
    const Index block = problem_.key_dim * problem_.value_dim;
    for (Index h = 0; h < problem_.heads; ++h)
      for (Index level = 0; level < levels; ++level) {
        if (level > 0 && level < 41 && (position >> (level - 1) & 1)) continue;
        const auto first = state.data.begin() + ((sequence * problem_.heads + h) * levels + level) * block;
        if (std::any_of(first, first + block, [](double x) { return x != 0; }))
          fail("initial_state.S",
               fmt::format(
                   "level {} of sequence {} is not zero, expected zeros as position {} has no such block",
                   level, sequence, position));
      }
  }
  void check_levels() const {
    if (!declaration_.level_scales) return;
    const std::vector<Index> first = initial_positions(problem_), last = final_positions(problem_);
    for (std::size_t s = 0; s < last.size(); ++s) {
      if (last[s] == first[s]) continue;
      const Index needed = std::bit_width(static_cast<std::uint64_t>(last[s] - 1)) + 1;
      if (problem_.levels < needed)
        fail("level_scales", fmt::format("{} levels, expected at least {} for positions up to {}",
                                         problem_.levels, needed, last[s] - 1));
    }
  }
  void take_cotangents() {
    take_states("dfinal_state.", true);
    const bool any = std::ranges::any_of(problem_.fields,
                                         [](const auto& f) { return f.first.starts_with("dfinal_state."); });
    if (any && !given_.contains("do")) return;
    Tensor& cotangent = need("do", "the cotangent [B, T, H, dv] or [T, dv]");
    if (cotangent.shape.size() == 2) cotangent.shape = {1, cotangent.shape[0], 1, cotangent.shape[1]};
    expect_shape("do", {problem_.batch, problem_.tokens, problem_.heads, problem_.value_dim},
                 "[B, T, H, dv]");
  }

  Tensors given_;
  const Declaration& declaration_;
  std::string label_;
  Cotangents cotangents_;
  Problem problem_;
};

bool parse_flag(const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  throw BadInput(fmt::format("option normalize={}: expected true or false", printable(value, 80)));
}

}  // namespace

const Operator& operator_named(std::string_view name, std::string_view variant) {
  std::vector<std::string> names, variants;
  for (const Operator* op : all_operators()) {
    const Declaration& declaration = op->declaration();
    if (std::ranges::find(names, declaration.name) == names.end()) names.push_back(declaration.name);
    if (declaration.name == name) variants.push_back(declaration.variant);
    if (declaration.name == name && declaration.variant == variant) return *op;
  }
  if (variants.empty())
    throw BadInput(fmt::format("operator {}: unknown, expected of: {}", in_quotes(name), joined(names)));
  throw BadInput(fmt::format("variant {}: unknown, expected of: {} (operator {})", in_quotes(variant),
                             joined(variants), name));
}

Options parse_options(const Declaration& declaration, std::span<const std::string> entries) {
  Options options;
  std::vector<std::string> taken{"scale"};
  if (declaration.decay) taken.push_back("decay");
  if (declaration.normalize) taken.insert(taken.end(), {"normalize", "epsilon"});
  if (declaration.ridge) taken.push_back("ridge");
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos)
      throw BadInput(fmt::format("option {}: expected KEY=VALUE", in_quotes(entry)));
    const std::string key = entry.substr(0, equals), value = entry.substr(equals + 1);
    if (std::ranges::find(taken, key) == taken.end())
      throw BadInput(fmt::format("option {}: {} does not take it, expected of: {}", in_quotes(key),
                                 declaration.name, joined(taken)));
    if (!seen.insert(key).second)
      throw BadInput(fmt::format("option {}: given twice, expected once", in_quotes(key)));
    if (key == "normalize") {
      options.normalize = parse_flag(value);
      continue;
    }
    const std::optional<Rational> number = parse_rational(value);
    if (!number)
      throw BadInput(fmt::format("option {}={}: expected an exact number such as 3/4 or 0.1", key,
                                 printable(value, 80)));
    if (key == "epsilon") options.epsilon = *number;
    if (key == "ridge") options.ridge = *number;
    if (key == "scale") options.scale = *number;
    if (key == "decay") options.decay = *number;
    if (key == "decay" && (*number < 0 || *number > 1))
      throw BadInput(fmt::format("option decay={}: expected a number in [0, 1]", printable(value, 80)));
  }
  return options;
}

Problem make_problem(Tensors fields, const Declaration& declaration, const Options& options,
                     const std::string& label, Cotangents cotangents) {
  return Builder(std::move(fields), declaration, options, label, cotangents).build();
}

Problem load_problem(const SafetensorsFile& file, const Declaration& declaration, const Options& options,
                     Cotangents cotangents) {
  Tensors fields;
  for (const auto& [name, info] : file.tensors()) {
    if (!known_fields().contains(name))
      throw file.error(name, "no operator knows this field, expected of: " + joined(known_fields()));
    Tensor& tensor = fields[name];
    tensor.shape = info.shape;
    if (holds_integers(name)) {
      const std::vector<std::int64_t> whole = file.as_int64(name);
      tensor.data.assign(whole.begin(), whole.end());
    } else {
      tensor.data = file.as_double(name);
    }
  }
  return make_problem(std::move(fields), declaration, options, file.label(), cotangents);
}

}  // namespace attest
