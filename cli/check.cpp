// attest check: kernels against the oracle, with records and a page.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <mpfr.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/commands.hpp"
#include "gpu_checks/check.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reports/check_record.hpp"
#include "reports/html.hpp"
#include "reports/record_file.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct Arguments {
  std::string kernel, op, output, json;
  std::vector<std::string> inputs, cases, shapes;
  std::optional<std::uint64_t> seed;
  bool unit_keys = false, whole = false;
  int threads = 0;
  std::string command;
};

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string one_of_the_operators() {
  std::string names;
  for (const Operator* op : all_operators())
    if (op->declaration().variant == "masked") names += ' ' + op->declaration().name;
  return names;
}

// The kernels of each operator and variant, in their order.
std::vector<std::vector<const Kernel*>> kernels_by_operator(const Arguments& arguments) {
  const auto found = find_kernels(arguments.kernel, arguments.op);
  if (found.empty())
    throw BadInput(fmt::format("no kernel matches --kernel {} --operator {}, expected globs such as cpu.hla2.* or of the operators{}",
                               in_quotes(arguments.kernel), in_quotes(arguments.op), one_of_the_operators()));
  std::vector<std::vector<const Kernel*>> groups;
  for (const Kernel* kernel : found) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g[0]->op == kernel->op && g[0]->variant == kernel->variant;
    });
    if (group == groups.end()) groups.push_back({kernel});
    else group->push_back(kernel);
  }
  return groups;
}

// T/4, T/2, T without zeros and repetitions.
std::vector<Index> lengths_up_to(Index tokens, bool whole) {
  if (whole || tokens < 2) return {tokens};
  std::vector<Index> lengths;
  for (const Index length : {tokens / 4, tokens / 2, tokens})
    if (length > 0 && (lengths.empty() || lengths.back() != length)) lengths.push_back(length);
  return lengths;
}

// The fields that the operator needs and the file lacks.
std::string lacking(const SafetensorsFile& file, const Declaration& declaration) {
  if (declaration.gates && !file.has("g") && !file.has("alpha")) return "g";
  if (declaration.beta && !file.has("beta")) return "beta";
  if (declaration.level_scales && !file.has("level_scales")) return "level_scales";
  return "";
}

struct Plan {
  std::vector<CheckSource> sources;
  std::vector<Checked> left_out;  // the file lacks a field
};

void add_file(const std::string& path, const Arguments& arguments, Plan& plan) {
  const SafetensorsFile file(path);
  for (const auto& kernels : kernels_by_operator(arguments)) {
    const Declaration& declaration = operator_named(kernels[0]->op, kernels[0]->variant).declaration();
    CheckSource source;
    source.kernels = kernels;
    source.input.op = declaration.name, source.input.variant = declaration.variant, source.input.input = path;
    source.input.unit_keys = arguments.unit_keys && needs_unit_keys(declaration);
    if (const std::string field = lacking(file, declaration); !field.empty()) {
      for (const Kernel* kernel : kernels) {
        Checked& checked = plan.left_out.emplace_back();
        checked.kernel = kernel, checked.input = source.input, checked.reason = path + " has no field " + field;
      }
      continue;
    }
    source.problem = problem_of(source.input, declaration);
    source.lengths = lengths_up_to(source.problem.tokens, arguments.whole || !source.problem.cu_seqlens.empty());
    source.input.tokens = source.lengths.back();
    plan.sources.push_back(std::move(source));
  }
}

void add_shape(const std::string& shape, std::uint64_t seed, const Arguments& arguments, Plan& plan) {
  for (const auto& kernels : kernels_by_operator(arguments)) {
    CheckSource source;
    source.kernels = kernels;
    source.input.op = kernels[0]->op, source.input.variant = kernels[0]->variant;
    source.input.seed = seed;
    set_from_list(source.input, shape, "--shape");
    if (!source.input.drawn()) throw BadInput("--shape " + in_quotes(shape) + ": input= is read, expected --input FILE or --case");
    source.input.variant = kernels[0]->variant;
    source.lengths = lengths_up_to(*source.input.tokens, arguments.whole || !source.input.packed.empty());
    plan.sources.push_back(std::move(source));
  }
}

void add_case(const std::string& line, const Arguments& arguments, Plan& plan) {
  CheckSource source;
  source.input = parse_case(line);
  const Operator& op = operator_named(source.input.op, source.input.variant);
  for (const Kernel* kernel : find_kernels(arguments.kernel, arguments.op))
    if (kernel->op == source.input.op && kernel->variant == source.input.variant) source.kernels.push_back(kernel);
  if (source.kernels.empty())
    throw BadInput(fmt::format("no kernel matches --kernel {} --operator {} and computes {} ({})", in_quotes(arguments.kernel),
                               in_quotes(arguments.op), source.input.op, source.input.variant));
  if (!source.input.drawn()) source.problem = problem_of(source.input, op.declaration());
  source.lengths = {source.input.drawn() ? *source.input.tokens : source.problem.tokens};
  plan.sources.push_back(std::move(source));
}

std::uint64_t drawn_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 1;  // fits every reader of JSON integers
}

Run describe_run(const Arguments& arguments, std::uint64_t seed) {
  Run run;
  run.command = arguments.command, run.seed = seed;
  run.commit = ATTEST_COMMIT, run.compiler = ATTEST_COMPILER, run.flags = ATTEST_COMPILE_FLAGS;
  run.libraries = {{"attest", ATTEST_VERSION}, {"mpfr", mpfr_get_version()}, {"gmp", gmp_version}};
  run.started = now();
  return run;
}

// One line on a terminal, rewritten.
class Progress {
 public:
  void show(Index done, Index total) {
    if (!terminal_) return;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double left = elapsed / static_cast<double>(done) * static_cast<double>(total - done);
    std::cerr << fmt::format("\r\033[Kchecked {} of {}, about {:.0f} s left", done, total, left) << std::flush;
  }
  void clear() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Everything that a finished check is written to.
class Journal {
 public:
  Journal(const Arguments& arguments, std::uint64_t seed) : arguments_(arguments) {
    records_.run = describe_run(arguments, seed);
    if (!arguments.json.empty()) json_ = std::make_unique<AtomicFile>(arguments.json);
    if (arguments.output.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(arguments.output, error);
    if (error || !std::filesystem::is_directory(arguments.output))
      throw BadInput("--output " + in_quotes(arguments.output) + ": cannot be made (" + (error ? error.message() : "not a folder") +
                     "), expected a folder to write to");
    writer_ = std::make_unique<RecordWriter>(folder() / "records.jsonl", records_.run);
  }

  void add(const Checked& checked) {
    CaseRecord record = to_record(checked);
    counts_.count(record.verdict);
    if (first_of_line_ < records_.cases.size() && records_.cases[first_of_line_].kernel.name != record.kernel.name) print_line();
    if (writer_) writer_->add(record);
    record.curve = thin_curve(record.curve);
    records_.cases.push_back(std::move(record));
  }

  int finish() {
    counts_.finished = now();
    records_.end = counts_;
    print_line();
    summarise_operators();
    if (writer_) {
      writer_->end(counts_.finished);
      write_html(records_, folder() / "index.html", {.title = "attest check"});
      std::cout << "records: " << (folder() / "records.jsonl").string() << "\npage:    " << (folder() / "index.html").string() << '\n';
    }
    if (json_) write_json();
    if (counts_.fail > 0) return 1;
    if (counts_.suspect + counts_.undecided > 0) return 3;
    return counts_.pass > 0 ? 0 : 77;
  }

 private:
  std::filesystem::path folder() const { return arguments_.output; }

  // One line for the cases of one kernel since the last line: the worst verdict, error over bound at each T, the reason.
  void print_line() {
    if (first_of_line_ == records_.cases.size()) return;
    const CaseRecord* worst = &records_.cases[first_of_line_];
    std::string lengths;
    for (std::size_t i = first_of_line_; i < records_.cases.size(); ++i) {
      const CaseRecord& record = records_.cases[i];
      if (severity(record.verdict) > severity(worst->verdict)) worst = &record;
      const auto error = record.error.find("o");
      lengths += fmt::format("T={} {:<8}", record.tokens.value_or(0), error == record.error.end() ? "-" : digits(error->second.ratio.max));
    }
    first_of_line_ = records_.cases.size();
    const auto error = worst->error.find("o");
    const std::string power = error == worst->error.end() ? "" : "power " + percent(error->second.power);
    std::string line = fmt::format("{:<9}  {:<43}  {} {:<11}  {}", verdict_words(worst->verdict), worst->kernel.name, lengths, power, worst->reason);
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
    if (severity(worst->verdict) >= severity(Verdict::suspect)) std::cout << "           replay: " << replay_of(*worst) << '\n';
  }

  void summarise_operators() const {
    std::map<std::string, End> by_operator;
    std::vector<std::string> order;
    for (const CaseRecord& record : records_.cases) {
      const std::string title = operator_title(record.kernel);
      if (!by_operator.contains(title)) order.push_back(title);
      End& counts = by_operator[title];
      counts.count(record.verdict);
    }
    std::cout << fmt::format("\n{:<26}{:>7}{:>7}{:>7}{:>9}{:>11}{:>9}\n", "operator", "cases", "pass", "fail", "suspect", "undecided", "not run");
    const auto row = [](const std::string& title, const End& c) {
      std::cout << fmt::format("{:<26}{:>7}{:>7}{:>7}{:>9}{:>11}{:>9}\n", title, c.cases, c.pass, c.fail, c.suspect, c.undecided, c.not_run);
    };
    for (const std::string& title : order) row(title, by_operator.at(title));
    row("all", counts_);
    std::cout << "seed " << records_.run.seed << '\n';
  }

  void write_json() {
    nlohmann::json kernels = nlohmann::json::array();
    for (const CaseRecord& record : records_.cases) {
      nlohmann::json entry{{"kernel", record.kernel.name}, {"case", record.case_line}, {"verdict", to_string(record.verdict)}};
      if (!record.reason.empty()) entry["reason"] = record.reason;
      if (record.error.contains("o")) entry["ratio"] = record.error.at("o").ratio.max, entry["power"] = record.error.at("o").power;
      if (!record.checks.empty()) entry["replay"] = record.checks[0].replay;
      kernels.push_back(entry);
    }
    const nlohmann::json document{{"schema", "attest.check/1"}, {"seed", records_.run.seed}, {"cases", counts_.cases},
                                  {"pass", counts_.pass}, {"fail", counts_.fail}, {"suspect", counts_.suspect},
                                  {"undecided", counts_.undecided}, {"not_run", counts_.not_run}, {"kernels", kernels}};
    json_->write(document.dump(1) + "\n");
    json_->commit();
  }

  const Arguments& arguments_;
  Records records_;
  End counts_;
  std::size_t first_of_line_ = 0;
  std::unique_ptr<AtomicFile> json_;
  std::unique_ptr<RecordWriter> writer_;
};

int run_check(const Arguments& arguments) {
  const std::uint64_t seed = arguments.seed ? *arguments.seed : drawn_seed();
  Plan plan;
  for (const std::string& path : arguments.inputs) add_file(path, arguments, plan);
  for (const std::string& line : arguments.cases) add_case(line, arguments, plan);
  for (const std::string& shape : arguments.shapes) add_shape(shape, seed, arguments, plan);
  if (arguments.inputs.empty() && arguments.cases.empty() && arguments.shapes.empty())
    add_shape("T=128,d=32,dv=32,H=2", seed, arguments, plan);
  if (plan.sources.empty()) throw BadInput("no kernel can run: " + plan.left_out.at(0).reason);
  Journal journal(arguments, seed);
  for (const Checked& checked : plan.left_out) journal.add(checked);
  Progress progress;
  check(plan.sources, arguments.threads,
        {[&](const Checked& checked) {
           progress.clear();
           journal.add(checked);
         },
         [&](Index done, Index total) { progress.show(done, total); }});
  progress.clear();
  return journal.finish();
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("check", "judge kernels against the oracle; writes records and a page");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("--kernel", arguments->kernel, "glob of kernel names, such as cpu.hla2.*; all by default");
  command->add_option("--operator", arguments->op, "glob of operators, such as *delta; all by default");
  command->add_option("--input", arguments->inputs, "safetensors file as of attest reference; its first T/4, T/2 and T tokens are checked. Repeatable")->allow_extra_args(false);
  command->add_option("--case", arguments->cases, "a case line, as reports print it. Repeatable")->allow_extra_args(false);
  command->add_option("--shape", arguments->shapes, "drawn inputs: T=256,d=32,dv=32,H=2 and other keys of a case line (B, Hk, recipe, gates, decay ...); T/4, T/2 and T tokens are checked. Repeatable; without any input T=128,d=32,dv=32,H=2")->allow_extra_args(false);
  command->add_flag("--unit-keys", arguments->unit_keys, "with --input: q and k of the delta rules divided by their l2 norm, without which their state grows beyond bounds (drawn ones always are)");
  command->add_flag("--whole", arguments->whole, "T tokens only, not T/4 and T/2");
  command->add_option("--seed", arguments->seed, "of --shape; drawn and printed when not given");
  command->add_option("--output", arguments->output, "folder for records.jsonl and index.html, made if it is not there");
  command->add_option("--json", arguments->json, "also write the verdicts to this file");
  command->add_option("--threads", arguments->threads, "0: all of the machine")->check(CLI::Range(0, 1024))->capture_default_str();
  command->footer("Exit codes: 0 all passed, 1 a kernel failed, 2 bad input or no such kernel, 3 undecided or suspect, 77 no kernel could run.\n"
                  "Example: attest check --kernel 'cpu.hla2.*' --shape T=256,d=32,dv=32,H=2 --seed 1 --output /tmp/report");
  command->callback([arguments, &app, &exit_code] {
    arguments->command = "attest check";
    for (const CLI::Option* option : app.get_subcommand("check")->get_options())
      for (const std::string& value : option->results())
        arguments->command += ' ' + (option->get_expected_max() == 0 ? option->get_name() : option->get_name() + " '" + value + "'");
    exit_code = run_check(*arguments);
  });
}

}  // namespace attest
