#include "reference/cases/case.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>

#include "reference/cases/checksum.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view token, const std::string& expected) {
  throw BadInput(std::string(where) + ": " + in_quotes(token) + ": expected " + expected);
}

struct Token {
  std::string_view where, whole, key, value;
  [[noreturn]] void refuse(const std::string& expected) const { attest::refuse(where, whole, expected); }
};

template <class Integer>
Integer integer(const Token& token, Integer least, Integer most) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(token.value.begin(), token.value.end(), value);
  if (error != std::errc() || end != token.value.end() || value < least || value > most)
    token.refuse("an integer of " + std::to_string(least) + " .. " + std::to_string(most));
  return value;
}

bool boolean(const Token& token) {
  if (token.value != "true" && token.value != "false") token.refuse("true or false");
  return token.value == "true";
}

Rational rational(const Token& token) {
  const auto value = parse_rational(token.value);
  if (!value) token.refuse("an exact number such as 3/4 or 0.1");
  return *value;
}

std::vector<Index> boundaries(const Token& token) {
  std::vector<Index> result;
  for (std::size_t at = 0; at <= token.value.size();) {
    const std::size_t comma = std::min(token.value.find(':', at), token.value.size());
    const Token part{token.where, token.whole, token.key, token.value.substr(at, comma - at)};
    result.push_back(integer<Index>(part, result.empty() ? 0 : result.back(), 1 << 20));
    at = comma + 1;
  }
  if (result.size() < 2 || result.front() != 0) token.refuse("boundaries 0:..:T that do not decrease");
  return result;
}

std::string names(const std::vector<RecipeInfo>& list) {
  std::string text = "one of";
  for (const auto& recipe : list) text += ' ' + recipe.name;
  return text;
}

std::string unescape(const Token& token) {
  std::string path;
  if (token.value.find('\0') != token.value.npos) token.refuse("a path without a zero byte");
  for (std::size_t i = 0; i < token.value.size(); ++i) {
    if (token.value[i] != '%') {
      path += token.value[i];
      continue;
    }
    unsigned code = 0;
    const char* digits = token.value.data() + i + 1;
    if (i + 2 >= token.value.size() || std::from_chars(digits, digits + 2, code, 16).ptr != digits + 2 ||
        code == 0)
      token.refuse("a path whose special characters are written %XX");
    path += static_cast<char>(code);
    i += 2;
  }
  if (path.empty()) token.refuse("a path");
  return path;
}

std::string escape(std::string_view path) {
  std::string text;
  for (const char c : path) {
    const auto code = static_cast<unsigned char>(c);
    if (code > ' ' && code != 127 && c != '%' && c != '\'' && c != '"' && c != '\\' && c != ',') {
      text += c;
      continue;
    }
    constexpr char digits[] = "0123456789abcdef";
    text += {'%', digits[code >> 4], digits[code & 15]};
  }
  return text;
}

using Setter = void (*)(Case&, const Token&);

constexpr Index largest = 1 << 20;

// Every key of a case line, in the order in which to_text writes them.
const std::vector<std::pair<std::string_view, Setter>>& setters() {
  static const std::vector<std::pair<std::string_view, Setter>> table = {
      {"variant", [](Case& c, const Token& t) { c.variant = t.value; }},
      {"input", [](Case& c, const Token& t) { c.input = unescape(t); }},
      {"checksum",
       [](Case& c, const Token& t) {
         if (!is_checksum(t.value)) t.refuse("fnv1a64- and 16 hexadecimal digits");
         c.checksum = t.value;
       }},
      {"T", [](Case& c, const Token& t) { c.tokens = integer<Index>(t, 0, largest); }},
      {"d", [](Case& c, const Token& t) { c.key_dim = integer<Index>(t, 1, 4096); }},
      {"dv", [](Case& c, const Token& t) { c.value_dim = integer<Index>(t, 1, 4096); }},
      {"H", [](Case& c, const Token& t) { c.heads = integer<Index>(t, 1, 4096); }},
      {"B", [](Case& c, const Token& t) { c.batch = integer<Index>(t, 1, 4096); }},
      {"Hq", [](Case& c, const Token& t) { c.heads_q = integer<Index>(t, 1, 4096); }},
      {"Hk", [](Case& c, const Token& t) { c.heads_k = integer<Index>(t, 1, 4096); }},
      {"Hv", [](Case& c, const Token& t) { c.heads_v = integer<Index>(t, 1, 4096); }},
      {"packed", [](Case& c, const Token& t) { c.packed = boundaries(t); }},
      {"normalize", [](Case& c, const Token& t) { c.options.normalize = boolean(t); }},
      {"epsilon", [](Case& c, const Token& t) { c.options.epsilon = rational(t); }},
      {"ridge", [](Case& c, const Token& t) { c.options.ridge = rational(t); }},
      {"scale", [](Case& c, const Token& t) { c.options.scale = rational(t); }},
      {"decay", [](Case& c, const Token& t) { c.options.decay = rational(t); }},
      {"unit_keys", [](Case& c, const Token& t) { c.unit_keys = boolean(t); }},
      {"recipe",
       [](Case& c, const Token& t) {
         if (!find_recipe(t.value)) t.refuse(names(recipes()));
         c.recipe = t.value;
       }},
      {"gates",
       [](Case& c, const Token& t) {
         if (!find_gate_recipe(t.value)) t.refuse(names(gate_recipes()));
         c.gates = t.value;
       }},
      {"seed", [](Case& c, const Token& t) { c.seed = integer<std::uint64_t>(t, 0, UINT64_MAX); }},
  };
  return table;
}

// Keys that say how inputs are drawn have no meaning beside a file.
bool only_drawn(std::string_view key) {
  constexpr std::string_view keys[] = {"d",  "dv",     "H",      "B",     "Hq",  "Hk",
                                       "Hv", "packed", "recipe", "gates", "seed"};
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

void set(Case& c, std::string_view where, std::string_view whole, std::vector<std::string_view>& seen) {
  const std::size_t equals = whole.find('=');
  const std::string_view key = whole.substr(0, equals);
  const auto found =
      std::find_if(setters().begin(), setters().end(), [&](const auto& s) { return s.first == key; });
  if (equals == std::string_view::npos || found == setters().end()) {
    std::string expected = "KEY=VALUE with a KEY of";
    for (const auto& [name, setter] : setters()) expected += ' ' + std::string(name);
    refuse(where, whole, expected);
  }
  if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse(where, whole, "every key once");
  seen.push_back(key);
  found->second(c, {where, whole, key, whole.substr(equals + 1)});
}

void validate(const Case& c, std::string_view where, const std::vector<std::string_view>& seen) {
  if (!c.drawn()) {
    for (const std::string_view key : seen)
      if (only_drawn(key)) refuse(where, key, "no such key beside input=: the file says it");
    return;
  }
  if (!c.checksum.empty()) refuse(where, "checksum=" + c.checksum, "no such key without input=");
  if (!c.tokens) refuse(where, "T", "a number of tokens, T=64, or input=FILE");
  for (const Index n : {c.heads_q, c.heads_k, c.heads_v})
    if (n != 0 && c.heads % n != 0)
      refuse(where, "H=" + std::to_string(c.heads), "a multiple of Hq, Hk and Hv");
  if (!c.packed.empty() && (c.batch != 1 || c.packed.back() != *c.tokens))
    refuse(where, "packed", "B=1 and boundaries that end at T=" + std::to_string(*c.tokens));
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> list;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

int levels_for(Index tokens) {
  return std::bit_width(static_cast<std::uint64_t>(std::max<Index>(tokens - 1, 0))) + 1;
}

}  // namespace

Case parse_case(std::string_view line) {
  constexpr std::string_view where = "case line";
  Case c;
  std::vector<std::string_view> seen;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view token = line.substr(at, end - at);
    at = end;
    if (c.op.empty()) {
      if (token.find('=') != std::string_view::npos) refuse(where, token, "the name of an operator first");
      c.op = token;
    } else {
      set(c, where, token, seen);
    }
  }
  if (c.op.empty())
    refuse(where, line, "an operator and KEY=VALUE words, such as: hla2 T=64 d=16 dv=16 seed=1");
  validate(c, where, seen);
  return c;
}

std::vector<std::string> set_from_list(Case& c, std::string_view list, std::string_view where) {
  constexpr std::string_view separators = ", \t";
  std::vector<std::string_view> seen;
  for (std::size_t at = 0; (at = list.find_first_not_of(separators, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(list.find_first_of(separators, at), list.size());
    set(c, where, list.substr(at, end - at), seen);
    at = end;
  }
  validate(c, where, seen);
  return {seen.begin(), seen.end()};
}

void verify_checksum(const Case& c) {
  if (c.checksum.empty()) return;
  if (const std::string found = file_checksum(c.input); found != c.checksum)
    throw BadInput(printable(c.input, 200) + ": checksum " + found + ", expected " + c.checksum +
                   " as in the case line (the file has changed)");
}

std::string to_text(const Case& c) {
  std::string text = c.op + " variant=" + c.variant;
  const auto add = [&](std::string_view key, const std::string& value) {
    text += ' ' + std::string(key) + '=' + value;
  };
  if (!c.drawn()) add("input", escape(c.input));
  if (!c.checksum.empty()) add("checksum", c.checksum);
  if (c.tokens) add("T", std::to_string(*c.tokens));
  if (c.drawn()) {
    add("d", std::to_string(c.key_dim));
    add("dv", std::to_string(c.value_dim));
    add("H", std::to_string(c.heads));
    add("B", std::to_string(c.batch));
    if (c.heads_q) add("Hq", std::to_string(c.heads_q));
    if (c.heads_k) add("Hk", std::to_string(c.heads_k));
    if (c.heads_v) add("Hv", std::to_string(c.heads_v));
    std::string packed;
    for (const Index b : c.packed) packed += (packed.empty() ? "" : ":") + std::to_string(b);
    if (!packed.empty()) add("packed", packed);
  }
  if (c.options.normalize) add("normalize", "true");
  if (c.options.epsilon != 0) add("epsilon", to_text(c.options.epsilon));
  if (c.options.ridge != 0) add("ridge", to_text(c.options.ridge));
  if (c.options.scale) add("scale", to_text(*c.options.scale));
  if (c.options.decay) add("decay", to_text(*c.options.decay));
  if (c.unit_keys) add("unit_keys", "true");
  if (c.drawn()) {
    add("recipe", c.recipe);
    add("gates", c.gates);
    add("seed", std::to_string(c.seed));
  }
  return text;
}

namespace {

// The largest field, in doubles, must fit into the memory of the machine: told before the work, with its name and shape.
void require_memory(const Case& c) {
  const auto heads = [&](Index own) { return own ? own : c.heads; };
  struct {
    const char* name;
    Index heads, size;
  } const fields[] = {{"q", heads(c.heads_q), c.key_dim},
                      {"k", heads(c.heads_k), c.key_dim},
                      {"v", heads(c.heads_v), c.value_dim}};
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  double total = 0;
  for (const auto& [name, count, size] : fields) {
    const double bytes = 8.0 * static_cast<double>(c.batch) * static_cast<double>(*c.tokens) *
                         static_cast<double>(count) * static_cast<double>(size);
    total += bytes;
    if (total > memory)
      throw BadInput(fmt::format(
          "{} [{}, {}, {}, {}] ([B, T, H, D] of the case) needs {:.3g} GiB{}, expected a smaller shape: the "
          "machine has {:.3g} GiB",
          name, c.batch, *c.tokens, count, size, bytes / 0x1p30,
          total > bytes ? fmt::format(", with the fields before it {:.3g} GiB", total / 0x1p30) : "",
          memory / 0x1p30));
  }
}

}  // namespace

bool needs_unit_keys(const Declaration& declaration) { return declaration.beta; }

Problem draw_problem(const Case& c, const Declaration& declaration) {
  parse_options(declaration, words(to_text(c.options)));  // refuses what the operator does not take
  const RecipeInfo& recipe = *find_recipe(c.recipe);
  const RecipeInfo& gates = *find_gate_recipe(c.gates);
  require_memory(c);
  Problem problem;
  problem.options = c.options;
  problem.batch = c.batch, problem.tokens = *c.tokens, problem.heads = c.heads;
  problem.key_dim = c.key_dim, problem.value_dim = c.value_dim;
  problem.cu_seqlens = c.packed;
  const auto heads = [&](Index own) { return own ? own : c.heads; };
  const auto add = [&](const char* name, Index count, Index size) {
    problem.fields[name] = draw(recipe, name, {c.batch, *c.tokens, count, size}, c.seed);
  };
  add("q", heads(c.heads_q), c.key_dim);
  add("k", heads(c.heads_k), c.key_dim);
  add("v", heads(c.heads_v), c.value_dim);
  const std::vector<Index> per_token = {c.batch, *c.tokens, c.heads};
  if (declaration.gates) problem.fields["g"] = draw_gate(gates, "g", per_token, c.seed);
  if (declaration.beta) problem.fields["beta"] = draw_gate(gates, "beta", per_token, c.seed);
  if (declaration.level_scales) {
    problem.levels = levels_for(*c.tokens);
    problem.fields["level_scales"] =
        draw_gate(gates, "level_scales", {c.batch, *c.tokens, c.heads, problem.levels}, c.seed);
  }
  if (declaration.decay && !c.options.decay)
    problem.fields["decay"] = draw_gate(gates, "decay", {c.heads}, c.seed);
  if (c.unit_keys || needs_unit_keys(declaration)) {
    normalise_rows(problem.fields["q"]);
    normalise_rows(problem.fields["k"]);
  }
  return problem;
}

}  // namespace attest
