#include "gpu_checks/kernel.hpp"

#include <fnmatch.h>

#include <charconv>

#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

namespace {

bool matches(std::string_view glob, const std::string& text) {
  return glob.empty() || fnmatch(std::string(glob).c_str(), text.c_str(), 0) == 0;
}

struct Range {
  Index least = 0, most = 0;
};

Range parse_range(std::string_view word, std::string_view text) {
  Range range;
  const char* end = text.data() + text.size();
  const auto [dots, error] = std::from_chars(text.data(), end, range.least);
  if (error != std::errc() || end - dots < 3 || std::string_view(dots, 2) != ".." ||
      std::from_chars(dots + 2, end, range.most).ptr != end)
    throw BadInput("kernel limits: " + in_quotes(word) + ": expected NAME=LEAST..MOST");
  return range;
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
  for (const Kernel& kernel : registered_kernels())
    if (matches(name_glob, kernel.name) && matches(operator_glob, kernel.op)) found.push_back(&kernel);
  return found;
}

std::string form_text(const Declaration& declaration, const Evaluation& how) {
  std::string text(form_name(how.form));
  if (how.form == Form::chunk) text += " c=" + std::to_string(how.chunk);
  if (how.form != Form::direct) text += " algebra=" + declaration.algebras.at(static_cast<std::size_t>(how.algebra));
  return text;
}

std::string outside_limits(std::string_view limits, const Problem& problem) {
  for (std::size_t at = 0; (at = limits.find_first_not_of(' ', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(limits.find(' ', at), limits.size());
    const std::string_view word = limits.substr(at, end - at);
    at = end;
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string_view key = word.substr(0, equals);
    const Range range = parse_range(word, word.substr(equals + 1));
    if (key != "d" && key != "dv" && key != "t")
      throw BadInput("kernel limits: " + in_quotes(word) + ": expected a limit of d, dv or t");
    const Index value = key == "d" ? problem.key_dim : key == "dv" ? problem.value_dim : problem.tokens;
    if (value < range.least || value > range.most)
      return std::string(key) + "=" + std::to_string(value) + " is outside the kernel's limits " + std::string(word);
  }
  return {};
}

Problem round_inputs(const Contract& contract, Problem problem) {
  for (auto& [name, tensor] : problem.fields) {
    if (name.starts_with("initial_state."))
      round_field(name.ends_with(".position") ? fp64 : contract.state, tensor);
    else if (name == "q" || name == "k" || name == "v" || name == "do")
      round_field(contract.input, tensor);
    else
      round_field(contract.gate_sum, tensor);
  }
  const auto rounded = [&](const Rational& x) { return rational_from(round_to(contract.gate_sum, nearest_double(x))); };
  Options& options = problem.options;
  options.epsilon = rounded(options.epsilon), options.ridge = rounded(options.ridge);
  if (options.scale) options.scale = rounded(*options.scale);
  if (options.decay) options.decay = rounded(*options.decay);
  return problem;
}

}  // namespace attest
