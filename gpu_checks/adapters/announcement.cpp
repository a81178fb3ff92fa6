#include "gpu_checks/adapters/announcement.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "reference/cases/case.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/metrics/bound.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr std::string_view feature_names =
    "varlen initial_state final_state strides grouped backward deterministic batch_invariant nan_contained";

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

[[noreturn]] void refuse(const std::string& what, std::string_view found, const std::string& expected) {
  throw BadInput(fmt::format("{} {}: expected {}", what, in_quotes(found), expected));
}

template <class List>
std::string listed(const List& list) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "" : ", ") + std::string(entry);
  return text;
}

const Operator& operator_announced(const std::string& name, const std::string& variant) {
  std::vector<std::string> names, variants;
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    if (std::find(names.begin(), names.end(), d.name) == names.end()) names.push_back(d.name);
    if (d.name == name) variants.push_back(d.variant);
    if (d.name == name && d.variant == variant) return *op;
  }
  if (variants.empty()) refuse("operator", name, "one of " + listed(names));
  refuse("variant", variant, "one of " + listed(variants) + " of " + name);
}

// Formats that tensors can be passed in.
void check_formats(const Contract& contract) {
  for (const auto& [key, format] : {std::pair{"input", contract.input},
                                    {"state", contract.state},
                                    {"gate_sum", contract.gate_sum},
                                    {"output", contract.output}})
    if (format.width < 16)
      throw BadInput(
          fmt::format("precision contract: {}={}: tensors of this format are not passed, expected fp64, "
                      "fp32, tf32, fp16 or bf16",
                      key, format.name));
}

// A contract whose bound is infinite for two tokens of one number each is never anything else.
void check_bound(const Operator& op, const Kernel& kernel) {
  Case smallest;
  smallest.op = kernel.op, smallest.variant = kernel.variant;
  smallest.tokens = 2, smallest.key_dim = smallest.value_dim = 1;
  const Problem problem = round_inputs(kernel.contract, draw_problem(smallest, op.declaration()));
  const ErrorModel model = error_model(op, head_of<double>(problem, op.declaration(), slots(problem).at(0)),
                                       kernel.how, kernel.contract);
  bool finite = true;
  for (Index i = 0; i < model.deterministic.size(); ++i)
    finite = finite && std::isfinite(model.deterministic.data()[i]);
  // Without an error model there is no bound: the checks that need none can still be made.
  if ((finite && !model.undecided) || model.reason.starts_with("no error model")) return;
  throw BadInput(
      fmt::format("precision contract: its bound is infinite even for two tokens of one number each{}, so "
                  "that nothing could "
                  "fail it; expected finer formats or a smaller exp",
                  model.reason.empty() ? "" : " (" + model.reason + ")"));
}

void check_features(const Kernel& kernel, const Declaration& declaration) {
  const std::vector<std::string> known = words_of(feature_names);
  for (const std::string& word : words_of(kernel.features)) {
    if (std::find(known.begin(), known.end(), word) == known.end())
      refuse("feature", word, "of " + listed(known));
    if (word.ends_with("_state") && declaration.moments.empty())
      refuse("feature", word,
             "none of a state, since " + declaration.name + " (" + declaration.variant + ") has none");
  }
}

class Entry {
 public:
  explicit Entry(const nlohmann::json& json) : json_(json) {
    if (!json.is_object()) throw BadInput("its announcement is not an object");
  }
  std::string text(const char* key, const char* fallback) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) {
      if (!fallback) throw BadInput(fmt::format("{} is not given, expected a text", in_quotes(key)));
      return fallback;
    }
    if (!found->is_string()) throw BadInput(fmt::format("{} is no text", in_quotes(key)));
    return found->get<std::string>();
  }

 private:
  const nlohmann::json& json_;
};

Kernel read_kernel(const Entry& entry, const std::string& name) {
  Kernel kernel;
  kernel.name = name;
  kernel.op = entry.text("op", nullptr), kernel.variant = entry.text("variant", "masked");
  const Operator& op = operator_announced(kernel.op, kernel.variant);
  kernel.how = parse_form(entry.text("form", nullptr), op.declaration());
  kernel.form = form_text(op.declaration(), kernel.how);
  kernel.contract = parse_contract(entry.text("contract", nullptr));
  check_formats(kernel.contract);
  kernel.features = entry.text("features", "");
  check_features(kernel, op.declaration());
  kernel.limits = entry.text("limits", "");
  outside_limits(kernel.limits, Problem{});
  check_bound(op, kernel);
  return kernel;
}

bool good_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

Passed passed(const std::string& name, const Format& format, const Tensor& tensor) {
  return {name, format, name == "initial_state.position", tensor.shape, &tensor.data};
}

}  // namespace

Evaluation parse_form(std::string_view text, const Declaration& declaration) {
  const std::vector<std::string> words = words_of(text);
  std::vector<std::string> names;
  for (const Form offered : declaration.forms) names.emplace_back(form_name(offered));
  const auto named = std::find(names.begin(), names.end(), words.empty() ? "" : words[0]);
  if (named == names.end())
    refuse("form", text,
           fmt::format("one of {} of {} ({})", listed(names), declaration.name, declaration.variant));
  const Form form = declaration.forms[static_cast<std::size_t>(named - names.begin())];
  Evaluation how{form, 0, declaration.algebras.size() == 1 || form == Form::direct ? 0 : -1};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (form == Form::chunk && word.starts_with("c=")) {
      const auto [end, error] = std::from_chars(word.data() + 2, word.data() + word.size(), how.chunk);
      if (error != std::errc() || end != word.data() + word.size() || how.chunk < 1 || how.chunk > 1 << 20 ||
          (declaration.level_scales && !std::has_single_bit(static_cast<std::uint64_t>(how.chunk))))
        refuse(
            "form", text,
            declaration.level_scales ? "c= a power of two up to 2^20" : "c= a whole number from 1 to 2^20");
    } else if (form != Form::direct && word.starts_with("algebra=")) {
      const auto found = std::find(declaration.algebras.begin(), declaration.algebras.end(), word.substr(8));
      if (found == declaration.algebras.end())
        refuse("form", text, "algebra= one of " + listed(declaration.algebras));
      how.algebra = static_cast<int>(found - declaration.algebras.begin());
    } else {
      refuse("form", text,
             form == Form::chunk ? "c=WIDTH and algebra=NAME only" : "algebra=NAME only, if anything");
    }
  }
  if (form == Form::chunk && how.chunk == 0) refuse("form", text, "the width of its chunks, c=WIDTH");
  if (how.algebra < 0)
    refuse("form", text, "algebra= one of " + listed(declaration.algebras) + ", since their bounds differ");
  return how;
}

std::vector<Announced> read_announcement(const nlohmann::json& message, const std::string& place,
                                         std::string_view glob) {
  const auto list = message.is_object() ? message.find("kernels") : message.end();
  if (!message.is_object() || list == message.end() || !list->is_array() || list->empty())
    throw BadInput(place + ": it announces no kernel, expected at least one");
  std::vector<Announced> kernels;
  std::set<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    std::string where = fmt::format("{}: kernel {}", place, i);
    try {
      const Entry entry((*list)[i]);
      const std::string name = entry.text("name", nullptr);
      if (!good_name(name)) refuse("name", name, "up to 100 characters of A-Z a-z 0-9 . _ -");
      where = place + ": kernel " + name;
      for (const Kernel& own : registered_kernels())
        if (own.name == name) refuse("name", name, "a name that no registered kernel has");
      if (!names.insert(name).second) throw BadInput("announced twice, expected every name once");
      const std::string device = entry.text("device", "cpu");
      if (device != "cpu" && device != "cuda") refuse("device", device, "cpu or cuda");
      if ((*list)[i].value("run", nlohmann::json()) == false)
        throw BadInput("run is NULL, expected a function");
      Kernel kernel = read_kernel(entry, name);
      if (glob.empty() || fnmatch(std::string(glob).c_str(), name.c_str(), 0) == 0)
        kernels.push_back({std::move(kernel), i, device == "cuda"});
    } catch (const BadInput& error) {
      throw BadInput(where + ": " + error.what());
    }
  }
  if (kernels.empty())
    throw BadInput(place + ": no kernel matches " + in_quotes(glob) + ", expected of " + listed(names));
  return kernels;
}

bool has_feature(const Kernel& kernel, std::string_view feature) {
  const auto words = words_of(kernel.features);
  return std::find(words.begin(), words.end(), feature) != words.end();
}

std::string not_offered(const Kernel& kernel, const Problem& problem) {
  const auto lacks = [&](const char* feature) { return !has_feature(kernel, feature); };
  if (!problem.cu_seqlens.empty() && lacks("varlen"))
    return "the kernel does not declare varlen, and the sequences are packed";
  for (const auto& [name, tensor] : problem.fields) {
    if (name.starts_with("initial_state.") && lacks("initial_state"))
      return "the kernel does not declare initial_state, and one is given";
    const bool per_head = tensor.shape.size() >= 3 && name.find("_state.") == std::string::npos;
    if (per_head && tensor.shape[2] != problem.heads && lacks("grouped"))
      return fmt::format("the kernel does not declare grouped, and {} has {} of {} heads", name,
                         tensor.shape[2], problem.heads);
  }
  return outside_limits(kernel.limits, problem);
}

std::vector<Passed> inputs_of(const Kernel& kernel, const Problem& problem, std::vector<double>& cu_seqlens) {
  std::vector<Passed> list;
  for (const auto& [name, tensor] : problem.fields) {
    const bool cotangent = name == "do" || name.starts_with("dfinal_state.");
    if (name == "cu_seqlens" || (cotangent && !gives_gradients(kernel, problem))) continue;
    const bool main = name == "q" || name == "k" || name == "v" || name == "do";
    const bool state = name.find("_state.") != std::string::npos;
    list.push_back(passed(name,
                          main    ? kernel.contract.input
                          : state ? kernel.contract.state
                                  : kernel.contract.gate_sum,
                          tensor));
  }
  if (!problem.cu_seqlens.empty()) {
    cu_seqlens.assign(problem.cu_seqlens.begin(), problem.cu_seqlens.end());
    list.push_back({"cu_seqlens", fp64, true, {static_cast<Index>(cu_seqlens.size())}, &cu_seqlens});
  }
  return list;
}

std::vector<Passed> outputs_of(const Kernel& kernel, const Problem& problem) {
  const Operator& op = operator_named(kernel.op, kernel.variant);
  std::vector<Passed> list;
  for (const auto& [name, shape] : output_shapes(problem, op.declaration()))
    if (name == "o")
      list.push_back({name, kernel.contract.output, false, shape});
    else if (has_feature(kernel, "final_state"))
      list.push_back({name, kernel.contract.state, false, shape});
  if (gives_gradients(kernel, problem))
    for (const auto& [name, shape] : gradient_shapes(problem))
      list.push_back({name, gradient_format(kernel.contract, name), false, shape});
  return list;
}

void write_element(const Passed& tensor, double value, std::byte* at) {
  const auto put = [at](auto word) { std::memcpy(at, &word, sizeof word); };
  if (tensor.integer)
    put(static_cast<std::int64_t>(value));
  else if (tensor.format == fp64)
    put(value);
  else if (tensor.element_bytes() == 4)
    put(static_cast<float>(value));
  else
    put(static_cast<std::uint16_t>(encode(tensor.format, value)));
}

double read_element(const Passed& tensor, const std::byte* at) {
  const auto get = [at](auto word) {
    std::memcpy(&word, at, sizeof word);
    return word;
  };
  if (tensor.integer) return static_cast<double>(get(std::int64_t{}));
  if (tensor.format == fp64) return get(double{});
  if (tensor.element_bytes() == 4) return static_cast<double>(get(float{}));
  return decode(tensor.format, get(std::uint16_t{}));
}

nlohmann::json options_of(const Problem& problem) {
  nlohmann::json json = nlohmann::json::object();
  const Options& options = problem.options;
  const auto add = [&](const char* key, const Rational& value) {
    json[key] = {{"text", to_text(value)}, {"value", nearest_double(value)}};
  };
  if (options.normalize) json["normalize"] = {{"text", "true"}, {"value", 1.0}};
  if (options.epsilon != 0) add("epsilon", options.epsilon);
  if (options.ridge != 0) add("ridge", options.ridge);
  if (options.scale) add("scale", *options.scale);
  if (options.decay && !problem.field("decay")) add("decay", *options.decay);
  return json;
}

}  // namespace attest
