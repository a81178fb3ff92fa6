#include "reference/tensor/contract.hpp"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr std::string_view keys = "input product accumulate intermediate state gate_sum inverse exp output";

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view expected) {
  throw BadInput(fmt::format("precision contract: {} is {}, expected {}", key, in_quotes(value), expected));
}

std::string format_names() {
  std::string names;
  for (const Format* format : formats) names += (names.empty() ? "" : " ") + std::string(format->name);
  return names;
}

Format parse_format(std::string_view key, std::string_view value) {
  const Format* format = find_format(value);
  if (!format) refuse(key, value, "one of " + format_names());
  return *format;
}

// Splits "fp32/chunk" into the format and what follows the slash (empty without one).
std::pair<std::string_view, std::string_view> split(std::string_view value) {
  const auto slash = value.find('/');
  if (slash == std::string_view::npos) return {value, {}};
  return {value.substr(0, slash), value.substr(slash + 1)};
}

double parse_ulp(std::string_view value) {
  double ulps = -1;
  const std::string_view number =
      value.ends_with("ulp") ? value.substr(0, value.size() - 3) : std::string_view{};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ulps);
  const bool read = error == std::errc() && end == number.data() + number.size();
  if (!read || !(ulps >= 0.5 && ulps <= 1e6))
    refuse("exp", value, "a number of at least 0.5 followed by ulp, such as 2ulp");
  return ulps;
}

void set(Contract& contract, std::string_view key, std::string_view value) {
  const auto [name, detail] = split(value);
  if (key == "accumulate") {
    if (value.find('/') != value.npos && detail != "truncate")
      refuse(key, value, "a format, or a format/truncate");
    contract.accumulate = parse_format(key, name), contract.truncates = detail == "truncate";
  } else if (key == "gate_sum") {
    if (value.find('/') != value.npos && detail != "chunk" && detail != "global")
      refuse(key, value, "a format, or a format/chunk or /global");
    contract.gate_sum = parse_format(key, name);
    contract.gate_scope = detail == "global" ? GateScope::global : GateScope::chunk;
  } else if (key == "inverse") {
    if (value != "substitution" && value != "powers") refuse(key, value, "substitution or powers");
    contract.inverse = value == "powers" ? InverseMethod::powers : InverseMethod::substitution;
  } else if (key == "exp") {
    contract.exp_ulp = parse_ulp(value);
  } else if (key == "input") {
    contract.input = parse_format(key, value);
  } else if (key == "product") {
    contract.product = parse_format(key, value);
  } else if (key == "intermediate") {
    contract.intermediate = parse_format(key, value);
  } else if (key == "state") {
    contract.state = parse_format(key, value);
  } else if (key == "output") {
    contract.output = parse_format(key, value);
  } else {
    throw BadInput(
        fmt::format("precision contract: unknown key {}, expected one of {}", in_quotes(key), keys));
  }
}

}  // namespace

Contract parse_contract(std::string_view text) {
  Contract contract;
  std::set<std::string, std::less<>> seen;
  constexpr std::string_view blank = " \t\n\r";
  while (true) {
    const auto start = text.find_first_not_of(blank);
    if (start == std::string_view::npos) return contract;
    const auto end = std::min(text.find_first_of(blank, start), text.size());
    const std::string_view word = text.substr(start, end - start);
    text.remove_prefix(end);
    const auto equals = word.find('=');
    if (equals == std::string_view::npos)
      throw BadInput(fmt::format("precision contract: {} has no value, expected key=value with one of {}",
                                 in_quotes(word), keys));
    const std::string_view key = word.substr(0, equals);
    set(contract, key, word.substr(equals + 1));
    if (!seen.emplace(key).second)
      throw BadInput(fmt::format("precision contract: {} is given twice, expected it once", in_quotes(key)));
  }
}

std::string to_text(const Contract& c) {
  return fmt::format(
      "input={} product={} accumulate={}{} intermediate={} state={} gate_sum={}/{} inverse={} exp={}ulp "
      "output={}",
      c.input.name, c.product.name, c.accumulate.name, c.truncates ? "/truncate" : "", c.intermediate.name,
      c.state.name, c.gate_sum.name, c.gate_scope == GateScope::global ? "global" : "chunk",
      c.inverse == InverseMethod::powers ? "powers" : "substitution", c.exp_ulp, c.output.name);
}

}  // namespace attest
