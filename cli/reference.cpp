// attest reference: the oracle as a tool, safetensors in and out.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "reference/forms/gradient.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/safetensors.hpp"

namespace attest {
namespace {

struct ReferenceArguments {
  std::string op, variant = "masked", input, output, form = "fastest", algebra, precision = "adaptive", rows,
                  json;
  std::vector<std::string> options;
  Index chunk = 16;
  bool gradient = false;
  int threads = 0;
};

std::optional<Index> whole_number(std::string_view text) {
  if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return std::stoll(std::string(text));
}

std::optional<int> algebra_of(const ReferenceArguments& arguments, const Declaration& declaration) {
  if (arguments.algebra.empty()) return std::nullopt;
  const auto& names = declaration.algebras;
  const auto found = std::find(names.begin(), names.end(), arguments.algebra);
  if (found == names.end())
    throw BadInput(fmt::format("algebra {}: {} has none of that name, expected of: {}",
                               in_quotes(arguments.algebra), declaration.name, fmt::join(names, ", ")));
  return static_cast<int>(found - names.begin());
}

Evaluation evaluation_of(const ReferenceArguments& arguments, const Declaration& declaration,
                         const Problem& problem) {
  const std::optional<int> algebra = algebra_of(arguments, declaration);
  Evaluation how;
  if (arguments.form == "fastest") {
    how = fastest_form(declaration, problem);
  } else {
    const std::optional<Form> form = form_named(arguments.form);
    if (!form)
      throw BadInput(fmt::format("form {}: unknown, expected of: direct, stream, scan, chunk, fastest",
                                 in_quotes(arguments.form)));
    how = {*form, arguments.chunk, 0};
  }
  how.algebra = algebra.value_or(how.algebra);
  return how;
}

OracleRequest request_of(const ReferenceArguments& arguments, const Declaration& declaration,
                         const Problem& problem) {
  OracleRequest request;
  request.how = evaluation_of(arguments, declaration, problem);
  request.threads = arguments.threads;
  if (arguments.precision == "exact")
    request.exact = true;
  else if (arguments.precision == "double-double") {
    if (arguments.gradient)
      throw BadInput("precision double-double: it has no gradients, expected adaptive beside --gradient");
    request.double_double = true;
    request.rows = {0, problem.tokens};
  } else if (arguments.precision != "adaptive") {
    const std::optional<Index> bits = whole_number(arguments.precision);
    if (!bits || *bits < 24 || *bits > 1000000)
      throw BadInput(fmt::format(
          "precision {}: expected exact, adaptive, double-double or a number of bits from 24 to 1000000",
          in_quotes(arguments.precision)));
    request.bits = static_cast<int>(*bits);
  }
  if (arguments.rows.empty()) return request;
  const auto colon = arguments.rows.find(':');
  const auto first = whole_number(std::string_view(arguments.rows).substr(0, colon));
  const auto last = colon == std::string::npos
                        ? std::nullopt
                        : whole_number(std::string_view(arguments.rows).substr(colon + 1));
  if (!first || !last)
    throw BadInput(
        fmt::format("rows {}: expected A:B, half-open token numbers from 0", in_quotes(arguments.rows)));
  if (arguments.gradient) throw BadInput("rows: a gradient needs all tokens, expected --rows or --gradient");
  request.rows = {*first, *last};
  return request;
}

std::map<std::string, std::string> metadata_of(const ReferenceArguments& arguments, const Problem& problem,
                                               const OracleResult& result) {
  std::map<std::string, std::string> metadata{{"program", "attest " ATTEST_VERSION},
                                              {"operator", arguments.op},
                                              {"variant", arguments.variant},
                                              {"options", to_text(problem.options)},
                                              {"precision", arguments.precision},
                                              {"method", result.method},
                                              {"form", std::string(form_name(result.how.form))}};
  if (result.how.form == Form::chunk) metadata["chunk"] = std::to_string(result.how.chunk);
  if (!arguments.rows.empty()) metadata["rows"] = arguments.rows;
  return metadata;
}

std::vector<std::byte> safetensors_of(const OracleResult& result,
                                      const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : result.tensors) {
    writer.add(name, tensor.shape, tensor.value);
    writer.add(name + "_low", tensor.shape, tensor.low);
    writer.add(name + "_radius", tensor.shape, tensor.radius);
    if (!tensor.magnitude.empty()) writer.add(name + "_magnitude", tensor.shape, tensor.magnitude);
  }
  if (!result.final_position.empty())
    writer.add("final_state.position", {static_cast<Index>(result.final_position.size())},
               std::span<const std::int64_t>(result.final_position));
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  return writer.to_bytes();
}

// Exact values are reduced fractions; otherwise a summary: the largest radius, and how many entries are NaN.
nlohmann::json json_of(const OracleResult& result, const std::map<std::string, std::string>& metadata) {
  nlohmann::json tensors;
  for (const auto& [name, tensor] : result.tensors) {
    nlohmann::json entry{{"shape", tensor.shape}};
    if (!tensor.exact.empty() || result.method == "exact") {
      entry["values"] = tensor.exact;
    } else {
      double worst = 0;
      std::size_t without = 0;
      for (std::size_t i = 0; i < tensor.value.size(); ++i) {
        if (std::isnan(tensor.value[i]))
          ++without;
        else
          worst = std::max(worst, tensor.radius[i]);
      }
      entry["largest_radius"] = fmt::format("{:a}", worst);
      entry["nan"] = without;
    }
    tensors[name] = entry;
  }
  if (!result.final_position.empty())
    tensors["final_state.position"] = {{"shape", {result.final_position.size()}},
                                       {"values", result.final_position}};
  nlohmann::json document{{"schema", "attest.reference/1"}, {"tensors", tensors}};
  for (const auto& [key, value] : metadata) document[key] = value;
  return document;
}

// What was computed, for eyes: shapes that were read another way than they were meant show here.
void print_summary(const ReferenceArguments& arguments, const Declaration& declaration,
                   const Problem& problem, const OracleResult& result) {
  const bool decay_field = declaration.decay && problem.field("decay") != nullptr;
  std::string options = to_text(problem.options);
  if (decay_field) options += std::string(options.empty() ? "" : " ") + "decay per head from the file";
  fmt::print("{} {} by {}: B={} T={} H={} d={} dv={}{}{} -> {}\n", declaration.name, declaration.variant,
             result.method.starts_with("double-double") ? "double-double sums" : form_name(result.how.form),
             problem.batch, problem.tokens, problem.heads, problem.key_dim, problem.value_dim,
             options.empty() ? "" : ", ", options, printable(arguments.output, 200));
}

// The seconds so far, on a terminal, for what takes more than one.
class Ticker {
 public:
  explicit Ticker(const std::string& what) {
    if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this, what] { tick(what); });
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  ~Ticker() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(guard_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  void tick(const std::string& what) {
    std::unique_lock lock(guard_);
    int seconds = 0;
    while (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; }))
      std::cerr << fmt::format("\r\033[K{}: {} s so far", what, ++seconds) << std::flush;
    if (seconds > 0) std::cerr << "\r\033[K" << std::flush;
  }
  std::mutex guard_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

OracleResult evaluate(const Operator& op, const Problem& problem, const OracleRequest& request,
                      bool gradient) try {
  const Ticker ticker(fmt::format("{} T={} d={} H={}", op.declaration().name, problem.tokens, problem.key_dim,
                                  problem.heads));
  OracleResult result = evaluate_oracle(op, problem, request);
  if (gradient)
    for (auto& [name, tensor] : evaluate_gradient(op, problem, request).tensors)
      result.tensors[name] = std::move(tensor);
  return result;
} catch (const std::bad_alloc&) {
  throw BadInput(fmt::format(
      "not enough memory for {} with B={} T={} H={} d={} dv={} as {}, expected a smaller input, --rows or "
      "another --form",
      op.declaration().name, problem.batch, problem.tokens, problem.heads, problem.key_dim, problem.value_dim,
      form_name(request.how->form)));
}

void write_reference(const ReferenceArguments& arguments) {
  const Operator& op = operator_named(arguments.op, arguments.variant);
  const Declaration& declaration = op.declaration();
  const Options options = parse_options(declaration, arguments.options);
  const SafetensorsFile file(arguments.input);
  const Problem problem = load_problem(file, declaration, options,
                                       arguments.gradient ? Cotangents::required : Cotangents::unused);
  const OracleRequest request = request_of(arguments, declaration, problem);
  check_form(declaration, problem, *request.how);
  refuse_same_file("--output", arguments.output, "--input", arguments.input);
  refuse_same_file("--json", arguments.json, "--input", arguments.input);
  refuse_same_file("--json", arguments.json, "--output", arguments.output);
  AtomicFile output(arguments.output);
  std::optional<AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);

  const OracleResult result = evaluate(op, problem, request, arguments.gradient);
  const auto metadata = metadata_of(arguments, problem, result);
  output.write(safetensors_of(result, metadata));
  if (json) json->write(json_of(result, metadata).dump(1) + "\n");
  output.commit();
  if (json) json->commit();
  if (!arguments.output.starts_with("/dev/")) print_summary(arguments, declaration, problem, result);
  if (!problem.ignored.empty())
    note(fmt::format("{} does not take {}: left out", declaration.name, fmt::join(problem.ignored, ", ")));
  if (request.double_double && result.method.find("mpfi") != std::string::npos)
    note(fmt::format("{}: the double-double sums do not reach this, by {} instead", declaration.name,
                     result.method));
  if (request.double_double && arguments.rows.empty())
    note("precision double-double hands over no state: no final_state.X is written");
  note_inputs(problem.fields, arguments.input);
  note_options(problem.options);
}

}  // namespace

void add_reference(CLI::App& app, int&) {
  auto* command = app.add_subcommand("reference", "the oracle: an operator's values with a certified radius");
  auto arguments = std::make_shared<ReferenceArguments>();
  command->add_option("OPERATOR", arguments->op, "of attest list")->required();
  add_path(command, "--input", arguments->input,
           "safetensors: q, k, v [B,T,H,D] (or [T,D]), g or alpha, beta, level_scales, decay, cu_seqlens, "
           "initial_state.X, do")
      ->required();
  add_path(command, "--output", arguments->output,
           "safetensors: o, o_low, o_radius, o_magnitude and the same of every final state and gradient; "
           "shapes are always "
           "[B,T,H,D]. A magnitude beyond the largest double is infinity")
      ->required();
  command->add_option("--variant", arguments->variant, "masked, unmasked or printed")->capture_default_str();
  command
      ->add_option(
          "--form", arguments->form,
          "direct, stream, scan, chunk, or fastest (the default): one exact value, by different routes")
      ->capture_default_str();
  add_whole_number(command, "--chunk", arguments->chunk, 1, 1 << 20, "width of --form chunk");
  command->add_option("--algebra", arguments->algebra,
                      "of stream, scan and chunk where the operator has several (hla2: subtract, direct)");
  command
      ->add_option("--option", arguments->options,
                   "KEY=VALUE, exact: normalize, epsilon, ridge, scale, decay")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--precision", arguments->precision,
          "exact (rational), a number of bits, adaptive: within 2^-100 of the value, or double-double: "
          "certified sums with radii of at most 2^-60 of the magnitude, over a hundred times faster, without "
          "final states; what they do not reach (delta rules, softmax, initial states, ridge) is adaptive")
      ->capture_default_str();
  command->add_option("--rows", arguments->rows, "A:B, these tokens alone (half-open)");
  command->add_flag("--gradient", arguments->gradient,
                    "also dq, dk, ... from the cotangents do and dfinal_state.X");
  add_threads(command, arguments->threads, "threads over heads");
  add_path(command, "--json", arguments->json,
           "also write this file: exact values as fractions, or a summary");
  command->footer(
      std::string(exit_codes) +
      "Inputs are taken as the file holds them: rounded to nothing (attest check rounds them to the input "
      "format of "
      "each\ncontract before the kernel and the oracle see them).\n"
      "Example: attest reference hla2 --input in.safetensors --output out.safetensors --option decay=3/4 "
      "--precision exact --json out.json");
  command->callback([arguments] { write_reference(*arguments); });
}

}  // namespace attest
