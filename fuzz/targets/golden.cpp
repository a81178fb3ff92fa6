// Bytes as a file of golden values (tests/golden): numbers as exact text, the inputs of one head, operators and options.
// An exact number is written as text that reads the same, and lies within half a unit in the last place of its double.
#include <nlohmann/json.hpp>

#include "fuzz/targets/target.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/operator.hpp"

namespace attest {
namespace {

using nlohmann::json;

double number(const json& value) {
  if (!value.is_string()) throw BadInput("a golden number: expected a text");
  const auto exact = parse_rational(value.get_ref<const std::string&>());
  if (!exact) throw BadInput("a golden number: expected an exact number such as 3/4");
  require(parse_rational(to_text(*exact)) == exact, "another number is read from its own text");
  const double nearest = nearest_double(*exact);
  if (std::isfinite(nearest) && nearest_double(rational_from(nearest)) != nearest)
    report_fault("the nearest double of a double is another");
  return nearest;
}

Tensor tensor_of(const json& value) {
  Tensor tensor;
  if (!value.is_array()) throw BadInput("golden inputs: expected an array");
  tensor.shape = {static_cast<Index>(value.size())};
  const bool rows = !value.empty() && value[0].is_array();
  if (rows) tensor.shape.push_back(static_cast<Index>(value[0].size()));
  for (const json& row : value) {
    if (row.is_array() != rows || (rows && row.size() != value[0].size()))
      throw BadInput("golden inputs: expected rows of one length");
    if (rows)
      for (const json& entry : row) tensor.data.push_back(number(entry));
    else
      tensor.data.push_back(number(row));
  }
  return tensor;
}

void read_case(const Tensors& fields, const json& entry) {
  if (!entry.is_object()) throw BadInput("a golden case: expected an object");
  const auto text = [&](const char* key) {
    const auto found = entry.find(key);
    if (found == entry.end() || !found->is_string()) throw BadInput("a golden case: expected a text");
    return found->get<std::string>();
  };
  const Declaration& declaration = operator_named(text("operator"), text("variant")).declaration();
  std::vector<std::string> entries;
  if (const auto found = entry.find("options"); found != entry.end() && found->is_object())
    for (const auto& [key, value] : found->items())
      entries.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : "true"));
  const Problem problem = make_problem(fields, declaration, parse_options(declaration, entries), "golden");
  require(static_cast<Index>(slots(problem).size()) == problem.sequences() * problem.heads,
          "heads are missing");
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  const json file = json::parse(text_of(bytes, size), nullptr, false);
  if (!file.is_object()) return 0;
  Tensors fields;
  if (const auto inputs = file.find("inputs"); inputs != file.end() && inputs->is_object())
    for (const auto& [name, value] : inputs->items())
      accepted([&, &name = name, &value = value] { fields[name] = tensor_of(value); });
  if (const auto cases = file.find("cases"); cases != file.end() && cases->is_array())
    for (const json& entry : *cases) accepted([&] { read_case(fields, entry); });
  return 0;
}
