#include "gpu_checks/kernel.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

namespace {

bool matches(std::string_view glob, const std::string& text) {
  return glob.empty() || fnmatch(std::string(glob).c_str(), text.c_str(), 0) == 0;
}

// One of a kernel's limits: NAME=PART,PART..., a part being LEAST..MOST or one number.
struct Limit {
  struct Part {
    double least = 0, most = 0;
  };
  std::string word, name;
  std::vector<Part> parts;

  bool admits(double x) const {
    return std::any_of(parts.begin(), parts.end(),
                       [x](const Part& part) { return part.least <= x && x <= part.most; });
  }
  // The admitted whole number next above, or else the largest.
  Index nearest(Index wanted) const {
    double above = INFINITY, largest = -INFINITY;
    for (const Part& part : parts) {
      const double first = std::max(std::ceil(part.least), static_cast<double>(wanted));
      if (first <= part.most) above = std::min(above, first);
      largest = std::max(largest, std::floor(part.most));
    }
    const double most = power_of_two(53);
    return static_cast<Index>(std::clamp(std::isfinite(above) ? above : largest, -most, most));
  }
};

std::optional<Limit::Part> parse_part(std::string_view text) {
  const auto read = [](std::string_view digits, double& number) {
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && rest == digits.data() + digits.size() && std::isfinite(number);
  };
  const std::size_t dots = text.find("..");
  Limit::Part part;
  const bool fine = dots == std::string_view::npos
                        ? read(text, part.least) && read(text, part.most)
                        : read(text.substr(0, dots), part.least) && read(text.substr(dots + 2), part.most);
  if (!fine || part.least > part.most) return std::nullopt;
  return part;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<Limit> parse_limits(std::string_view limits) {
  std::vector<Limit> list;
  for (const std::string_view word : split(limits, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    Limit limit{std::string(word), std::string(word.substr(0, equals)), {}};
    if (limit.name != "d" && limit.name != "dv" && limit.name != "t" && limit.name != "b" &&
        limit.name != "h" && limit.name != "g")
      throw BadInput("kernel limits: " + in_quotes(word) + ": expected a limit of d, dv, t, b, h or g");
    for (const std::string_view text : split(word.substr(std::min(equals + 1, word.size())), ',')) {
      const auto part = parse_part(text);
      if (!part)
        throw BadInput("kernel limits: " + in_quotes(word) +
                       ": expected NAME=LEAST..MOST or NAME=VALUE,VALUE...");
      limit.parts.push_back(*part);
    }
    const Index least = limit.name == "t" ? 0 : 1;
    if (limit.name != "g" && limit.nearest(least) < least)
      throw BadInput("kernel limits: " + in_quotes(word) +
                     ": it admits no size, expected a whole number of " + (least == 0 ? "0" : "1") +
                     " or more among them");
    list.push_back(std::move(limit));
  }
  return list;
}

// The least and the largest value that the limit is about; log-gates also where the gate is given linearly.
std::pair<double, double> limited(const std::string& name, const Problem& problem) {
  const auto one = [](Index n) { return std::pair(static_cast<double>(n), static_cast<double>(n)); };
  if (name == "d") return one(problem.key_dim);
  if (name == "dv") return one(problem.value_dim);
  if (name == "t") return one(problem.tokens);
  if (name == "b") return one(problem.batch);
  if (name == "h") return one(problem.heads);
  std::pair<double, double> range{INFINITY, -INFINITY};
  for (const char* field : {"g", "alpha"})
    if (const Tensor* gates = problem.field(field))
      for (const double x : gates->data) {
        const double g = field[0] == 'g' ? x : std::log(x);
        range.first = std::min(range.first, g), range.second = std::max(range.second, g);
      }
  return range;
}

// Kernels of other doors; their addresses stay.
std::deque<Kernel>& adopted() {
  static std::deque<Kernel> list;
  return list;
}

void round_field(const Format& format, Tensor& tensor) {
  for (double& x : tensor.data) x = round_to(format, x);
}

}  // namespace

const std::vector<Kernel>& registered_kernels() {
  static const std::vector<Kernel> list = cpu_kernels();
  return list;
}

std::vector<const Kernel*> find_kernels(std::string_view name_glob, std::string_view operator_glob) {
  std::vector<const Kernel*> found;
  const auto add = [&](const auto& kernels) {
    for (const Kernel& kernel : kernels)
      if (matches(name_glob, kernel.name) && matches(operator_glob, kernel.op)) found.push_back(&kernel);
  };
  add(adopted());
  if (adopted().empty() || !name_glob.empty()) add(registered_kernels());
  return found;
}

void adopt_kernels(std::vector<Kernel> kernels) {
  for (Kernel& kernel : kernels) adopted().push_back(std::move(kernel));
}

std::string form_text(const Declaration& declaration, const Evaluation& how) {
  std::string text(form_name(how.form));
  if (how.form == Form::chunk) text += " c=" + std::to_string(how.chunk);
  if (how.form != Form::direct)
    text += " algebra=" + declaration.algebras.at(static_cast<std::size_t>(how.algebra));
  return text;
}

std::string outside_limits(std::string_view limits, const Problem& problem) {
  for (const Limit& limit : parse_limits(limits)) {
    const auto [least, most] = limited(limit.name, problem);
    const bool low = least <= most && !limit.admits(least);
    if (low || (least <= most && !limit.admits(most)))
      return fmt::format("{}={} is outside the kernel's limits {}", limit.name, low ? least : most,
                         limit.word);
  }
  return {};
}

std::string outside_limits(std::string_view limits, const Case& shape) {
  Problem sizes;
  sizes.batch = shape.batch, sizes.tokens = *shape.tokens, sizes.heads = shape.heads;
  sizes.key_dim = shape.key_dim, sizes.value_dim = shape.value_dim;
  return outside_limits(limits, sizes);
}

bool admits(std::string_view limits, std::string_view name, double value) {
  for (const Limit& limit : parse_limits(limits))
    if (limit.name == name) return limit.admits(value);
  return true;
}

Index nearest_within(std::string_view limits, std::string_view name, Index wanted) {
  for (const Limit& limit : parse_limits(limits))
    if (limit.name == name) return limit.nearest(wanted);
  return wanted;
}

// Of the sizes that are raised to the least that a kernel takes.
static Index largest_drawn(std::string_view name) { return name == "d" || name == "dv" ? 1024 : 4096; }

std::string no_small_case(std::string_view limits) {
  for (const char* name : {"d", "dv"})
    if (const Index least = nearest_within(limits, name, 1); least > largest_drawn(name))
      return fmt::format("the limits admit no case small enough: {} is at least {}, drawn are at most {}",
                         name, least, largest_drawn(name));
  return {};
}

Index drawn_within(std::string_view limits, std::string_view name, Index wanted) {
  const Index nearest = nearest_within(limits, name, wanted);
  return nearest > std::max(wanted, largest_drawn(name)) ? wanted : nearest;
}

bool gives_gradients(const Kernel& kernel, const Problem& problem) {
  return problem.field("do") && has_feature(kernel, "backward");
}

std::map<std::string, std::vector<Index>> gradient_shapes(const Problem& problem) {
  std::map<std::string, std::vector<Index>> shapes;
  for (const auto& [name, tensor] : problem.fields)
    if (name != "do" && !name.starts_with("dfinal_state.") && name != "cu_seqlens" && name != "decay" &&
        name != "initial_state.position")
      shapes['d' + name] = tensor.shape;
  return shapes;
}

const Format& gradient_format(const Contract& contract, std::string_view gradient) {
  if (gradient == "dq" || gradient == "dk" || gradient == "dv") return contract.output;
  return gradient.starts_with("dinitial_state.") ? contract.state : contract.gate_sum;
}

Problem round_inputs(const Contract& contract, Problem problem) {
  for (auto& [name, tensor] : problem.fields) {
    if (name.starts_with("initial_state.") || name.starts_with("dfinal_state."))
      round_field(name.ends_with(".position") ? fp64 : contract.state, tensor);
    else if (name == "q" || name == "k" || name == "v" || name == "do")
      round_field(contract.input, tensor);
    else
      round_field(contract.gate_sum, tensor);
  }
  // An option beyond the format stays as it is: the kernel meets infinity, and the model of its error says so.
  const auto rounded = [&](const Rational& x) {
    const double value = round_to(contract.gate_sum, nearest_double(x));
    return std::isfinite(value) ? rational_from(value) : x;
  };
  Options& options = problem.options;
  options.epsilon = rounded(options.epsilon), options.ridge = rounded(options.ridge);
  if (options.scale) options.scale = rounded(*options.scale);
  if (options.decay) options.decay = rounded(*options.decay);
  return problem;
}

}  // namespace attest
